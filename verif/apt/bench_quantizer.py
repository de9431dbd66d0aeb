"""Bench of ``quantizer``: real Q, K and V, and tiles that a quantizer may get wrong."""

import cocotb
import numpy as np

from golden.apt.quantizer import quantize
from golden.dit.tiles import load_tiles
from verif.apt.tensors import hard_tensors, real_tensors, row_words
from verif.common.bench import FLOWS, Bench


def element_words(tensor, params):
    words = row_words(tensor, params.vpu_lanes)
    return [{"x": word, "last": int(index == len(words) - 1)} for index, word in enumerate(words)]


def send(bench, tensors):
    """Queue tiles for both passes; returns the scale words and the words to expect."""
    params = bench.params
    scales, expected = [], []
    for tensor in tensors:
        payloads = element_words(tensor, params)
        bench.send("measure", payloads)
        bench.send("i", payloads)
        q, scale = quantize(tensor, params)
        scales.append(int(scale))
        expected += [{"q": word, "last": payload["last"]} for word, payload in
                     zip(row_words(q, params.vpu_lanes), payloads, strict=True)]
    return scales, expected


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    params = bench.params
    # At full speed all committed tiles; hard ones of one row to six, shorter than the divider.
    real = real_tensors(params, 3 * len(load_tiles()) if flow == "full_speed" else 3)
    hard = [tensor[:int(bench.rng.integers(1, 7))]
            for tensor in hard_tensors(params, bench.rng, 6)]
    assert len({int(quantize(tensor, params)[1]) for tensor in real}) > 1
    scales, expected = send(bench, [*real, *hard])
    limit = 20 * (len(expected) + 40 * len(scales))
    await bench.check("o", expected, limit=limit, distinct=100)
    await bench.check("scale", scales, limit=limit, distinct=20)
    if flow == "full_speed":
        # A word a cycle within a tile; K and V, of one size, follow each other without a gap, or
        # as fast as the divider makes reciprocals.
        times = bench.agents["i"].times
        sizes = [len(row_words(tensor, params.vpu_lanes)) for tensor in real]
        starts = np.cumsum([0, *sizes])
        for start, size in zip(starts.tolist(), sizes, strict=False):
            assert times[start + size - 1] - times[start] == size - 1, "words had to wait"
        period = max(sizes[1], params.inverse_bits + 2)
        assert times[starts[2]] - times[starts[1]] == period, "tiles had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    hard = hard_tensors(bench.params, bench.rng, 2)
    # In the first pass, while A waits to be taken, in the division, in the second pass, and with
    # results on the way. What is dropped has large scales, what follows starts with small ones.
    words = len(row_words(hard[0], bench.params.vpu_lanes))
    measured = words + 5
    for cycles in (1, 4, words, measured, measured + 1, measured + 2, measured + 3,
                   measured + 20, measured + 32, measured + 36, measured + 70):
        send(bench, hard[::-1])
        await bench.cycles(cycles)
        await bench.reset()
        scales, expected = send(bench, hard[2:8])
        await bench.check("o", expected, limit=20 * len(expected) + 800 * len(scales), distinct=4)
        await bench.check("scale", scales, limit=100, distinct=3)
        await bench.reset()
