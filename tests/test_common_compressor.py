"""The carry-save compressor: every column shape sums right, with the fewest levels."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from rtl.common.compressor import Compressor, dadda_depth, reduced_heights


@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("heights", [
    [3], [1, 2], [0, 0, 5, 1], [7, 7, 7, 7], [1, 9, 0, 4, 2], [19, 3, 1, 0, 0, 0]], ids=str)
def test_compressor(heights, levels):
    width = len(heights)
    bits = [[Signal(name=f"bit_{weight}_{k}") for k in range(height)]
            for weight, height in enumerate(heights)]
    m = Module()
    compressor = Compressor(m, width)
    for weight, column in enumerate(bits):
        for bit in column:
            compressor.add(weight, bit)
    for _ in range(levels):
        expected = reduced_heights(compressor.heights)
        compressor.reduce()
        assert compressor.heights == expected
    total = Signal(width)
    m.d.comb += total.eq(compressor.total())
    assert max(compressor.heights) <= 2
    rng = random.Random(7)

    async def testbench(ctx):
        for probability in [0, 1] + 30 * [0.5]:
            value = 0
            for weight, column in enumerate(bits):
                for bit in column:
                    one = rng.random() < probability
                    ctx.set(bit, int(one))
                    value += one << weight
            assert ctx.get(total) == value % (1 << width)

    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()


def test_dadda_depth():
    assert [dadda_depth(height) for height in (1, 2, 3, 4, 6, 7, 9, 13, 19, 97)] == [
        0, 0, 1, 2, 3, 4, 4, 5, 6, 11]
