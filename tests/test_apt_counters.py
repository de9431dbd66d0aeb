"""Counters of the engine: every event of every cycle, cleared at once."""

import numpy as np

from golden.apt.params import AptParams
from rtl.apt.counters import COUNTER_BITS, COUNTERS, Counters
from tests.sim import simulate


def test_counters_add_up_what_happens_in_a_cycle():
    dut = Counters(AptParams())
    assert (dut.latency, dut.throughput) == (2, "every event of every cycle")
    rng = np.random.default_rng(1)

    async def testbench(ctx):
        want = dict.fromkeys(COUNTERS, 0)
        before, before_that = dict(want), dict(want)
        for cycle in range(300):
            clear = cycle in (7, 8, 150)
            count = {name: int(rng.integers(most + 1)) if cycle % 5 else most
                     for name, most in COUNTERS.items()}
            assert dict(zip(COUNTERS, map(int, ctx.get(dut.values)), strict=True)) == before_that
            ctx.set(dut.clear, clear)
            ctx.set(dut.count, count)
            before_that = dict.fromkeys(COUNTERS, 0) if clear else before
            before = dict.fromkeys(COUNTERS, 0) if clear else {
                name: (before[name] + count[name]) % (1 << COUNTER_BITS) for name in COUNTERS}
            await ctx.tick()

    simulate(dut, testbench)


def test_counters_wrap():
    dut = Counters(AptParams())

    async def testbench(ctx):
        ctx.set(dut.values[0], (1 << COUNTER_BITS) - 1)
        ctx.set(dut.count, {"cycles": 1})
        await ctx.tick().repeat(2)
        assert ctx.get(dut.values[0]) == 0

    simulate(dut, testbench)
