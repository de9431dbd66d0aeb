"""Bench of ``mask_generator``: real probabilities and thresholds, random ones, ties and ends."""

import cocotb
import numpy as np

from golden.apt.mask_generator import NEVER, P_ONE, generate
from golden.dit.tiles import load_tiles
from verif.apt.masks import mask_payloads
from verif.common.bench import FLOWS, Bench


def real_tiles(params):
    """P' and thresholds of the committed tiles, in the design's size."""
    tiles = [tile.crop(params.tile_q, params.tile_k, 1) for tile in load_tiles()]
    return np.stack([tile.p for tile in tiles]), np.stack([tile.thresholds for tile in tiles])


def hard_tiles(params, rng):
    """P' next to its thresholds, at both ends of its range, and thresholds at theirs."""
    count = 4
    thresholds = rng.integers(1, NEVER + 1, (count, params.tile_q, 2))
    special = rng.random(thresholds.shape)
    thresholds[special < 0.2], thresholds[special > 0.8] = 1, NEVER
    near = thresholds[..., rng.integers(0, 2), None]
    p = np.clip(near + rng.integers(-1, 2, (count, params.tile_q, params.tile_k)), 0, P_ONE)
    pick = rng.integers(0, 6, p.shape)
    p = np.where(pick == 0, 0, np.where(pick == 1, P_ONE, p))
    return np.where(pick == 2, rng.integers(0, P_ONE + 1, p.shape), p), thresholds


def send(bench, p, thresholds):
    """Queue tiles; returns the words to expect."""
    params = bench.params
    # What pads a row's last word is not to be looked at: the largest P' must give 0.
    padded = np.full((*p.shape[:-1], params.vpu_words * params.vpu_lanes), P_ONE)
    padded[..., :params.tile_k] = p
    bench.send("thresholds", [{"prune": prune, "quant": quant}
                              for prune, quant in thresholds.reshape(-1, 2).tolist()])
    bench.send("i", padded.reshape(-1, params.vpu_lanes).tolist())
    hp, lp = generate(p, thresholds)
    assert hp.any() and lp.any() and not (hp | lp).all()
    return mask_payloads(hp, lp, params.vpu_lanes)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    expected = send(bench, *real_tiles(bench.params)) + send(bench, *hard_tiles(bench.params,
                                                                                bench.rng))
    await bench.check("o", expected, limit=20 * len(expected), distinct=16)
    if flow == "full_speed":
        times = bench.agents["i"].times
        assert times[-1] - times[0] == len(expected) - 1, "words had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    rows = bench.params.tile_q
    for cycles in (1, 5, 2 * rows + 3):
        send(bench, *hard_tiles(bench.params, bench.rng))
        await bench.cycles(cycles)
        await bench.reset()
    expected = send(bench, *hard_tiles(bench.params, bench.rng))
    await bench.check("o", expected, limit=20 * len(expected), distinct=8)
