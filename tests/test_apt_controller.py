"""The controller among stand-ins of all that it drives: tiles, factors, units, ends of jobs."""

from collections import deque

import numpy as np
import pytest

from golden.apt.job import Region
from golden.apt.log2 import log2_fine
from golden.apt.vpu import tile_scale
from rtl.apt.controller import Controller, Status
from rtl.apt.panel_port import LoadKind, StoreKind
from tests.jobs import BAD, ODD, SCALE, STEPS, TINY, expected_walk, fields, make_job
from tests.sim import simulate


#: Step, tokens, whether there is state; and jobs that are refused, by their fault.
JOBS = [(STEPS[0], 20, False), "keys", (STEPS[1], 20, True), "shift", "rows", (STEPS[2], 5, True),
        (STEPS[0], 40, True)]


class World:
    """Loader, storer, array and row work around a controller, no slower than the engine's.

    ``delay`` is the most cycles that a load or a phase takes; ``chance`` that of an answer in
    a cycle in which it may come. The end of a job is taken in every ``host``-th cycle. Scale words
    are random, some of them 0.
    """

    def __init__(self, params, jobs, *, delay=30, chance=0.5, host=1, seed=1):
        self.params, self.rng = params, np.random.default_rng(seed)
        self.delay, self.chance, self.host = delay, chance, host
        self.words, self.loads, self.stores, self.tiles, self.status = [], [], [], [], []
        self.ends = []  # of each job: how many query tiles of all jobs there are by then
        for number, one in enumerate(jobs):
            if isinstance(one, str):
                packed, _ = make_job(STEPS[0], 16, False, params)
                word, value = BAD[one]
                packed[word] = value
                self.words += packed
                self.status.append(Status.REFUSED)
                self.ends.append(self.ends[-1] if self.ends else 0)
                continue
            packed, places = make_job(*one, params, 1000 + 100_000 * number)
            walk = expected_walk(*one, places, params)
            self.words += packed
            for total, part in zip((self.loads, self.stores, self.tiles), walk, strict=True):
                total += part
            self.status.append(Status.DONE)
            self.ends.append(sum(tile["last"] for tile in self.tiles))
        self.scales, self.units = {Region.Q: [], Region.K: [], Region.V: []}, []
        self.qk, self.pv, self.done, self.done_at, self.stored_at = [], [], [], [], []
        self.qk_at = []
        self._got_loads, self._got_stores = [], []

    def flip(self):
        return self.rng.random() < self.chance

    def wait(self):
        return int(self.rng.integers(1, self.delay + 1))

    def _scale(self, kind):
        value = int(self.rng.integers(0, 1 << self.rng.integers(1, 16)))
        self.scales[kind].append(value)
        return value

    async def run(self, ctx, dut):
        loading, left, phase = deque(), 0, None
        due = {name: deque() for name in ("listed", "updated", "o_stored")}
        last_due = dict.fromkeys(due, 0)
        word, cycle, load_left, step = 0, 0, 0, None

        def later(name, cycle):
            last_due[name] = max(cycle + self.wait(), last_due[name] + 1)
            due[name].append(last_due[name])

        while len(self.done) < len(self.status):
            # Loads come in order: first a tile's scale word, then all of it.
            if step is None and loading:
                step, load_left = "scale" if loading[0] <= Region.V else "all", self.wait()
            load_left -= 1
            has_scale, loaded = (step == name and load_left <= 0 for name in ("scale", "all"))
            if has_scale:
                kind = loading[0]
                ctx.set(dut.scale.p, {"kind": LoadKind(kind), "scale": self._scale(kind)})
                step, load_left = "all", self.wait()
            ctx.set(dut.scale.valid, int(has_scale))
            kind = loading.popleft() if loaded else None
            step = None if loaded else step
            ctx.set(dut.k_loaded, int(kind == Region.K))
            ctx.set(dut.v_loaded, int(kind == Region.V))
            for name, times in due.items():
                now = bool(times) and times[0] <= cycle
                ctx.set(getattr(dut, name), int(now))
                if now:
                    times.popleft()
                    if name == "o_stored":
                        self.stored_at.append(cycle)
            ctx.set(dut.idle, int(left == 0))
            ctx.set(dut.done.ready, int(cycle % self.host == 0))
            for name in ("load", "store", "qk", "pv", "unit_v"):
                ctx.set(getattr(dut, name).ready, int(self.flip()))
            if word < len(self.words) and (ctx.get(dut.job.valid) or self.flip()):
                ctx.set(dut.job.valid, 1)
                ctx.set(dut.job.p, self.words[word])

            def moves(name):
                port = getattr(dut, name)
                return ctx.get(port.valid) and ctx.get(port.ready)

            # The loader cannot be held up.
            assert not has_scale or ctx.get(dut.scale.ready)
            word += moves("job")
            job_moved, began = moves("job"), None
            if moves("load"):
                bits = ctx.get(dut.load.p.as_value())
                self._got_loads.append(fields(dut.load.p.shape(), bits))
                loading.append(self._got_loads[-1]["kind"])
            if moves("store"):
                bits = ctx.get(dut.store.p.as_value())
                self._got_stores.append(fields(dut.store.p.shape(), bits))
            if moves("unit_v"):
                self.units.append(ctx.get(dut.unit_v.p))
            if moves("done"):
                self.done.append(ctx.get(dut.done.p))
                self.done_at.append(cycle)
            if moves("qk"):
                bits = ctx.get(dut.qk.p.tile.as_value())
                factor = tuple(ctx.get(getattr(dut.qk.p.factor, name))
                               for name in ("mantissa", "shift"))
                self.qk.append((fields(dut.qk.p.tile.shape(), bits), factor))
                self.qk_at.append(cycle)
                began = "qk"
            if moves("pv"):
                self.pv.append({name: ctx.get(getattr(dut.pv.p, name))
                                for name in ("rows", "first", "last")})
                began = "pv"
            await ctx.tick()
            cycle += 1
            if job_moved:
                ctx.set(dut.job.valid, 0)
            if began:
                phase, left = began, self.wait()
            elif left:
                left -= 1
                if left == 0 and phase == "qk":
                    later("listed", cycle)
                if left == 0 and phase == "pv":
                    later("updated", cycle)
                    if self.pv[-1]["last"]:
                        later("o_stored", last_due["updated"])

    def check(self):
        """Everything that came is what the jobs ask for."""
        got = [(one["kind"], one["address"], one["beats"], one["words"])
               for one in self._got_loads]
        assert got == self.loads
        got = [(one["kind"] + Region.CODE_OUT, one["address"], one["beats"], one["words"])
               for one in self._got_stores]
        assert got == self.stores
        for (have, factor), pv, want, number in zip(self.qk, self.pv, self.tiles,
                                                    range(len(self.tiles)), strict=True):
            assert {name: have[name] for name in want} == {name: int(value)
                                                           for name, value in want.items()}
            assert pv == {name: int(want[name]) for name in pv}
            query = sum(tile["first"] for tile in self.tiles[:number + 1]) - 1
            assert factor == tuple(int(x) for x in tile_scale(
                SCALE, self.scales[Region.Q][query], self.scales[Region.K][number]))
        wanted = log2_fine(np.maximum(self.scales[Region.V], 1)).tolist()
        # The last unit may have been on its way when the last job ended.
        assert self.units == wanted[:len(self.units)] and len(self.units) >= len(wanted) - 1
        # Jobs end in order, each after the O of its query tiles.
        assert self.done == self.status
        for end, at in zip(self.ends, self.done_at, strict=True):
            assert end == 0 or at > self.stored_at[end - 1]


def run(world):
    dut = Controller(world.params)

    async def testbench(ctx):
        await world.run(ctx, dut)

    simulate(dut, testbench)
    world.check()
    return dut


@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
@pytest.mark.parametrize("delay, chance", [(1, 1.0), (30, 0.5), (120, 0.9), (20, 0.1)])
def test_jobs_become_tiles_and_end_in_order(params, delay, chance):
    world = World(params, JOBS, delay=delay, chance=chance, seed=delay)
    run(world)
    assert min(map(min, world.scales.values())) < 2  # zeros, or next to it


@pytest.mark.parametrize("name", BAD)
def test_a_refused_job_ends_at_once_and_does_nothing(name):
    world = World(TINY, [name, (STEPS[0], 16, False), name], delay=3, chance=1.0)
    run(world)
    assert world.done == [Status.REFUSED, Status.DONE, Status.REFUSED]
    assert world.done_at[0] < 64 + 8  # from its last word on


def test_a_refused_job_waits_for_the_one_before():
    world = World(TINY, [(STEPS[0], 32, False), "keys"], delay=100, chance=1.0)
    run(world)
    assert world.done_at[1] > world.stored_at[-1]


def test_ends_that_nobody_takes_are_kept_and_counted():
    """The O of jobs behind a refused one is stored before the end of that has left."""
    single = (STEPS[0], 16, False)
    world = World(TINY, [single, "keys", single, single, single], delay=3, chance=1.0, host=900)
    run(world)
    assert world.stored_at[2] < world.done_at[1]


def test_throughput():
    """A tile in 100 cycles where nothing waits, the factor of its logits included."""
    world = World(TINY, [(STEPS[1], 80, True)], delay=1, chance=1.0)
    dut = run(world)
    assert dut.throughput == "a tile in 100 cycles, without waiting"
    assert len(world.qk_at) == 25 and np.diff(world.qk_at).max() <= 100


def test_kinds_are_the_jobs_regions():
    for region in Region:
        if region < Region.CODE_OUT:
            kinds, number = LoadKind, region
        else:
            kinds, number = StoreKind, region - Region.CODE_OUT
        assert kinds(number).name == region.name.removesuffix("_IN").removesuffix("_OUT")


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Controller(8)
    assert Controller(ODD).params is ODD
