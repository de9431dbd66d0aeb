"""Builds the engine's Verilog with the C++ harness, and runs plans on it."""

import dataclasses
import os
import pathlib
import shutil
import subprocess

import numpy as np

from gen.designs import DESIGNS
from gen.verilog import emit
from golden.apt.cycles_memory import Memory
from golden.apt.job import JOB_WORDS
from rtl.apt.counters import COUNTERS
from verif.runner import simulator_environment


__all__ = ["Harness", "Port", "Run"]

_SOURCE = pathlib.Path(__file__).with_name("harness.cpp")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Port:
    """How the memory behaves: cycles from a read request to its first beat, up to so many more by
    chance, and the share of cycles in which no beat moves."""

    latency: int = 30
    jitter: int = 0
    idle_percent: int = 0

    @property
    def memory(self):
        """The same for the cycle model, on average."""
        return Memory(self.latency + self.jitter / 2, 1 - self.idle_percent / 100)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run gave."""

    memory: np.ndarray
    done: list      #: of each job: cycle, status, counters by name
    stages: list    #: (cycle, stages) where they changed, on request
    cycles: int
    read_beats: int
    written_beats: int


class Harness:
    """The engine of ``params``, built in ``folder``."""

    def __init__(self, params, folder, *, waves=False):
        self.params, self.folder, self.waves = params, pathlib.Path(folder), waves
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        source, _, _ = emit(DESIGNS["sd_mpu"], params, self.folder)
        # Verilator takes no path with a space, which the checkout's may have. The compiler's level
        # is that of all models: a higher one takes it half as long again for the same speed.
        shutil.copy(_SOURCE, self.folder)
        command = ["verilator", "--cc", "--exe", "--build", "-j", "2", "-O3", "-Wno-fatal",
                   "-Wno-lint", "--x-initial", "unique", "--x-assign", "unique",
                   "--noassert", "-fno-table", "--Mdir", "obj", "-o", "engine",
                   "--top-module", "sd_mpu", source.name, _SOURCE.name]
        if waves:
            command.insert(1, "--trace")
        with simulator_environment("verilator"):
            done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True,
                                  check=False)
        (self.folder / "build.log").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise RuntimeError(f"Verilator did not build the engine (see {self.folder}/build.log)")

    def run(self, plan, *, port=Port(), seed=1, most_cycles=50_000_000, abort_at=0,
            timeline=False):
        """Run a plan's jobs one after another; :class:`RuntimeError` if they do not end.

        At cycle ``abort_at``, if that is not 0, all jobs are aborted; those that had not ended are
        given again.
        """
        plan.memory().tofile(self.folder / "memory.bin")
        np.array(plan.words, np.uint32).tofile(self.folder / "jobs.bin")
        np.array(plan.after, np.uint32).tofile(self.folder / "after.bin")
        config = {
            "beat_bytes": self.params.beat_bytes, "latency": port.latency, "jitter": port.jitter,
            "idle_percent": port.idle_percent, "most_cycles": most_cycles, "abort_at": abort_at,
            "timeline": int(timeline), "memory": "memory.bin", "jobs": "jobs.bin",
            "after": "after.bin",
            "job_words": JOB_WORDS, "counters": len(COUNTERS), "seed": seed, "out": "out.bin",
            "results": "results.txt", "waves": "engine.vcd"}
        (self.folder / "run.txt").write_text(
            "".join(f"{name} {value}\n" for name, value in config.items()))
        done = subprocess.run([os.path.join("obj", "engine"), "run.txt"], cwd=self.folder,
                              text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"engine ended with {done.returncode}")
        jobs, stages, end = [], [], None
        for line in (self.folder / "results.txt").read_text().splitlines():
            kind, *numbers = line.split()
            numbers = [int(number) for number in numbers]
            if kind == "stages":
                stages.append(tuple(numbers))
            elif kind == "done":
                jobs.append((numbers[0], numbers[1], dict(zip(COUNTERS, numbers[2:],
                                                              strict=True))))
            else:
                end = numbers
        return Run(np.fromfile(self.folder / "out.bin", np.uint8), jobs, stages, *end[:3])
