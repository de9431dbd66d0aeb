"""Every input of small widths: hardware helper == NumPy twin == exact rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from amaranth import Module, Signal, signed
from amaranth.sim import Simulator

import golden.common.arith as golden_arith
import rtl.common.arith as rtl_arith


def domain(width):
    return np.arange(-(1 << (width - 1)), 1 << (width - 1))


def evaluate(build, width):
    """Value of ``build(x)`` for every ``signed(width)`` x, from the simulator."""
    x = Signal(signed(width))
    built = build(x)
    y = Signal.like(built)
    m = Module()
    m.d.comb += y.eq(built)
    result = []

    async def testbench(ctx):
        for value in domain(width):
            ctx.set(x, int(value))
            result.append(ctx.get(y))

    sim = Simulator(m)
    sim.add_testbench(testbench)
    sim.run()
    return result


ROUNDINGS = {
    "round_shift_half_even": round,  # Python rounds ties to even
    "round_shift_half_up": lambda x: math.floor(x + Fraction(1, 2)),
}


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("width", [2, 5, 8])
@pytest.mark.parametrize("shift", [0, 1, 2, 3, 6, 9, 11])
def test_rounding(name, width, shift):
    exact = [ROUNDINGS[name](Fraction(int(x), 1 << shift)) for x in domain(width)]
    assert getattr(golden_arith, name)(domain(width), shift).tolist() == exact
    assert evaluate(lambda x: getattr(rtl_arith, name)(x, shift), width) == exact


LIMITS = {
    "saturate": lambda w: (-(1 << (w - 1)), (1 << (w - 1)) - 1),
    "saturate_symmetric": lambda w: (-(1 << (w - 1)) + 1, (1 << (w - 1)) - 1),
    "saturate_unsigned": lambda w: (0, (1 << w) - 1),
}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("width", [2, 5, 8])
@pytest.mark.parametrize("target", [2, 3, 4, 7, 8, 9])
def test_saturation(name, width, target):
    low, high = LIMITS[name](target)
    exact = [min(max(int(x), low), high) for x in domain(width)]
    assert getattr(golden_arith, name)(domain(width), target).tolist() == exact
    assert evaluate(lambda x: getattr(rtl_arith, name)(x, target), width) == exact


def test_saturate_to_one_bit():
    exact = [min(max(int(x), -1), 0) for x in domain(4)]
    assert golden_arith.saturate(domain(4), 1).tolist() == exact
    assert evaluate(lambda x: rtl_arith.saturate(x, 1), 4) == exact


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_tree_sum_is_exact_and_no_wider_than_its_depth(count):
    x = Signal(signed(4))
    total = rtl_arith.tree_sum([x] * count)
    assert len(total) == 4 + math.ceil(math.log2(count))
    assert evaluate(lambda x: rtl_arith.tree_sum([x] * count), 4) == [
        count * int(value) for value in domain(4)]


def test_tree_sum_of_nothing():
    with pytest.raises(ValueError, match=r"^Values must not be empty$"):
        rtl_arith.tree_sum([])


@pytest.mark.parametrize("name, argument", [(name, 1) for name in ROUNDINGS]
                         + [(name, 4) for name in LIMITS])
def test_hardware_refuses_an_unsigned_operand(name, argument):
    with pytest.raises(TypeError, match=r"^Value must be signed, not unsigned\(8\)$"):
        getattr(rtl_arith, name)(Signal(8), argument)


@pytest.mark.parametrize("shift", [-1, 1.0, True])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_bad_shift(name, shift):
    message = rf"^Shift must be a non-negative integer, not {shift!r}$"
    with pytest.raises(TypeError, match=message):
        getattr(rtl_arith, name)(Signal(signed(8)), shift)
    with pytest.raises(TypeError, match=message):
        getattr(golden_arith, name)(np.array([1]), shift)


@pytest.mark.parametrize("name", [*ROUNDINGS, *LIMITS])
def test_model_refuses_floats(name):
    with pytest.raises(TypeError, match=r"^Value must have an integer dtype, not float64$"):
        getattr(golden_arith, name)(np.array([1.0]), 2)


def test_model_refuses_what_int64_cannot_hold():
    with pytest.raises(ValueError, match=r"^Value must be below 2\*\*63, not 9223372036854775808$"):
        golden_arith.as_int64(np.array([1 << 63], dtype=np.uint64))
