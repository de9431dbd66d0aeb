"""Mask encoder: model against the equations, RTL against the model, latency, stalls, errors."""

import itertools
import re
import time

import numpy as np
import pytest

from golden.apt.mask_decoder import decode
from golden.apt.mask_encoder import count, encode, pack_code, unpack_code
from golden.apt.mask_generator import generate
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds, RowColThresholds, check_thresholds
from rtl.apt.mask_encoder import MaskEncoder
from tests.sim import FLOWS, coin, collect, drive, run_streams, simulate
from verif.apt.masks import (
    corner_masks,
    mask_payloads,
    random_masks,
    random_thresholds,
    zero_thresholds,
)


def make(tile_q, tile_k, vpu_lanes, **fields):
    return AptParams(lanes=2, window_qk=1, window_pv=1, tile_q=tile_q, tile_k=tile_k,
                     vpu_lanes=vpu_lanes, **fields)


#: At full rate: words and code keep up with each other.
PARAMS = [
    make(8, 32, 16),                                       # two blocks a word
    make(16, 16, 16, codec="rowcol"),                      # a word a row, as in the paper's tile
    make(12, 32, 16, codec="rowcol"),                      # a short word of row flags
    make(6, 10, 5, block_rows=3, block_cols=5),
    make(6, 10, 5, codec="rowcol"),                        # short sections, lanes across words
    make(7, 11, 5, block_rows=3, block_cols=4),            # blocks across words, short edges
    make(9, 20, 6, block_rows=2, block_cols=7),            # blocks wider than a word
    make(11, 26, 4, block_rows=4, block_cols=8),           # several whole words a block
    make(5, 12, 4, block_rows=1, block_cols=4),            # no counter memory
    make(9, 14, 3, codec="rowcol"),
    make(4, 9, 8, block_rows=200, block_cols=3),           # a block row is the tile
    make(12, 16, 8, block_rows=4, block_cols=1),           # columns, cut in blocks
]
#: More code than a cycle a word can carry: `i` must wait, and nothing may be lost.
DENSE_PARAMS = [
    make(3, 13, 6, block_rows=1, block_cols=1),
    make(2, 32, 16, codec="rowcol"),
    make(7, 13, 16, block_rows=3, block_cols=2),
]


def ids(params):
    shape = "x".join(map(str, params.flag_block)) if params.codec == "block" else "rowcol"
    return f"{params.tile_q}x{params.tile_k}by{params.vpu_lanes}-{shape}"


def reference(hp, lp, thresholds, params):
    """The equations, with loops over groups; then the image as one long little endian number."""
    def flags(rows, cols, k_hp, k_v):
        counts = [0, 0]
        for row, col in itertools.product(rows, cols):
            counts[0] += int(hp[row][col])
            counts[1] += int(hp[row][col] or lp[row][col])
        return int(counts[0] > k_hp), int(counts[1] > k_v)

    all_rows, all_cols = range(params.tile_q), range(params.tile_k)
    if params.codec == "rowcol":
        k = thresholds
        sections = [[flags([row], all_cols, k.k_row_hp, k.k_row_v) for row in all_rows],
                    [flags(all_rows, [col], k.k_col_hp, k.k_col_v) for col in all_cols]]
    else:
        high, wide = params.block_rows, params.block_cols
        sections = [[flags(all_rows[row:row + high], all_cols[col:col + wide], *thresholds)
                     for row in all_rows[::high] for col in all_cols[::wide]]]
    words = []
    for section in sections:
        image = sum((pair[0] + 2 * pair[1]) << (2 * n) for n, pair in enumerate(section))
        words += [image >> (16 * n) & 0xffff for n in range(-(-len(section) // 8))]
    return [pair[0] + 2 * pair[1] for section in sections for pair in section], words


@pytest.mark.parametrize("params", PARAMS + DENSE_PARAMS, ids=ids)
def test_model_matches_the_equations(params):
    rng = np.random.default_rng(1)
    hp, lp = map(np.concatenate, zip(corner_masks(params), random_masks(params, 12, rng),
                                     strict=True))
    seen = set()
    for thresholds in (zero_thresholds(params), random_thresholds(params, rng)):
        code = encode(hp, lp, thresholds, params)
        image = pack_code(code, params)
        assert code.shape == (len(hp), params.flags)
        assert image.shape == (len(hp), params.code_words) and image.dtype == np.uint16
        assert (unpack_code(image, params) == code).all()
        for tile in range(len(hp)):
            want, words = reference(hp[tile].tolist(), lp[tile].tolist(), thresholds, params)
            assert code[tile].tolist() == want and image[tile].tolist() == words
        seen |= set(code.ravel().tolist())
    assert seen >= {0, 2, 3}


@pytest.mark.parametrize("params", [
    make(3, 3, 2, block_rows=2, block_cols=2), make(3, 3, 2, codec="rowcol")], ids=ids)
def test_model_of_every_small_tile(params):
    states = np.array(list(itertools.product(range(3), repeat=9)), np.uint8).reshape(-1, 3, 3)
    hp, lp = states == 2, states == 1
    valid = hp | lp
    row, col = valid.sum(2), valid.sum(1)
    for k in range(4):
        if params.codec == "rowcol":
            code = encode(hp, lp, RowColThresholds(k_row_v=k, k_col_v=k), params)
            want = np.concatenate([row > k, col > k], axis=1)
        else:
            code = encode(hp, lp, BlockThresholds(k_v=k), params)
            want = np.stack([valid[:, :2, :2].sum((1, 2)), valid[:, :2, 2:].sum((1, 2)),
                             valid[:, 2:, :2].sum((1, 2)), valid[:, 2:, 2:].sum((1, 2))], 1) > k
        assert ((code >> 1).astype(bool) == want).all()
    # With thresholds 0 the decoded mask contains the mask, plane by plane.
    got_hp, got_lp = decode(encode(hp, lp, zero_thresholds(params), params), 0, 3, 3, params)
    assert (got_hp >= hp).all() and ((got_hp | got_lp) >= valid).all()
    # And a threshold that is the full count never flags.
    top = (RowColThresholds(3, 3, 3, 3) if params.codec == "rowcol" else BlockThresholds(4, 4))
    assert not encode(hp, lp, top, params).any()


def test_image_by_hand():
    params = make(3, 9, 4, codec="rowcol")
    assert (params.flags, params.row_code_words, params.code_words) == (12, 1, 3)
    code = np.array([1, 0, 3, 2, 0, 0, 0, 0, 0, 0, 1, 3], np.uint8)
    assert pack_code(code, params).tolist() == [0b110001, 0b01_00000000000010, 0b11]
    params = make(4, 12, 4, block_rows=2, block_cols=4)
    assert (params.flags, params.code_words) == (6, 1)
    assert pack_code(np.array([3, 0, 1, 2, 0, 3]), params).tolist() == [0b11_00_10_01_00_11]


def run(params, seed, tiles=6, flow="full_speed", corners=False):
    rng = np.random.default_rng(seed)
    hp, lp = random_masks(params, tiles, rng)
    if corners:
        hp, lp = map(np.concatenate, zip(corner_masks(params), (hp, lp), strict=True))
    thresholds = random_thresholds(params, rng)
    payloads = mask_payloads(hp, lp, params.vpu_lanes)
    padding = params.vpu_words * params.vpu_lanes - params.tile_k
    for payload in payloads[params.vpu_words - 1::params.vpu_words]:
        # What pads a row's last word is not to be looked at.
        junk = ((1 << padding) - 1) << (params.vpu_lanes - padding)
        payload["hp"] |= junk
    want = pack_code(encode(hp, lp, thresholds, params), params).ravel().tolist()
    assert len(set(want)) > 1
    dut = MaskEncoder(params)
    received, times = run_streams(dut, {"i": payloads}, {"o": len(want)}, flow=flow,
                                  statics=thresholds._asdict())
    assert received["o"] == want
    return dut, times


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", PARAMS + DENSE_PARAMS, ids=ids)
def test_rtl_matches_model(params, flow):
    run(params, seed=2, tiles=4, flow=flow)


@pytest.mark.parametrize("params", PARAMS[1:4], ids=ids)
def test_rtl_corners(params):
    run(params, seed=3, corners=True)


@pytest.mark.parametrize("params", [
    make(2, 3, 2, block_rows=2, block_cols=2), make(2, 3, 2, codec="rowcol")], ids=ids)
def test_rtl_of_every_small_tile(params):
    states = np.array(list(itertools.product(range(3), repeat=6)), np.uint8).reshape(-1, 2, 3)
    hp, lp = states == 2, states == 1
    for thresholds in ((RowColThresholds(0, 1, 1, 0),) if params.codec == "rowcol"
                       else (BlockThresholds(1, 2),)):
        want = pack_code(encode(hp, lp, thresholds, params), params).ravel().tolist()
        received, _ = run_streams(MaskEncoder(params), {"i": mask_payloads(hp, lp, 2)},
                                  {"o": len(want)}, statics=thresholds._asdict())
        assert received["o"] == want


@pytest.mark.parametrize("full", [0, 1])
def test_rtl_at_the_full_count(full):
    """The largest threshold is never exceeded; one below it is, by a full group alone."""
    for params in (make(4, 8, 4, block_rows=2, block_cols=4), make(4, 7, 4, codec="rowcol")):
        hp = np.ones((3, params.tile_q, params.tile_k), bool)
        hp[1, 0, 0] = False
        if params.codec == "rowcol":
            tops = RowColThresholds(params.tile_k, params.tile_k, params.tile_q, params.tile_q)
        else:
            tops = BlockThresholds(8, 8)
        thresholds = type(tops)(*(top - full for top in tops))
        want = pack_code(encode(hp, ~hp & False, thresholds, params), params).ravel().tolist()
        assert any(want) == bool(full)
        received, _ = run_streams(MaskEncoder(params), {"i": mask_payloads(hp, ~hp & False, 4)},
                                  {"o": len(want)}, statics=thresholds._asdict())
        assert received["o"] == want


@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_latency_and_throughput(params):
    dut, times = run(params, seed=4, tiles=6)
    assert dut.params is params
    assert dut.throughput == f"{params.vpu_lanes} elements a cycle"
    per_tile = params.tile_q * params.vpu_words
    assert times["i"] == list(range(times["i"][0], times["i"][0] + 6 * per_tile))
    assert [out - last for last, out in zip(times["i"][per_tile - 1::per_tile],
                                            times["o"][params.code_words - 1::params.code_words],
                                            strict=True)] == [dut.latency] * 6


@pytest.mark.parametrize("params", DENSE_PARAMS, ids=ids)
def test_latency_where_the_code_is_dense(params):
    dut, times = run(params, seed=5, tiles=1)
    assert 2 < times["o"][-1] - times["i"][-1] <= dut.latency


@pytest.mark.parametrize("params, words", [
    (PARAMS[0], 41),                         # two tiles, and the first chunk of a third
    (PARAMS[1], 32),                         # two tiles
    (make(40, 16, 16, codec="rowcol"), 57),  # row flags fill their queue first
], ids=lambda value: ids(value) if isinstance(value, AptParams) else "")
def test_counts_on_while_the_output_is_stalled(params, words):
    """A block row's flags (a tile's) wait inside; then `i` waits, and all of it comes out."""
    rng = np.random.default_rng(6)
    hp, lp = random_masks(params, 4, rng)
    thresholds = zero_thresholds(params)
    want = pack_code(encode(hp, lp, thresholds, params), params).ravel().tolist()
    dut, times, received = MaskEncoder(params), [], []

    async def source(ctx):
        await drive(ctx, dut.i, mask_payloads(hp, lp, params.vpu_lanes), times=times)

    async def sink(ctx):
        await ctx.tick().repeat(4 * params.tile_q * params.vpu_words + 40)
        assert ctx.get(dut.o.valid), "the output waits for ready"
        assert not ctx.get(dut.i.ready)
        assert len(times) == words
        received.extend(await collect(ctx, dut.o, len(want), coin(0.5, 7)))

    simulate(dut, source, sink)
    assert received == want


def test_model_is_fast():
    rng = np.random.default_rng(7)
    for codec, thresholds in (("block", BlockThresholds(3, 1)),
                              ("rowcol", RowColThresholds(9, 30, 9, 30))):
        params = AptParams(codec=codec, tile_k=64)
        p = rng.integers(0, 1 << 15, (256, 64, 64)).astype(np.uint16)
        limits = rng.integers(1, 1 << 15, (256, 64, 2))

        def head(p=p, limits=limits, thresholds=thresholds, params=params):
            hp, lp = generate(p, limits)
            image = pack_code(encode(hp, lp, thresholds, params), params)
            return decode(unpack_code(image, params), 0, 64, 64, params)

        def tile(p=p, limits=limits, thresholds=thresholds, params=params):
            hp, lp = generate(p[0], limits[0])
            started = time.perf_counter()
            encode(hp, lp, thresholds, params)
            return time.perf_counter() - started

        started = time.perf_counter()
        head()
        assert time.perf_counter() - started < 1
        assert min(tile() for _ in range(20)) < 1e-3


def test_counts():
    params = make(3, 5, 4, block_rows=2, block_cols=4)
    hp, lp = np.zeros((3, 5), int), np.zeros((3, 5), int)
    hp[0, :2], lp[1:, 3:] = 1, 1
    assert count(hp, lp, params).tolist() == [[2, 3], [0, 1], [0, 1], [0, 1]]
    params = make(3, 5, 4, codec="rowcol")
    assert count(hp, lp, params)[:, 0].tolist() == [2, 0, 0, 1, 1, 0, 0, 0]
    assert count(hp, lp, params)[:, 1].tolist() == [2, 2, 2, 1, 1, 0, 2, 2]


SMALL = make(2, 3, 2)
SHAPE = np.zeros((2, 3), bool)


@pytest.mark.parametrize("call, error, message", [
    (lambda: encode(SHAPE * 1.0, SHAPE, BlockThresholds(), SMALL), TypeError,
     "Mask must have a boolean or integer dtype, not float64"),
    (lambda: encode(SHAPE + 2, SHAPE, BlockThresholds(), SMALL), ValueError,
     "Mask must consist of 0 and 1, not 2"),
    (lambda: encode(SHAPE, SHAPE[:1], BlockThresholds(), SMALL), ValueError,
     "LP mask must have the shape [..., 2, 3] of both masks, not [1, 3]"),
    (lambda: check_thresholds((0, 0), SMALL), TypeError,
     "Thresholds of codec block must be BlockThresholds, not (0, 0)"),
    (lambda: check_thresholds(BlockThresholds(0, 7), SMALL), ValueError,
     "BlockThresholds.k_v must be in 0..6, not 7"),
    (lambda: check_thresholds(BlockThresholds(1.0, 0), SMALL), TypeError,
     "BlockThresholds.k_hp must be an integer, not 1.0"),
    (lambda: check_thresholds(RowColThresholds(4), make(2, 3, 2, codec="rowcol")), ValueError,
     "RowColThresholds.k_row_hp must be in 0..3, not 4"),
    (lambda: check_thresholds(RowColThresholds(3, 3, 2, 3), make(2, 3, 2, codec="rowcol")),
     ValueError, "RowColThresholds.k_col_v must be in 0..2, not 3"),
    (lambda: pack_code(np.zeros(1), SMALL), TypeError,
     "Code must have an integer dtype, not float64"),
    (lambda: pack_code(np.zeros(2, int), SMALL), ValueError,
     "Code must have 1 flag pairs, not (2,)"),
    (lambda: pack_code(np.full(1, 4), SMALL), ValueError,
     "Code must consist of flag pairs 0..3, not 4"),
    (lambda: unpack_code(np.zeros(1), SMALL), TypeError,
     "Words must have an integer dtype, not float64"),
    (lambda: unpack_code(np.zeros(2, int), SMALL), ValueError, "Image must have 1 words, not (2,)"),
    (lambda: unpack_code(np.full(1, 65536), SMALL), ValueError, "Words must be in 0..65535"),
    (lambda: MaskEncoder(16), TypeError, "Params must be an AptParams, not 16"),
])
def test_refuses(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
