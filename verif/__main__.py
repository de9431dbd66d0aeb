"""``python -m verif``: run the benches and say what each has checked."""

import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gen.cli import parameter_options
from gen.config import ConfigError, replace_params
from golden.cli.entry import console, progress_console, run_cli, version_option
from golden.common.files import write_whole

from .benches import BENCHES
from .runner import SIMULATORS, build_root, require_simulator, run_bench


def _configurations(bench, params, settings):
    """Parameter sets of one bench: its own matrix, or only what the user asks for."""
    if settings:
        yield params, {name: getattr(params, name) for name in settings}
        return
    for overrides in BENCHES[bench]:
        yield replace_params(params, overrides), overrides


def _junit(results):
    root = ElementTree.Element("testsuites")
    for result in results:
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{result.bench} {result.simulator}",
            tests=str(len(result.tests)), time=f"{result.seconds:.2f}",
            failures=str(sum(failure is not None for *_, failure in result.tests)))
        cases = result.tests or [("build", result.seconds, result.failure)]
        for name, seconds, failure in cases:
            overrides = ",".join(f"{key}={value}" for key, value in result.overrides.items())
            case = ElementTree.SubElement(suite, "testcase", time=f"{seconds:.2f}",
                                          classname=f"verif.{result.bench}",
                                          name=f"{name}[{overrides}]")
            if failure is not None:
                ElementTree.SubElement(case, "failure", message=str(failure))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _table(results):
    table = Table(title="benches", title_justify="left")
    for heading, justify in (("bench", "left"), ("simulator", "left"), ("parameters", "left"),
                             ("tests", "right"), ("outputs checked", "right"),
                             ("seconds", "right"), ("result", "left")):
        table.add_column(heading, justify=justify)
    for result in results:
        good = sum(failure is None for *_, failure in result.tests)
        table.add_row(
            result.bench, result.simulator,
            " ".join(f"{key}={value}" for key, value in result.overrides.items()) or "preset",
            f"{good}/{len(result.tests)}", f"{result.checked:,}", f"{result.seconds:.1f}",
            "[green]passed[/]" if result.passed else "[red]FAILED[/]")
    return table


@click.command()
@click.argument("benches", nargs=-1, metavar="[BENCH]...")
@parameter_options
@click.option("--simulator", type=click.Choice(SIMULATORS), default="verilator",
              show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True,
              help="Seed of data and flow; a failure repeats with the same seed.")
@click.option("--waves", is_flag=True, help="Write waveforms beside each bench's log.")
@click.option("--junit", metavar="FILE", type=click.Path(path_type=pathlib.Path),
              help="JUnit XML report.  [default: build/verif/junit.xml]")
@version_option()
def main(benches, params, simulator, seed, waves, junit):
    """Run cocotb benches against the golden models; no BENCH means all.

    Each bench runs at full speed, starved, stalled and with a sink that waits for valid, on real
    attention, random vectors and corners, with resets in mid-operation. Without --set each bench
    runs its matrix of parameters; with --set only the parameters given.
    """
    for bench in benches:
        if bench not in BENCHES:
            raise ConfigError(f"unknown bench {bench!r}; the benches are {', '.join(BENCHES)}")
    require_simulator(simulator)
    settings = click.get_current_context().params.get("settings", ())
    chosen = list(dict.fromkeys(benches)) or list(BENCHES)
    runs = [(bench, run_params, overrides) for bench in chosen
            for run_params, overrides in _configurations(
                bench, params, [setting.partition("=")[0].strip() for setting in settings])]
    results = []
    with Progress(SpinnerColumn(), TextColumn("{task.completed}/{task.total}"),
                  TextColumn("{task.description}"), TimeElapsedColumn(),
                  console=progress_console) as progress:
        task = progress.add_task("", total=len(runs))
        for bench, run_params, overrides in runs:
            progress.update(task, description=f"{bench} in {simulator}")
            results.append(run_bench(bench, run_params, overrides, simulator=simulator, seed=seed,
                                     waves=waves))
            progress.advance(task)
    console.print(_table(results))
    for result in results:
        for name, _, failure in [("", 0, result.failure), *result.tests]:
            if failure is not None:
                console.print(f"{result.bench} {name}: {failure}", style="red", markup=False)
    path = write_whole(junit or build_root() / "junit.xml", _junit(results))
    failed = sum(not result.passed for result in results)
    console.print(f"{len(results) - failed} of {len(results)} benches passed, "
                  f"{sum(result.checked for result in results):,} outputs checked; seed {seed}; "
                  f"report in {os.path.relpath(path)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    run_cli(main, "verif")
