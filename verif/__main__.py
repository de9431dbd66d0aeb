"""``python -m verif``: run the benches and say what each has checked."""

import functools
import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gen.cli import parameter_options
from gen.config import ConfigError, replace_params
from gen.designs import DESIGNS
from golden.apt.calibration import Calibration
from golden.cli.entry import console, print_wide, progress_console, run_cli, version_option
from golden.common.errors import UserError
from golden.common.files import write_whole

from .benches import BENCHES
from .engine.report import print_heads, run_heads
from .engine.study import check_calibration
from .runner import SIMULATORS, build_root, require_simulator, run_all, run_bench


def _configurations(bench, params, settings):
    """Parameter sets of one bench: its own matrix, or only what the user asks for.

    A whole engine is too large for cocotb at the preset's size: there the user's settings come on
    top of those rows of the matrix that can have them.
    """
    wanted = {name: getattr(params, name) for name in settings}
    design = DESIGNS[bench]
    if design.dataflow:  # the block has no other
        params = replace_params(params, {"dataflow": design.dataflow})
    if wanted and not design.whole:
        yield params, wanted
        return
    runs, refused = [], None
    for overrides in BENCHES[bench]:
        merged = {**overrides, **wanted}
        try:
            runs.append((replace_params(params, merged), merged))
            design.check(runs[-1][0])
        except ConfigError as error:
            refused = error
        except ValueError as error:
            runs.pop()
            refused = ConfigError(str(error))
    if refused and not (wanted and runs):
        raise refused
    yield from runs


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


def _table(results, simulator):
    table = Table(title=f"benches in {simulator}", title_justify="left")
    table.add_column("bench", no_wrap=True)
    table.add_column("parameters", overflow="fold")
    for heading in ("tests", "checked", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for result in results:
        good = sum(failure is None for *_, failure in result.tests)
        table.add_row(
            result.bench,
            " ".join(f"{key}={value}" for key, value in result.overrides.items()) or "preset",
            f"{good}/{len(result.tests)}", f"{result.checked:,}", f"{result.seconds:.0f}",
            "[green]passed[/]" if result.passed else "[red]FAILED[/]")
    return table


def _run(calls, jobs, simulator):
    """Futures of the calls, with a line that shows how many are done."""
    with Progress(SpinnerColumn(), TextColumn("{task.completed} of {task.total} runs"),
                  TextColumn("{task.description}"), TimeElapsedColumn(),
                  console=progress_console) as progress:
        task = progress.add_task(f"in {simulator}", total=len(calls))
        return run_all(calls, jobs=jobs, on_done=lambda: progress.advance(task))


def _leave_path_with_space(args):
    """Start again by the environment's real path where the given one has a space.

    In a checkout with a space in its path ``.venv`` is a link, and the libraries of cocotb must
    not be named through it.
    """
    real = os.path.realpath(sys.prefix)
    if " " in sys.prefix and " " not in real:
        python = os.path.join(real, "bin", "python")
        os.execv(python, [python, "-m", "verif", *args])


@click.command()
@click.argument("benches", nargs=-1, metavar="[BENCH]...")
@parameter_options
@click.option("--simulator", type=click.Choice(SIMULATORS), default="verilator",
              show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True,
              help="Seed of data and flow; a failure repeats with the same seed.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), show_default="all cores",
              help="Benches to run at a time; the real heads count as one.")
@click.option("--waves", is_flag=True, help="Write waveforms beside each bench's log.")
@click.option("--whole-heads", is_flag=True,
              help="sd_mpu: heads with all their queries, not a query tile's: some minutes.")
@click.option("--calibration", "calibration_path", metavar="JSON",
              type=click.Path(path_type=pathlib.Path),
              help="sd_mpu: thresholds, count thresholds and refresh bits of the real heads "
              "(`golden calibrate`). Without this, those of the heads themselves.")
@click.option("--junit", metavar="FILE", type=click.Path(path_type=pathlib.Path),
              help="JUnit XML report.  [default: build/verif/junit.xml]")
@version_option()
@click.pass_context
def main(context, benches, params, simulator, seed, jobs, waves, whole_heads, calibration_path,
         junit):
    """Run cocotb benches against the golden models; no BENCH means all.

    Each bench runs at full speed, starved, stalled and with a sink that waits for valid, on real
    attention, random vectors and corners, with resets in mid-operation. Without --set each bench
    runs its matrix of parameters; with --set only the parameters given. With the bench sd_mpu,
    real heads run on the engine of the preset in Verilator, with their cycles and utilisation.
    """
    for bench in benches:
        if bench not in BENCHES:
            raise ConfigError(f"unknown bench {bench!r}; the benches are {', '.join(BENCHES)}")
    require_simulator(simulator)
    settings = [setting.partition("=")[0].strip() for setting in context.params["settings"]]
    chosen = list(dict.fromkeys(benches or BENCHES))
    with_heads = ("sd_mpu" in chosen and simulator == "verilator"
                  and DESIGNS["sd_mpu"].fits(params))
    calibration = None
    if calibration_path is not None:  # first, so that a bad file fails before the work
        if not with_heads:
            raise UserError("--calibration is for the real heads of sd_mpu, which run in Verilator "
                            "on parameters that it fits")
        calibration = Calibration.load(calibration_path, params)
        check_calibration(calibration)
    calls = [functools.partial(run_bench, bench, run_params, overrides, simulator=simulator,
                               seed=seed, waves=waves)
             for bench in sorted(chosen, key=lambda one: DESIGNS[one].whole)
             for run_params, overrides in _configurations(bench, params, settings)]
    if with_heads:
        calls.append(functools.partial(run_heads, params, whole=whole_heads, waves=waves, seed=seed,
                                       calibration=calibration))
    # The long ones first: begun last they would leave cores idle.
    futures = _run(calls[::-1], jobs, simulator)[::-1]
    heads = futures.pop() if with_heads else None
    results = [future.result() for future in futures]
    print_wide(_table(results, simulator))
    for result in results:
        for name, _, failure in [("", 0, result.failure), *result.tests]:
            if failure is not None:
                console.print(f"{result.bench} {name}: {failure}", style="red", markup=False)
        if waves:
            console.print(f"{result.bench}: waveform and logs in {result.folder}", markup=False)
    path = write_whole(junit or build_root() / "junit.xml", _junit(results))
    failed = sum(not result.passed for result in results)
    console.print(f"{len(results) - failed} of {len(results)} benches passed, "
                  f"{sum(result.checked for result in results):,} outputs checked; seed {seed}; "
                  f"report in {os.path.relpath(path)}", markup=False)
    if with_heads:
        try:
            print_heads(*heads.result(), params, whole=whole_heads,
                        calibrated=calibration is not None)
        except (AssertionError, RuntimeError) as error:
            console.print(f"sd_mpu: {error}", style="red", markup=False)
            failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    _leave_path_with_space(sys.argv[1:])
    run_cli(main, "verif")
