"""Mask decoder: model against the equations, RTL against the model, latency, stalls, errors."""

import itertools
import re
import time

import numpy as np
import pytest

from golden.apt.mask_decoder import decode
from golden.apt.mask_encoder import encode, pack_code
from golden.apt.params import AptParams
from rtl.apt.mask_decoder import MaskDecoder
from tests.sim import FLOWS, collect, drive, run_streams, simulate
from verif.apt.masks import corner_masks, mask_payloads, random_masks, zero_thresholds


def make(tile_q, tile_k, lanes, **fields):
    return AptParams(lanes=lanes, window_qk=1, window_pv=1, tile_q=tile_q, tile_k=tile_k, **fields)


#: At full rate: loading takes no longer than emitting.
PARAMS = [
    make(8, 32, 16),                                       # two blocks a word
    make(16, 16, 16, codec="rowcol"),                      # a word a row, as in the paper's tile
    make(12, 32, 16, codec="rowcol", rowcol_decode="and"),
    make(6, 10, 3, block_rows=3, block_cols=5),            # blocks across words
    make(6, 10, 3, codec="rowcol"),                        # short sections
    make(6, 10, 4, codec="rowcol", rowcol_decode="and"),
    make(7, 11, 4, block_rows=4, block_cols=4),            # short edges
    make(8, 20, 6, block_rows=2, block_cols=7),            # blocks wider than a word
    make(11, 26, 4, block_rows=4, block_cols=8),           # several whole words a block
    make(5, 12, 4, block_rows=1, block_cols=4),
    make(4, 9, 8, block_rows=200, block_cols=3),           # a block row is the tile
    make(12, 16, 8, block_rows=4, block_cols=1),           # columns, cut in blocks
]
#: More code than can be loaded meanwhile: `o` has gaps, and nothing may be lost.
DENSE_PARAMS = [
    make(3, 13, 6, block_rows=1, block_cols=1),
    make(2, 32, 16, codec="rowcol"),
    make(7, 13, 6, block_rows=2, block_cols=7),
]


def ids(params):
    shape = ("x".join(map(str, params.flag_block)) if params.codec == "block"
             else f"rowcol-{params.rowcol_decode}")
    return f"{params.tile_q}x{params.tile_k}by{params.lanes}-{shape}"


def reference(code, refresh, rows, keys, params):
    """The equations, one element at a time."""
    hp, lp = [], []
    for row in range(params.tile_q):
        hp_row, lp_row = [], []
        for key in range(params.tile_k):
            if params.codec == "block":
                wide = -(-params.tile_k // params.block_cols)
                pair = code[row // params.block_rows * wide + key // params.block_cols]
            elif params.rowcol_decode == "or":
                pair = code[row] | code[params.tile_q + key]
            else:
                pair = code[row] & code[params.tile_q + key]
            high, valid = bool(pair & 1), bool(pair & 2)
            inside = row < rows and key < keys
            hp_row.append(inside and high)
            lp_row.append(inside and (valid or bool(refresh)) and not high)
        hp.append(hp_row)
        lp.append(lp_row)
    return hp, lp


def commands(params, count, seed):
    """Refresh bits, rows and keys: whole tiles, 1 x 1, nothing, and anything between."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, params.tile_q + 1, count)
    keys = rng.integers(0, params.tile_k + 1, count)
    rows[::3], keys[::2] = params.tile_q, params.tile_k
    rows[1:3], keys[1] = 1, 1
    return rng.integers(0, 2, count), rows, keys


def codes(params, count, seed):
    """Codes with every flag pair; those of HP without V are legal too, by their thresholds."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet([0.5] * 4, count)
    return np.stack([rng.choice(4, params.flags, p=weight) for weight in weights]).astype(np.uint8)


@pytest.mark.parametrize("params", PARAMS + DENSE_PARAMS, ids=ids)
def test_model_matches_the_equations(params):
    code, (refresh, rows, keys) = codes(params, 24, 1), commands(params, 24, 1)
    hp, lp = decode(code, refresh, rows, keys, params)
    assert hp.any() and lp.any() and not (hp & lp).any()
    for tile in range(24):
        want = reference(code[tile].tolist(), refresh[tile], rows[tile], keys[tile], params)
        assert (hp[tile].tolist(), lp[tile].tolist()) == want


@pytest.mark.parametrize("params", PARAMS[:2] + PARAMS[3:5] + DENSE_PARAMS, ids=ids)
def test_conservative_with_thresholds_0(params):
    """Nothing is lost or demoted by block flags, or by row and column flags that are or-ed."""
    rng = np.random.default_rng(2)
    for hp, lp in (corner_masks(params), random_masks(params, 40, rng)):
        code = encode(hp, lp, zero_thresholds(params), params)
        got_hp, got_lp = decode(code, 0, params.tile_q, params.tile_k, params)
        assert (got_hp >= hp).all() and ((got_hp | got_lp) >= (hp | lp)).all()


def test_and_of_rows_and_columns_is_conservative_too():
    params = PARAMS[2]
    hp, lp = random_masks(params, 40, np.random.default_rng(3))
    code = encode(hp, lp, zero_thresholds(params), params)
    got_hp, got_lp = decode(code, 0, params.tile_q, params.tile_k, params)
    assert (got_hp >= hp).all() and ((got_hp | got_lp) >= (hp | lp)).all()
    assert not (got_hp | got_lp).all()


@pytest.mark.parametrize("params", [
    make(2, 3, 2, block_rows=2, block_cols=2), make(2, 3, 2, codec="rowcol")], ids=ids)
def test_model_of_every_small_code(params):
    code = np.array(list(itertools.product(range(4), repeat=params.flags)), np.uint8)
    for refresh, rows, keys in itertools.product((0, 1), range(3), range(4)):
        hp, lp = decode(code, refresh, rows, keys, params)
        for tile in range(0, len(code), 1 if len(code) < 100 else 11):
            want = reference(code[tile].tolist(), refresh, rows, keys, params)
            assert (hp[tile].tolist(), lp[tile].tolist()) == want


def run(params, code, refresh, rows, keys, flow="full_speed"):
    hp, lp = decode(code, refresh, rows, keys, params)
    want = [word["hp"] | word["lp"] << params.lanes
            for word in mask_payloads(hp, lp, params.lanes)]
    assert len(set(want)) > 1
    image = pack_code(code, params)
    # What fills up the last word of a tile is not to be looked at.
    used = (params.flags - params.row_flags - 1) % 8 + 1
    image[:, -1] |= 0xffff << 2 * used & 0xffff
    dut = MaskDecoder(params)
    tiles = [{"refresh": bit, "rows": row, "keys": key} for bit, row, key
             in zip(refresh.tolist(), rows.tolist(), keys.tolist(), strict=True)]
    received, times = run_streams(dut, {"tiles": tiles, "i": image.ravel().tolist()},
                                  {"o": len(want)}, flow=flow)
    assert received["o"] == want
    return dut, times


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", PARAMS + DENSE_PARAMS, ids=ids)
def test_rtl_matches_model(params, flow):
    run(params, codes(params, 5, 4), *commands(params, 5, 4), flow=flow)


@pytest.mark.parametrize("params", [PARAMS[0], PARAMS[4]], ids=ids)
def test_rtl_at_every_edge(params):
    rows, keys = map(np.array, zip(*itertools.product(
        {0, 1, params.tile_q - 1, params.tile_q}, range(params.tile_k + 1)), strict=True))
    keep = np.arange(0, len(rows), 1 if len(rows) < 60 else 3)
    rows, keys = rows[keep], keys[keep]
    run(params, codes(params, len(rows), 5), np.arange(len(rows)) % 2, rows, keys)


@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_latency_and_throughput(params):
    dut, times = run(params, codes(params, 5, 6), *commands(params, 5, 6))
    assert dut.params is params
    assert dut.throughput == f"{params.lanes} elements a cycle"
    count = 5 * params.tile_q * params.slots
    assert times["o"] == list(range(times["o"][0], times["o"][0] + count))
    assert times["tiles"][0] == 1
    assert times["o"][0] == 1 + dut.latency  # the first word is offered in cycle 1
    assert dut.latency >= 2 + params.row_code_words


@pytest.mark.parametrize("params", [PARAMS[0], PARAMS[4]], ids=ids)
def test_loads_on_while_the_output_is_stalled(params):
    """The decoder offers before it is asked, and loads the next block row (tile) meanwhile."""
    dut, times = MaskDecoder(params), []
    code = codes(params, 4, 9)
    image = pack_code(code, params).ravel().tolist()
    per_word = 8 // params.flag_grid[1] if params.codec == "block" else 0

    async def source(ctx):
        await drive(ctx, dut.i, image, times=times)

    async def sink(ctx):
        ctx.set(dut.tiles.payload, {"rows": params.tile_q, "keys": params.tile_k, "refresh": 1})
        ctx.set(dut.tiles.valid, 1)
        await ctx.tick().repeat(60)
        assert ctx.get(dut.o.valid) and not ctx.get(dut.i.ready)
        # Two halves of the buffer: block rows of a word, or whole tiles.
        assert len(times) == (2 // per_word if per_word else 2 * params.code_words)
        await collect(ctx, dut.o, 4 * params.tile_q * params.slots)

    simulate(dut, source, sink)


def test_model_is_fast():
    rng = np.random.default_rng(8)
    for params in (AptParams(tile_k=64), AptParams(tile_k=64, codec="rowcol")):
        code = rng.integers(0, 4, params.flags).astype(np.uint8)

        def once(code=code, params=params):
            started = time.perf_counter()
            decode(code, 1, 60, 50, params)
            return time.perf_counter() - started

        assert min(once() for _ in range(20)) < 1e-3


SMALL = make(2, 3, 2, block_rows=1, block_cols=2)


@pytest.mark.parametrize("arguments, error, message", [
    ((np.zeros(4), 0, 2, 3), TypeError, "Code must have an integer dtype, not float64"),
    ((np.zeros(3, int), 0, 2, 3), ValueError, "Code must have 4 flag pairs, not (3,)"),
    ((np.full(4, 5), 0, 2, 3), ValueError, "Code must consist of flag pairs 0..3, not 5"),
    ((np.zeros(4, int), 2, 2, 3), ValueError, "Refresh must be in 0..1, not 2"),
    ((np.zeros(4, int), 0, 3, 3), ValueError, "Rows must be in 0..2, not 3"),
    ((np.zeros(4, int), 0, 2, -1), ValueError, "Keys must be in 0..3, not -1"),
    ((np.zeros(4, int), 0, 2.0, 1), TypeError, "Value must have an integer dtype, not float64"),
])
def test_model_refuses(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        decode(*arguments, SMALL)


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not None$"):
        MaskDecoder(None)
