"""Bench of ``mask_decoder``: codes of real and random masks, refresh, and tails down to 1 x 1."""

import cocotb
import numpy as np

from golden.apt.mask_decoder import decode
from golden.apt.mask_encoder import encode, pack_code
from golden.dit.tiles import load_tiles
from verif.apt.masks import (
    corner_masks,
    mask_payloads,
    random_masks,
    random_thresholds,
    zero_thresholds,
)
from verif.common.bench import FLOWS, Bench


def codes(params, rng):
    """Codes of real masks, corners and random masks, and of flags at random."""
    masks = [tile.crop(params.tile_q, params.tile_k, 1).masks for tile in load_tiles()]
    real = tuple(map(np.stack, zip(*masks, strict=True)))
    return np.concatenate([
        encode(*real, random_thresholds(params, rng), params),
        encode(*corner_masks(params), zero_thresholds(params), params),
        encode(*random_masks(params, 4, rng), random_thresholds(params, rng), params),
        rng.integers(0, 4, (4, params.flags)).astype(np.uint8)])


def commands(params, count, rng):
    """Refresh bits, rows and keys; half of the tiles whole, among the others 1 x 1 and 0 x 0."""
    rows = rng.integers(0, params.tile_q + 1, count)
    keys = rng.integers(0, params.tile_k + 1, count)
    whole = rng.random(count) < 0.5
    rows[whole], keys[whole] = params.tile_q, params.tile_k
    rows[-3:], keys[-3:] = (1, 0, params.tile_q), (1, 0, 1)
    return rng.integers(0, 2, count), rows, keys


def send(bench, code, refresh, rows, keys):
    """Queue tiles; returns the words to expect. What fills up a code's last word is junk."""
    params = bench.params
    image = pack_code(code, params)
    used = (params.flags - params.row_flags - 1) % 8 + 1
    image[:, -1] |= 0xffff << 2 * used & 0xffff
    bench.send("tiles", [{"refresh": bit, "rows": row, "keys": key} for bit, row, key
                         in zip(refresh.tolist(), rows.tolist(), keys.tolist(), strict=True)])
    bench.send("i", image.ravel().tolist())
    return mask_payloads(*decode(code, refresh, rows, keys, params), params.lanes)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    code = codes(bench.params, bench.rng)
    expected = send(bench, code, *commands(bench.params, len(code), bench.rng))
    await bench.check("o", expected, limit=8 * len(expected) + 100, distinct=6)
    if flow == "full_speed":
        times = bench.agents["o"].times
        assert times[-1] - times[0] == len(expected) - 1, "words came with gaps"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    params, rng = bench.params, bench.rng
    await bench.start()
    tile = params.tile_q * params.slots
    for cycles in (1, 4, tile, 2 * tile + 1):
        code = codes(params, rng)[-4:]
        send(bench, code, *commands(params, 4, rng))
        await bench.cycles(cycles)
        await bench.reset()
    code = codes(params, rng)[-6:]
    expected = send(bench, code, *commands(params, 6, rng))
    await bench.check("o", expected, limit=8 * len(expected) + 100, distinct=4)
