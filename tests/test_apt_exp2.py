"""Powers of two: model against float64, RTL against the model over every input, gates."""

import re

import numpy as np
import pytest

from golden.apt.exp2 import ONE, chords, exp2, exp2_factor, exp2_fine, table
from golden.apt.params import EXP2, AptParams
from rtl.apt import exp2_tables
from rtl.apt.exp2 import Exp2
from tests.sim import simulate


def everything(dut, inputs, gaps=None):
    """Values of ``dut`` for a sequence of inputs, one a move."""
    values = []

    async def testbench(ctx):
        for u in [*inputs, *[0] * (dut.stages - 1)]:
            while gaps is not None and next(gaps):
                ctx.set(dut.u, 0x555)
                ctx.set(dut.advance, 0)
                await ctx.tick()
            ctx.set(dut.u, u)
            ctx.set(dut.advance, 1)
            await ctx.tick()
            values.append(ctx.get(dut.value))

    simulate(dut, testbench, cycles=200_000)
    return values[dut.stages - 1:]


@pytest.mark.parametrize("style", EXP2)
def test_model_is_close(style):
    u = np.arange(1 << 16)
    value = exp2(u, AptParams(exp2=style))
    exact = ONE * 2.0 ** (-u / 256)
    assert np.abs(value - exact).max() < {"pwl16": 5, "table": 1}[style]
    assert (value[1 << 12:] == 0).all() and value.max() <= ONE and (np.diff(value) <= 0).all()
    # Relative to the value before the shift, the shift adds half of the last place at the most.
    assert (np.abs(value - exact) <= 4.5 * 2.0 ** -(u >> 8) + 0.5).all()


def test_model_of_the_fine_kind_is_close():
    u = np.arange(-5000, 5 << 12)
    mantissa, places = exp2_fine(u)
    assert mantissa.min() >= 1 << 14 and mantissa.max() <= ONE
    exact = 2.0 ** (-u / 4096)
    assert np.abs(mantissa * 2.0 ** (-15 - places) / exact - 1).max() < 2 ** -12
    u = np.arange(18 << 12)
    assert np.abs(exp2_factor(u) - ONE * 2.0 ** (-u / 4096)).max() < 5
    # On the grid of eight fraction bits the two kinds are the same chords.
    grid = np.arange(1 << 13)
    assert np.array_equal(exp2_factor(grid << 4), exp2(grid, AptParams(exp2="pwl16")))


def test_models_ends_and_errors():
    for style in EXP2:
        params = AptParams(exp2=style)
        first = int(exp2(0, params))
        assert first == (ONE if style == "table" else chords()[0][0])
        assert exp2([15 << 8, 16 << 8, 1 << 40], params).tolist() == [1, 0, 0]
        assert exp2(np.array([], int), params).tolist() == []
        with pytest.raises(ValueError, match=r"^Exponents must not be negative, not -1$"):
            exp2([0, -1], params)


def test_constants_are_those_of_the_model():
    assert exp2_tables.chords() == chords() and exp2_tables.table() == table()
    values = [int(value) for value in exp2(np.arange(256), AptParams())]
    centres, distances = exp2_tables.halves()
    assert len(centres) == 32 and len(distances) == 64
    for fraction, want in enumerate(values):
        centre = centres[fraction >> 3]
        step = fraction & 3
        chord = 4 * (fraction >> 4)
        total = (centre - distances[chord + step] - 1 if fraction & 4
                 else centre + distances[chord + 3 - step])
        assert total >> exp2_tables.GUARD_BITS == want


@pytest.mark.parametrize("style", EXP2)
def test_every_exponent(style):
    params = AptParams(exp2=style)
    u = range(1 << 16)
    assert everything(Exp2(params), u) == exp2(np.arange(1 << 16), params).tolist()


def test_every_fine_fraction():
    u = list(range(1 << 12))
    assert everything(Exp2(AptParams(), 12), u) == exp2_fine(u)[0].tolist()


@pytest.mark.parametrize("bits", [8, 12])
def test_registers_hold_without_advance(bits):
    rng = np.random.default_rng(0)
    u = rng.integers(0, 1 << 12, 300).tolist()
    want = exp2(u, AptParams()) if bits == 8 else exp2_fine(u)[0]
    gaps = iter(lambda: bool(rng.random() < 0.5), None)
    dut = Exp2(AptParams(), bits)
    assert everything(dut, u, gaps) == want.tolist()
    assert dut.stages == dut.latency == 2 and dut.throughput == "one power a cycle"


def test_errors():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Exp2(8)
    with pytest.raises(ValueError, match=f"^{re.escape('Fraction bits must be 8 or 12, not 9')}$"):
        Exp2(AptParams(), 9)
