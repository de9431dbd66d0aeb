"""Bench of ``data_aligner``: images of real Q, K and V, random ones, every size of tile."""

import cocotb
import numpy as np

from golden.apt.data_aligner import pack_tile
from golden.apt.dp_mac import split
from golden.apt.quantizer import quantize
from verif.apt.tensors import real_tensors, row_words
from verif.common.bench import FLOWS, Bench


def random_tiles(params, rng, rows):
    """Words and scale words; the extremes of every segment among them."""
    tiles = [(rng.integers(-params.qmax, params.qmax + 1, (count, params.head_dim)),
              int(rng.integers(1 << 15))) for count in rows]
    words, _ = tiles[0]
    words.flat[:2] = -params.qmax, params.qmax
    return tiles


def send(bench, tiles):
    """Queue tiles in both directions; returns what is to come, by stream."""
    params = bench.params
    size = 1 << params.segment_bits
    rest = params.dim_words * params.vpu_lanes - params.head_dim
    expected = {"pack_o": [], "unpack_scale": [], "unpack_o": []}
    for words, scale in tiles:
        image = pack_tile(words, scale, params)
        assert len(image) == params.image_bytes(len(words))
        beats = image.reshape(-1, params.beat_bytes).tolist()
        bench.send("pack_scale", [scale])
        bench.send("unpack_tile", [len(words)])
        bench.send("unpack_i", beats)
        expected["unpack_scale"].append(scale)
        expected["pack_o"] += [{"bytes": beat, "last": int(index == len(beats) - 1)}
                               for index, beat in enumerate(beats)]
        for segments in split(words, params):
            segments = segments % size
            plane = row_words(segments, params.vpu_lanes)
            # What pads a row's last word is not to be looked at.
            junk = bench.rng.integers(0, size, len(words) * rest)
            padded = row_words(segments, params.vpu_lanes, fill=junk)
            marks = [int(index == len(plane) - 1) for index in range(len(plane))]
            bench.send("pack_i", [{"segments": word, "last": last}
                                  for word, last in zip(padded, marks, strict=True)])
            expected["unpack_o"] += [{"segments": word, "last": last}
                                     for word, last in zip(plane, marks, strict=True)]
    return expected


async def check(bench, expected, distinct):
    size = max(map(len, expected.values()))
    limit = 20 * (size * (1 + bench.params.image_words) + 100)
    for stream, payloads in expected.items():
        least = min(distinct, len({str(payload) for payload in payloads}))
        assert least >= (2 if len(payloads) > 1 else 1)
        await bench.check(stream, payloads, limit=limit, distinct=least)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    params = bench.params
    real = []
    for tensor in real_tensors(params, 6 if flow == "full_speed" else 3):
        words, scale = quantize(tensor, params)
        real.append((words, int(scale)))
    sizes = [*range(1, 9), params.max_rows, 1, 1, *bench.rng.integers(1, 9, 6).tolist()]
    expected = send(bench, real + random_tiles(params, bench.rng, sizes))
    assert len({str(payload) for payload in expected["unpack_o"]}) > 100
    await check(bench, expected, distinct=10)
    if flow == "full_speed":
        # The first tile: a cycle a word and one for the scale, or a cycle a beat.
        rows = len(real[0][0])
        words = 1 + 2 * rows * params.image_words
        beats = params.image_bytes(rows) // params.beat_bytes
        times = bench.agents["pack_o"].times
        assert times[beats - 1] - times[0] <= max(words, beats) + 2, "packing had to wait"
        times = np.array(bench.agents["unpack_o"].times)
        taken = times[2 * rows * params.dim_words - 1] - times[0]
        assert taken <= max(words, beats) + 2, "unpacking had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    # In a scale word, in either plane, at the end of a tile.
    for cycles in (1, 4, 9, 17, 30, 55):
        send(bench, random_tiles(bench.params, bench.rng, [1, 3, 2]))
        await bench.cycles(cycles)
        await bench.reset()
    expected = send(bench, random_tiles(bench.params, bench.rng, [2, 1, 5]))
    await check(bench, expected, distinct=3)
