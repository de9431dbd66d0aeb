"""Gearbox: strings of bits through every ratio of widths, rates, resets, errors."""

import numpy as np
import pytest
from amaranth import Signal
from amaranth.hdl import ResetInserter

from rtl.common.gearbox import Gearbox
from tests.sim import FLOWS, drive, run_streams, simulate


WIDTHS = [(8, 8), (8, 24), (24, 8), (8, 12), (12, 8), (10, 14), (14, 10), (3, 7), (7, 3), (1, 5),
          (5, 1), (128, 384), (9, 6)]


def cut(bits, width, count):
    return [bits >> (width * index) & ((1 << width) - 1) for index in range(count)]


def strings(dut_widths, lengths, *, pad, short_in=None, seed=0):
    """Input payloads and expected output integers of strings of so many input words."""
    width_in, width_out = dut_widths
    rng = np.random.default_rng(seed)
    inputs, outputs = [], []
    for length in lengths:
        bits, size = 0, 0
        for index in range(length):
            word = int.from_bytes(rng.bytes(width_in // 8 + 1), "little") % (1 << width_in)
            payload = {"bits": word, "last": int(index == length - 1)}
            width = width_in
            if short_in is not None:
                payload["short"] = int(rng.integers(2))
                width = short_in if payload["short"] else width_in
            inputs.append(payload)
            bits |= (word % (1 << width)) << size
            size += width
        count = -(-size // width_out) if pad else size // width_out
        words = cut(bits, width_out, count)
        # The mark is there if the last input has a part of the last word.
        if pad or size - width < count * width_out:
            words[-1] |= 1 << width_out
        outputs += words
    return inputs, outputs


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("pad", [False, True], ids=["drop", "pad"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_strings(widths, pad, flow):
    rng = np.random.default_rng(sum(widths))
    lengths = [1, 1, 2, 3, *rng.integers(1, 14, 12).tolist(), 1, 24]
    inputs, outputs = strings(widths, lengths, pad=pad, seed=widths[0])
    received, _ = run_streams(Gearbox(*widths, pad=pad), {"i": inputs}, {"o": len(outputs)},
                              flow=flow)
    assert received["o"] == outputs
    assert sum(word >> widths[1] for word in outputs) >= 2


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("pad", [False, True], ids=["drop", "pad"])
@pytest.mark.parametrize("widths, short", [((128, 32), 64), ((12, 8), 4), ((9, 8), 3),
                                           ((144, 24), 144)], ids=str)
def test_short_words(widths, short, pad, flow):
    inputs, outputs = strings(widths, [1, 2, 1, 5, 9, 30], pad=pad, short_in=short, seed=short)
    received, _ = run_streams(Gearbox(*widths, pad=pad, short_in=short), {"i": inputs},
                              {"o": len(outputs)}, flow=flow)
    assert received["o"] == outputs


@pytest.mark.parametrize("pad", [False, True], ids=["drop", "pad"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_latency_and_rate(widths, pad):
    width_in, width_out = widths
    length = 6 * width_out  # so that every string ends with a whole word
    inputs, outputs = strings(widths, [length] * 2, pad=pad)
    dut = Gearbox(*widths, pad=pad)
    received, times = run_streams(dut, {"i": inputs}, {"o": len(outputs)})
    assert received["o"] == outputs
    first = -(-width_out // width_in) - 1
    assert times["o"][0] - times["i"][first] == dut.latency == 1
    assert dut.throughput == f"{min(widths)} bits a cycle"
    narrow = times["i"] if width_in <= width_out else times["o"]
    assert np.all(np.diff(narrow) == 1)


@pytest.mark.parametrize("pad", [False, True], ids=["drop", "pad"])
def test_short_strings_need_no_cycle_of_their_own(pad):
    inputs, outputs = strings((8, 24), [3, 4, 5, 3, 7] * 4, pad=pad)
    _, times = run_streams(Gearbox(8, 24, pad=pad), {"i": inputs}, {"o": len(outputs)})
    assert np.all(np.diff(times["i"]) == 1)


@pytest.mark.parametrize("pad", [False, True], ids=["drop", "pad"])
def test_a_reset_drops_what_waits(pad):
    reset = Signal()
    inner = Gearbox(10, 14, pad=pad)
    dut = ResetInserter(reset)(inner)
    inputs, outputs = strings((10, 14), [9, 4], pad=pad, seed=3)
    checked = []

    async def testbench(ctx):
        for taken in range(1, 14):
            await drive(ctx, inner.i, inputs[:min(taken, 2)])
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
        ctx.set(inner.o.ready, 1)
        position = 0
        while len(checked) < len(outputs):
            ctx.set(inner.i.valid, int(position < len(inputs)))
            ctx.set(inner.i.payload, inputs[min(position, len(inputs) - 1)])
            *_, ready, valid, word = await ctx.tick().sample(
                inner.i.ready, inner.o.valid, inner.o.payload.as_value())
            position += ready
            if valid:
                checked.append(word)

    simulate(dut, testbench)
    assert checked == outputs


def test_errors():
    with pytest.raises(TypeError, match=r"^Width_in must be an integer of at least 1, not 0$"):
        Gearbox(0, 8)
    with pytest.raises(TypeError, match=r"^Width_out must be an integer of at least 1, not 8\.0$"):
        Gearbox(8, 8.0)
    with pytest.raises(TypeError, match=r"^Short_in must be an integer of at least 1, not True$"):
        Gearbox(8, 8, short_in=True)
    with pytest.raises(ValueError, match=r"^Short_in must be at most 8, not 9$"):
        Gearbox(8, 8, short_in=9)
