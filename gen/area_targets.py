"""What ``gen area`` can map a design to: the Yosys commands, and what is counted afterwards."""

import dataclasses
import pathlib
import re

from .config import ConfigError
from .liberty import SKY130_AREA
from .techmap import FILES, PACKED_PRODUCTS


__all__ = ["FLIP_FLOPS", "NO_LOGIC", "SPLIT_NETS", "TARGETS", "Target", "find_target"]

#: Flip-flops among Yosys's own fine-grained cells, one bit each.
FLIP_FLOPS = r"\$_(?:S?DFFE?|SDFFCE|ALDFFE?|DFFSRE?|FF)_.*"

#: Cells that take no room: constants, marks of the hierarchy, and memories, counted as bits.
NO_LOGIC = {"$scopeinfo", "$mem_v2", "GND", "VCC"}

#: Logic synthesis without a technology. These are the steps of `synth -flatten`, save that
#: memories which can be written stay whole (`memory_map` alone would make flip-flops of them);
#: a read-only table is logic.
_COARSE = ("synth -flatten -top {top} -run begin:fine",)
_COARSE_BOOTH = ("synth -flatten -booth -top {top} -run begin:fine",)
_FINE = ("opt -fast -full", "memory_map -rom-only", "opt -full", "techmap", "opt -fast")
_OPTIMIZE = ("abc", "opt -fast")

#: Standard cells: what gave the smallest area for plain and for narrow multipliers, adders,
#: comparators and control alike, so that a ratio of two designs is no artefact of the recipe.
#: Booth multipliers, and area-oriented mapping; no delay is asked for, the library has none.
_CELLS = (
    *_OPTIMIZE, "dfflibmap -liberty cells.lib",
    "abc -liberty cells.lib -script +strash;ifraig;scorr;dc2;dch,-f;amap,-m;topo",
    "opt_clean",
)

#: ABC cannot map to a cell with two outputs, so full adders are placed before it.
_FULL_ADDERS = (
    "read_liberty -lib -ignore_miss_func cells.lib",
    "extract_fa -fa", "opt_clean", "techmap -map full_adder.v", "opt_clean",
)

_SKY130_FULL_ADDER = """\
(* techmap_celltype = "$fa" *)
module full_adder(A, B, C, X, Y);
  parameter WIDTH = 1;
  (* force_downto *) input [WIDTH-1:0] A, B, C;
  (* force_downto *) output [WIDTH-1:0] X, Y;
  genvar i;
  generate for (i = 0; i < WIDTH; i = i + 1) begin : bits
    sky130_fd_sc_hd__fa_1 adder (.A(A[i]), .B(B[i]), .CIN(C[i]), .COUT(X[i]), .SUM(Y[i]));
  end endgenerate
endmodule
"""

#: Before every FPGA flow. ABC9 stops on a wire that it cuts into pieces whose names exist already
#: (yosys#4349 and #4451, seen with 0.70 on `bank_memory`); nets of one bit have no pieces.
#: It can go when the Yosys that we pin has the repair.
SPLIT_NETS = ("flatten", "splitnets")


#: The owners and the lanes of the quad dataflow, and what is as wide behind them, each register
#: what all of them get; and each part of the datapath has a register for its restart. Synthesis
#: of one flat design would merge the copies, and one register would drive logic all over the
#: device.
_KEEP_COPIES = ("setattr -mod -set keep_hierarchy 1 *.owner_? *.owner_?.lane_?",
                "setattr -mod -set keep_hierarchy 1 *.flush_?_? *.columns_* *.output*.lane_*",
                "setattr -mod -set keep_hierarchy 1 *.restart_*")
_FLATTEN = ("setattr -mod -unset keep_hierarchy *", "flatten", "opt_clean")


@dataclasses.dataclass(frozen=True)
class Target:
    """One technology.

    Parameters
    ----------
    steps : :class:`tuple` of :class:`str`
        Yosys commands from the checked design to the mapped one; ``{top}`` is the top module.
    counts : :class:`dict`
        Name of each number to report: pattern of the cell types that it counts.
    ratios : :class:`dict`
        Name of each ratio to the baseline: the numbers that it compares, with weights.
    finish : :class:`tuple` of :class:`str`
        Commands after those.
    dsp : :class:`str`
        What to add to the last of ``steps`` when multipliers may go into DSP blocks, and
        ``no_dsp`` when they may not.
    liberty : :class:`pathlib.Path` or :class:`None`
        Cell library whose areas are summed; ``unit`` is how they are named.
    files : :class:`dict`
        Name and text of each further file that the steps read.
    """

    name: str
    summary: str
    steps: tuple = ()
    counts: dict = dataclasses.field(default_factory=dict)
    ratios: dict = dataclasses.field(default_factory=dict)
    finish: tuple = ()
    dsp: str = ""
    no_dsp: str = ""
    liberty: pathlib.Path | None = None
    unit: str = ""
    files: dict = dataclasses.field(default_factory=dict)

    def script(self, top, multiplier_style):
        """The mapping commands for a top module."""
        *steps, last = self.steps
        extra = self.no_dsp if multiplier_style == "lut" else self.dsp
        return [step.format(top=top)
                for step in (*steps, f"{last} {extra}".strip(), *self.finish)]

    def count(self, cells):
        """The reported numbers out of ``{cell type: how many}``.

        What no pattern matches is ``other``: nothing is dropped without a word.
        """
        numbers = dict.fromkeys([*self.counts, "other"], 0)
        for kind, number in cells.items():
            if kind not in NO_LOGIC:
                name = next((name for name, pattern in self.counts.items()
                             if re.fullmatch(pattern, kind)), "other")
                numbers[name] += number
        return numbers


def _liberty_target(name, summary, path, unit, full_adder=None):
    adders, files = ((), {}) if full_adder is None else (_FULL_ADDERS,
                                                         {"full_adder.v": full_adder})
    return Target(
        name, summary, liberty=path, unit=unit, files=files,
        steps=(*_COARSE_BOOTH, *_FINE, *adders, *_CELLS),
        ratios={"total": {f"total_{unit}": 1}, "logic": {f"logic_{unit}": 1},
                "gates": {"gates": 1}})


#: Targets by name. A Liberty file of the user's is the target ``liberty=FILE``.
TARGETS = {target.name: target for target in [
    Target("generic", "NAND, NOR and NOT gates; flip-flops apart",
           steps=(*_COARSE, *_FINE, *_OPTIMIZE, "abc -g cmos2", "opt_clean"),
           counts={"gates": r"\$_(?:NAND|NOR|NOT)_", "flip_flops": FLIP_FLOPS},
           ratios={"logic": {"gates": 1}}),
    Target("ecp5", "Lattice ECP5",
           steps=(*PACKED_PRODUCTS, *_KEEP_COPIES, *SPLIT_NETS,
                  "synth_ecp5 -top {top} -noiopad"),
           finish=_FLATTEN,
           no_dsp="-nodsp", files=FILES,
           counts={"LUT4": "LUT4", "CCU2C": "CCU2C", "PFUMX": "PFUMX", "L6MUX21": "L6MUX21",
                   "FF": "TRELLIS_FF", "DSP": "MULT18X18D|MULT9X9D|ALU54B",
                   "EBR": "DP16KD|PDPW16KD", "DPR16X4": "TRELLIS_DPR16X4"},
           ratios={"logic": {"LUT4": 1, "CCU2C": 2}}),  # a CCU2C takes the place of two LUT4
    Target("ice40", "Lattice iCE40",
           steps=(*SPLIT_NETS, "synth_ice40 -spram -top {top}"), dsp="-dsp",
           counts={"LUT4": "SB_LUT4", "CARRY": "SB_CARRY", "FF": "SB_DFF.*",
                   "MAC16": "SB_MAC16", "EBR": "SB_RAM40_4K.*", "SPRAM": "SB_SPRAM256KA"},
           ratios={"logic": {"LUT4": 1}}),
    Target("xilinx", "Xilinx 7 series",
           steps=(*SPLIT_NETS, "synth_xilinx -family xc7 -noiopad -noclkbuf -top {top}"),
           no_dsp="-nodsp",
           counts={"LUT": r"LUT\d|INV", "CARRY4": "CARRY4", "MUXF": r"MUXF\d",
                   "FF": r"FD[RSCP]E(?:_1)?", "DSP48E1": "DSP48E1", "RAMB18": "RAMB18E1",
                   "RAMB36": "RAMB36E1", "LUTRAM": r"RAM\d+.*", "SRL": r"SRL\w+"},
           ratios={"logic": {"LUT": 1}}),
    Target("gowin", "Gowin GW2A",
           steps=(*SPLIT_NETS, "synth_gowin -family gw2a -noiopads -top {top}"), no_dsp="-nodsp",
           counts={"LUT4": r"LUT\d|INV", "ALU": "ALU", "MUX2": r"MUX2_LUT\d", "FF": r"DFF\w*",
                   "DSP": r"MULT\w+", "BSRAM": r"(?:SDP|DP|SP)(?:X9)?B?",
                   "SSRAM": r"RAM16\w+"},
           ratios={"logic": {"LUT4": 1, "ALU": 1}}),  # an ALU takes the place of a LUT4
    _liberty_target("sky130", "SkyWater sky130_fd_sc_hd cells, in um2", SKY130_AREA, "um2",
                    _SKY130_FULL_ADDER),
]}


def find_target(text):
    """The target that a command line names; :class:`ConfigError` says what would be right."""
    kind, equals, value = text.partition("=")
    if kind == "liberty" and equals and value:
        return _liberty_target("liberty", "cells of a Liberty file", pathlib.Path(value), "area")
    if text not in TARGETS:
        raise ConfigError(f"unknown target {text!r}; the targets are {', '.join(TARGETS)}, "
                          f"liberty=FILE")
    return TARGETS[text]
