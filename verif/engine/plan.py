"""What an engine run does: jobs, the memory they work in, and what must be in it afterwards."""

import dataclasses

import numpy as np

from golden.apt import panels
from golden.apt.attend import Attention, attend
from golden.apt.job import Region, job_words, panel, place
from golden.apt.layout import Layout


__all__ = ["Plan", "Result"]

#: What is written, and how its image becomes arrays again.
_WRITTEN = (Region.CODE_OUT, Region.STATE_OUT, Region.ROWS_OUT, Region.O)

#: What such memory holds beforehand: no flag pair 0 or 3, which masks are full of.
_BEFORE = 0b10011001


@dataclasses.dataclass
class _Job:
    name: str
    layout: Layout
    bases: dict
    expected: Attention
    step: object
    first: bool  # of its head: there is no state before it


@dataclasses.dataclass(frozen=True)
class Result:
    """What one job of a run left in memory, unpacked."""

    code: np.ndarray
    s: np.ndarray
    rows: tuple
    o: np.ndarray


class Plan:
    """Jobs of heads and steps, with the images of all their tensors.

    Every job has regions of its own for what it writes; the state of the step before is read
    where that step's job wrote it, so steps of a head depend on each other as on a real device: a
    job is given when the one it depends on has ended.
    With ``one_by_one`` every job waits for the one before, so that counters are of one job.
    Memory that a job is to write is filled beforehand with what it will hardly write.
    """

    def __init__(self, params, *, one_by_one=False):
        self.params, self._one_by_one = params, one_by_one
        self.words = []      # of all jobs
        self.jobs = []
        self._parts = []     # (base beat, bytes)
        self._beats = 1      # beat 0 belongs to nobody
        self.after = []      # of each job: how many must have ended before it is given
        self._last = {}      # of each head: its last job's number

    def _place(self, image):
        base = self._beats
        self._parts.append((base, image))
        self._beats += len(image) // self.params.beat_bytes
        return base

    def add(self, name, head, step):
        """Add a step of the head ``name``; returns what the model makes of it."""
        params, layout = self.params, Layout(self.params, len(head.k), len(head.q))
        number = self._last.get(name)
        before = None if number is None else self.jobs[number]
        expected = attend(head, step, None if before is None else before.expected.state, params,
                          keep_tiles=True)
        bases = {}
        for region, pack, words, scales in (
                (Region.Q, panels.pack_q, head.q, head.a_q),
                (Region.K, panels.pack_k, head.k, head.a_k),
                (Region.V, panels.pack_v, head.v, head.a_v)):
            bases[region] = self._place(pack(words, scales, params))
        for region in _WRITTEN:
            size = panel(region, layout).total * params.beat_bytes
            bases[region] = self._place(np.full(size, _BEFORE, np.uint8))
        for region, source in ((Region.CODE_IN, Region.CODE_OUT),
                               (Region.STATE_IN, Region.STATE_OUT),
                               (Region.ROWS_IN, Region.ROWS_OUT)):
            bases[region] = 0 if before is None else before.bases[source]
        places = {region: place(region, base, layout) for region, base in bases.items()}
        self.words += job_words(step, head.scale, before is not None, places, layout)
        job = _Job(f"{name} step {sum(one.name.startswith(name + ' ') for one in self.jobs)}",
                   layout, bases, expected, step, before is None)
        self.after.append(len(self.jobs) if self._one_by_one else
                          0 if number is None else number + 1)
        self._last[name] = len(self.jobs)
        self.jobs.append(job)
        return expected

    def memory(self):
        """The memory before the run."""
        image = np.zeros(self._beats * self.params.beat_bytes, np.uint8)
        for base, part in self._parts:
            first = base * self.params.beat_bytes
            image[first:first + len(part)] = part
        return image

    def result(self, number, memory):
        """What job ``number`` wrote."""
        job, params = self.jobs[number], self.params

        def image(region):
            first = job.bases[region] * params.beat_bytes
            return memory[first:first + panel(region, job.layout).total * params.beat_bytes]
        queries = job.layout.queries
        return Result(panels.unpack_code(image(Region.CODE_OUT), job.layout),
                      panels.unpack_state(image(Region.STATE_OUT), job.layout),
                      panels.unpack_rows(image(Region.ROWS_OUT), queries, params),
                      panels.unpack_o(image(Region.O), queries, params))

    def check(self, number, memory):
        """Words of job ``number`` that were compared; :class:`AssertionError` if one is wrong."""
        job, result = self.jobs[number], self.result(number, memory)
        state, checked, faults = job.expected.state, 0, []
        for what, got, want in (("masks", result.code, state.code), ("s", result.s, state.s),
                                ("c", result.rows[0], state.c),
                                ("reference", result.rows[1], state.reference),
                                ("O", result.o, job.expected.o)):
            wrong = np.argwhere(got != want)
            if len(wrong):
                at = tuple(wrong[0].tolist())
                faults.append(f"{what}{list(at)} is {got[at]} instead of {want[at]} "
                              f"({len(wrong)} of {want.size} differ)")
            checked += want.size
        if faults:
            raise AssertionError(f"{job.name}: {'; '.join(faults)}")
        return checked

    def check_rest(self, memory):
        """Nothing else was written."""
        want = self.memory()
        for job in self.jobs:
            for region in _WRITTEN:
                one = panel(region, job.layout)
                for tile, beats in enumerate(one.beats):
                    first = (job.bases[region] + tile * one.stride) * self.params.beat_bytes
                    size = beats * self.params.beat_bytes
                    want[first:first + size] = memory[first:first + size]
        wrong = np.flatnonzero(want != memory)
        if len(wrong):
            raise AssertionError(f"Byte {wrong[0]} was written and belongs to no output "
                                 f"({len(wrong)} such bytes)")
