"""Bench of ``mask_encoder``: real masks, random ones and corners, under several thresholds."""

import cocotb
import numpy as np

from golden.apt.mask_encoder import encode, pack_code
from golden.apt.thresholds import check_thresholds
from golden.dit.tiles import load_tiles
from verif.apt.masks import (
    corner_masks,
    mask_payloads,
    random_masks,
    random_thresholds,
    zero_thresholds,
)
from verif.common.bench import FLOWS, Bench


def real_masks(params):
    """Masks of the committed tiles, in the design's size."""
    masks = [tile.crop(params.tile_q, params.tile_k, 1).masks for tile in load_tiles()]
    return tuple(map(np.stack, zip(*masks, strict=True)))


def send(bench, hp, lp, thresholds):
    """Set the thresholds and queue tiles; returns the words to expect.

    What pads a row's last word is not to be looked at: it is all ones here.
    """
    params = bench.params
    for name, value in check_thresholds(thresholds, params)._asdict().items():
        bench.set_static(name, value)
    payloads = mask_payloads(hp, lp, params.vpu_lanes)
    real = params.tile_k - (params.vpu_words - 1) * params.vpu_lanes
    padding = (1 << params.vpu_lanes) - (1 << real)
    for payload in payloads[params.vpu_words - 1::params.vpu_words]:
        payload["hp"] |= padding
        payload["lp"] |= padding
    bench.send("i", payloads)
    return pack_code(encode(hp, lp, thresholds, params), params).ravel().tolist()


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    params, rng = bench.params, bench.rng
    await bench.start(**zero_thresholds(params)._asdict())
    hp, lp = real_masks(params)
    batches = [((hp[::2], lp[::2]), zero_thresholds(params)),
               ((hp, lp), random_thresholds(params, rng)),
               (corner_masks(params), zero_thresholds(params)),
               (random_masks(params, 4, rng), random_thresholds(params, rng))]
    received = []
    for (hp, lp), thresholds in batches:
        first = len(bench.agents["i"].times)
        received += send(bench, hp, lp, thresholds)
        words = len(hp) * params.tile_q * params.vpu_words
        await bench.check("o", received, limit=8 * words + 100, distinct=3)
        times = bench.agents["i"].times[first:]
        assert len(times) == words
        if flow == "full_speed":
            assert times[-1] - times[0] == words - 1, "words had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    params, rng = bench.params, bench.rng
    await bench.start(**zero_thresholds(params)._asdict())
    tile = params.tile_q * params.vpu_words
    count = 6
    for cycles in (1, tile // 2, tile + 3, 2 * tile + 1):
        send(bench, *random_masks(params, 4, rng), zero_thresholds(params))
        await bench.cycles(cycles)
        await bench.reset()
    expected = send(bench, *random_masks(params, count, rng), random_thresholds(params, rng))
    await bench.check("o", expected, limit=8 * count * tile + 100, distinct=3)
