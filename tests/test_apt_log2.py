"""Logarithms: models against exact arithmetic, RTL against the models."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from golden.apt import log2 as model
from golden.apt.log2 import log2, log2_fine
from golden.apt.params import AptParams
from rtl.apt import log2 as rtl
from rtl.apt.log2 import Log2
from rtl.apt.log2_fine import Log2Fine
from tests.sim import simulate


def numbers(count, seed, bits=32):
    """Random numbers of every length, powers of two and their neighbours."""
    rng = np.random.default_rng(seed)
    edges = {(1 << k) + d for k in range(bits) for d in (-1, 0, 1)} | {(1 << bits) - 1}
    lengths = rng.integers(1, bits + 1, count)
    some = [int(rng.integers(1 << (length - 1), 1 << length)) for length in lengths.tolist()]
    return some + sorted(value for value in edges if 0 < value < 1 << bits)


def test_table():
    assert model.table() == rtl.table() and model.table()[255] == 255
    assert all(abs(value - 256 * math.log2(1 + j / 256)) <= 0.5
               for j, value in enumerate(model.table()))


def test_model_is_close():
    values = numbers(3000, 0, 62)
    exact = np.array([math.log2(value) for value in values])
    # Half a step by the table, and what is cut off below eight bits: under log2(e) of a step.
    error = log2(np.array(values)) / 256 - exact
    assert error.max() <= 0.5 / 256 + 1e-9 and error.min() >= -(0.5 + 1.45) / 256
    fine = log2_fine(np.array(values)) / 4096 - exact
    # One step by rounding down, and 16 bits of mantissa cut off thirteen times.
    assert fine.max() <= 1e-9 and fine.min() > -2 / 4096
    for value in range(1, 300):
        assert abs(int(log2(value)) - 256 * math.log2(value)) <= 2


@pytest.mark.parametrize("value", [1, 2, 3, 5, 1000, 2015 ** 2, (1 << 32) - 1])
def test_fine_model_against_whole_numbers(value):
    """``2**(r / 4096) <= value < 2**((r + 2) / 4096)``, in integers alone."""
    result = int(log2_fine(value))
    assert Fraction(2) ** result <= Fraction(value) ** 4096 < Fraction(2) ** (result + 2)


def test_model_errors():
    for function in (log2, log2_fine):
        with pytest.raises(ValueError, match=r"^Logarithms are of positive numbers, not 0$"):
            function([1, 0])


def logarithms(dut, values, seed=None):
    rng = np.random.default_rng(seed)
    results = []

    async def testbench(ctx):
        for value in [*values, *[0] * (dut.stages - 1)]:
            while seed is not None and rng.random() < 0.5:
                ctx.set(dut.value, 1)
                ctx.set(dut.advance, 0)
                await ctx.tick()
            ctx.set(dut.value, value)
            ctx.set(dut.advance, 1)
            await ctx.tick()
            results.append(ctx.get(dut.log2))

    simulate(dut, testbench, cycles=100_000)
    return results[dut.stages - 1:]


@pytest.mark.parametrize("bits", [2, 5, 8, 9, 13])
def test_every_number_of_few_bits(bits):
    values = range(1, 1 << bits)
    dut = Log2(AptParams(), bits)
    assert logarithms(dut, [0, *values]) == [0, *log2(np.array(values)).tolist()]


@pytest.mark.parametrize("seed", [None, 1])
def test_numbers_of_32_bits(seed):
    values = numbers(2000, 2)
    dut = Log2(AptParams())
    assert logarithms(dut, values, seed) == log2(np.array(values)).tolist()
    assert dut.stages == dut.latency == 3 and dut.throughput == "one logarithm a cycle"


def serial(values, factors):
    """Logarithms one after the other as fast as they go, and products in between."""
    dut = Log2Fine(AptParams())
    results, cycles, products = [], [], []

    async def testbench(ctx):
        for value in values:
            ctx.set(dut.value, value)
            ctx.set(dut.start, 1)
            count = 0
            while not count or not ctx.get(dut.done):
                await ctx.tick()
                # A start while busy is not looked at, nor are value and factors.
                ctx.set(dut.value, 12345)
                ctx.set(dut.a, 54321)
                count += 1
                assert count < 40
            results.append(ctx.get(dut.log2))
            cycles.append(count)
            ctx.set(dut.start, 0)
            if factors:
                for a, b in factors:
                    ctx.set(dut.a, a)
                    ctx.set(dut.b, b)
                    await ctx.tick()
                    products.append(ctx.get(dut.product))
                    assert not ctx.get(dut.done) and ctx.get(dut.log2) == results[-1]

    simulate(dut, testbench, cycles=100_000)
    assert set(cycles) == {dut.latency} and dut.latency == 14
    assert dut.throughput == "one logarithm every 14 cycles"
    return results, products


def test_fine_logarithms():
    values = [*range(1, 1200), *numbers(500, 3)]
    results, _ = serial([0, *values], [])
    assert results == [0, *log2_fine(np.array(values)).tolist()]


def test_multiplier_on_loan():
    factors = [(0xffff, 0xffff), (3, 0), (0x8000, 2), (12345, 54321)]
    values = numbers(20, 4)
    results, products = serial(values, factors)
    assert results == log2_fine(np.array(values)).tolist()
    assert products == [a * b for a, b in factors] * len(values)


def test_errors():
    for block in (Log2, Log2Fine):
        with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
            block(8)
    with pytest.raises(ValueError, match=f"^{re.escape('Value bits must be in 2..32, not 33')}$"):
        Log2(AptParams(), 33)
