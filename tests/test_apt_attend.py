"""One head's attention in integers: against float64, and stage by stage against plain integers."""

import dataclasses

import numpy as np
import pytest

from golden.apt import mask_decoder, mask_encoder, rescale, tafa, vpu
from golden.apt.attend import Head, State, Step, attend, quantize_head, stages
from golden.apt.attend_float import FloatStep, attend_float
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds, RowColThresholds
from golden.dit.fixture import fixed_point
from golden.studies.attention import MaskCollector, exact

from .attention_heads import DENSE, SMALL, codes_of, head_of, operands, qsnr, real_heads


# Dense attention

@pytest.mark.parametrize("split", ["balanced", "truncate"])
def test_dense_is_attention(split):
    params = AptParams(split=split)
    for real in real_heads():
        head, unit = head_of(real, params)
        result = attend(head, DENSE, None, params)
        assert result.o.dtype == np.int64 and np.abs(result.o).max() <= 32767
        assert qsnr(result.o * unit, exact(*real)[1]) > 60


@pytest.mark.parametrize("fields", [
    {"head_dim": 72}, {"head_dim": 128}, {"head_dim": 20}, {"tile_q": 12, "tile_k": 48},
    {"exp2": "table"}, {"codec": "rowcol"}, {"segment_bits": 8}, {"segment_bits": 5},
], ids=lambda fields: " ".join(f"{name} {value}" for name, value in fields.items()))
def test_dense_of_other_engines(fields):
    params = AptParams(**{"head_dim": 64, **fields})
    real = operands(200, params.head_dim)
    head, unit = head_of(real, params)
    counts = RowColThresholds() if params.codec == "rowcol" else BlockThresholds()
    result = attend(head, DENSE._replace(counts=counts), None, params)
    # Two bits are 12 dB; with eight bits a segment the words are no limit.
    limit = {5: 40, 8: 62}.get(params.segment_bits, 52)
    assert qsnr(result.o * unit, exact(*real)[1]) > limit


@pytest.mark.parametrize("tokens", [1, 5, 12, 65, 130])
def test_tails(tokens):
    params = dataclasses.replace(SMALL, state_bits=8 if tokens == 65 else 16)
    real = operands(tokens, 20)
    head, unit = head_of(real, params)
    first = attend(head, DENSE, None, params, keep_tiles=True)
    assert first.o.shape == (tokens, 20)
    assert qsnr(first.o * unit, exact(*real)[1]) > 54
    query_tiles, key_tiles = -(-tokens // 12), -(-tokens // 16)
    assert first.state.code.shape == (query_tiles, key_tiles, params.flags)
    assert first.state.s.shape == (tokens, key_tiles)
    assert first.state.c.shape == first.state.reference.shape == (tokens,)
    assert [len(row) for row in first.tiles] == [key_tiles] * query_tiles
    for i, row in enumerate(first.tiles):
        for j, tile in enumerate(row):
            inside = np.zeros((12, 16), bool)
            inside[:tokens - 12 * i, :tokens - 16 * j] = True
            assert np.array_equal(tile.hp, inside) and not tile.lp.any()
            assert not tile.p[~inside].any() and not (tile.new_hp | tile.new_lp)[~inside].any()
    # With thresholds that keep everything in high precision, masks change nothing but for P' = 0.
    second = attend(head, Step(refresh=True, counts=BlockThresholds()), first.state, params)
    assert qsnr(second.o * unit, exact(*real)[1]) > 45


@pytest.mark.parametrize("queries, keys", [(5, 37), (37, 5), (1, 16), (24, 1)])
def test_other_keys_than_queries(queries, keys):
    (q, _, _), (_, k, v) = operands(queries, 20), operands(keys, 20, seed=2)
    head, unit = head_of((q, k, v), SMALL)
    first = attend(head, DENSE, None, SMALL)
    assert qsnr(first.o * unit, exact(q, k, v)[1]) > 54
    assert first.state.code.shape == (-(-queries // 12), -(-keys // 16), SMALL.flags)
    seen = MaskCollector(queries, keys, SMALL, dense=False)
    code = tuple(tafa.threshold_code([0.03, 0.1]).tolist())
    second = attend(head, Step(codes=code), first.state, SMALL, on_tile=seen)
    same = attend_float(q, k, v, FloatStep(), None, SMALL, masks=seen.masks, words=True)
    assert qsnr(second.o * unit, same.o) > 48


def test_softmax_alone_and_output_update_alone():
    """Each beside float64 for all the rest (numerics 4.8): 71 dB and more, the output just so."""
    params, softmax_only, update_only = AptParams(), [], []
    for q, k, v in real_heads():
        s = q @ k.T / 8 * np.log2(np.e)
        p = 2.0 ** (s - s.max(1, keepdims=True))
        reference = p @ v / p.sum(1, keepdims=True)
        z = np.floor(s * 256 + 0.5).astype(np.int64)
        codes, exponent = fixed_point(v)
        shift, rows = params.o_shift(8), rescale.Rows.fresh(1024, 64)
        o, total = 0, 0
        for keys in (slice(first, first + 128) for first in range(0, 1024, 128)):
            tile = vpu.softmax(z[:, keys], np.ones((1024, 128), bool), params)
            weight = 2.0 ** (tile.maximum / 256 - s.max(1))[:, None]
            o = o + weight * (tile.p @ v[keys])
            total = total + weight * tile.total[:, None]

            maximum = np.rint(256 * s[:, keys].max(1)).astype(np.int64)
            p = 2.0 ** (s[:, keys] - maximum[:, None] / 256)
            scale = np.abs(codes[keys].astype(np.int64)).max()
            sums = np.rint(p @ np.ldexp(v[keys], exponent) * params.qmax ** 2 / scale)
            output = rescale.add_output(rows, sums.astype(np.int64), maximum,
                                        np.ones(1024, bool), scale, shift)
            rows = rescale.Rows(*rescale.merge(
                rows.maximum, rows.total, maximum,
                np.rint(32768 * p.sum(1)).astype(np.int64)), *output)
        softmax_only.append(qsnr(o / total, reference))
        update_only.append(qsnr(rescale.normalize(rows, shift, params) * 2.0 ** -exponent,
                                reference))
    assert min(softmax_only) >= 71
    assert np.median(update_only) >= 71 and min(update_only) >= 69.5


# Stages of a tile, in plain integers

def digits(word, params):
    """High and low segment of a word, by Python's division."""
    radix = 2 ** params.segment_bits
    high = (word + (radix // 2 if params.split == "balanced" else 0)) // radix
    return high, word - radix * high


@pytest.mark.parametrize("split", ["balanced", "truncate"])
@pytest.mark.parametrize("codec", ["block", "rowcol"])
def test_sums_of_a_tile_are_exact(split, codec):
    params = AptParams(lanes=4, multipliers=4, head_dim=5, tile_q=6, tile_k=10, split=split,
                       codec=codec, window_qk=1, window_pv=1)
    rng = np.random.default_rng(3)
    q, k, v = (rng.integers(-params.qmax, params.qmax + 1, (rows, 5)) for rows in (5, 9, 9))
    q[0], k[0], v[:, 0] = -params.qmax, -params.qmax, -params.qmax
    code = rng.integers(0, 4, params.flags)
    counts = RowColThresholds(1, 1, 1, 1) if codec == "rowcol" else BlockThresholds(1, 1)
    s, c = rng.integers(-300, 0, 5), rng.integers(0, 100, 5)
    step = Step(codes=(12000, 7000), counts=counts)
    tile = stages(q, k, v, 40000, 28, code, s, c, step, params)
    hp, lp = mask_decoder.decode(code, 0, 5, 9, params)
    assert np.array_equal(tile.hp, hp) and np.array_equal(tile.lp, lp)
    assert hp.any() and lp.any() and not (hp | lp)[:5, :9].all()
    lists = [x.tolist() for x in (q, k, v)]
    for row in range(6):
        for key in range(10):
            expected = 0
            if hp[row, key]:
                expected = sum(a * b for a, b in zip(lists[0][row], lists[1][key], strict=True))
            elif lp[row, key]:
                expected = sum(digits(a, params)[0] * digits(b, params)[0] * 4096
                               for a, b in zip(lists[0][row], lists[1][key], strict=True))
            assert tile.acc[row, key] == expected

    computed = hp | lp
    assert np.array_equal(tile.z, vpu.dequantize(tile.acc, 40000, 28))
    softmax = vpu.softmax(tile.z, computed, params)
    for got, wanted in zip((tile.maximum, tile.p, tile.total), softmax, strict=True):
        assert np.array_equal(got, wanted)
    assert np.array_equal(tile.thresholds[:5],
                          tafa.thresholds(step.codes, tile.total[:5], c, s, params))
    kept = tile.p >= tile.thresholds[:, :1]
    high = kept & (tile.p >= tile.thresholds[:, 1:])
    assert np.array_equal(tile.new_hp, high) and np.array_equal(tile.new_lp, kept & ~high)
    assert tile.new_hp.any() and tile.new_lp.any() and (computed & ~kept).any()
    assert np.array_equal(tile.code, mask_encoder.encode(high, kept & ~high, counts, params))
    assert np.array_equal(tile.s, tafa.mass(tile.maximum, tile.total))
    for row in range(6):
        for column in range(5):
            expected = 0
            for key in range(9):
                word, value = (int(tile.p[row, key]) * params.qmax + 2 ** 14) // 2 ** 15, lists[2]
                if tile.new_hp[row, key]:
                    expected += word * value[key][column]
                elif tile.new_lp[row, key]:
                    expected += (digits(word, params)[0]
                                 * digits(value[key][column], params)[0] * 4096)
            assert tile.sums[row, column] == expected


def test_widest_sums_are_exact():
    """All words at their largest, in the longest dot products that there are."""
    for split in ("balanced", "truncate"):
        params = AptParams(head_dim=256, tile_q=4, tile_k=512, split=split, lanes=4, window_qk=1,
                           window_pv=1, segment_bits=8)
        words = np.full((4, 256), -params.qmax)
        keys = np.full((512, 256), -params.qmax)
        tile = stages(words, keys, keys, 0, 63, None, None, None, DENSE, params)
        assert (tile.acc == 256 * params.qmax ** 2).all()
        # The chords' 1.0 is a little low; as a word of 16 bits it shows.
        word = int(vpu.probability_words(tile.p[:1, :1], params)[0, 0])
        assert (tile.sums == -512 * params.qmax * word).all()


# Pruning

def no_code(params, query_tiles, key_tiles):
    return np.zeros((query_tiles, key_tiles, params.flags), np.uint8)


def test_nothing_in_the_masks():
    head, _ = head_of(operands(30, 20), SMALL)
    first = attend(head, DENSE, None, SMALL)
    empty = first.state._replace(code=no_code(SMALL, 3, 2))
    result = attend(head, Step(), empty, SMALL)
    assert not result.o.any() and not result.state.code.any()
    assert (result.state.s == tafa.NONE).all() and (result.state.c == tafa.NONE).all()
    # A step later nothing passes, even refreshed: there is no mass to predict from.
    later = attend(head, Step(refresh=True), result.state, SMALL, keep_tiles=True)
    assert not later.o.any()
    for tile in (tile for row in later.tiles for tile in row):
        assert (tile.thresholds == 32769).all() and not (tile.new_hp | tile.new_lp).any()
    assert (later.state.s != tafa.NONE).all()  # but that step gives the mass for the next


@pytest.mark.parametrize("state_bits", [16, 8])
def test_a_tile_and_rows_without_elements(state_bits):
    """Rows 4..7 have no key at all, the second key tile has none for rows 0..3."""
    params = dataclasses.replace(SMALL, state_bits=state_bits)
    real = operands(24, 20)
    head, unit = head_of(real, params)
    first = attend(head, DENSE, None, params)
    code = np.full((2, 2, 3, 2), 3, np.uint8)
    code[0, :, 1] = code[0, 1, 0] = 0
    state = first.state._replace(code=code.reshape(2, 2, 6))
    result = attend(head, Step(), state, params)
    assert not result.o[4:8].any() and (result.state.c[4:8] == tafa.NONE).all()
    none = tafa.NONE if state_bits == 16 else tafa.NONE_8
    assert (result.state.s[:8] == none).tolist() == [[False, True]] * 4 + [[True, True]] * 4
    computed = np.ones((24, 24), bool)
    computed[4:8] = computed[:4, 16:] = False
    p = np.where(computed, np.exp(real[0] @ real[1].T / np.sqrt(20)), 0)
    reference = p @ real[2] / np.maximum(p.sum(1, keepdims=True), 1e-9)
    assert qsnr(result.o * unit, reference) > 50
    words = result.state
    recalled = tafa.recall(words.s, words.reference[:, None], params)
    mass = np.log2(np.maximum(p.reshape(24, -1)[:, :16].sum(1), 1e-9))
    assert np.abs(recalled[:4, 0] / 256 - mass[:4]).max() < (0.02 if state_bits == 16 else 0.09)


def test_pruned_by_thresholds_stays_in_the_denominator():
    head, unit = head_of(real := operands(40, 20), SMALL)
    first = attend(head, DENSE, None, SMALL)
    seen = MaskCollector(40, 40, SMALL, dense=False)
    code = tuple(tafa.threshold_code([0.03, 0.1]).tolist())
    result = attend(head, Step(codes=code, refresh=True), first.state, SMALL, on_tile=seen)
    p, _ = exact(*real)
    kept = seen.masks.pv_hp | seen.masks.pv_lp
    assert (seen.masks.qk_hp | seen.masks.qk_lp).all() and 0.1 < kept.mean() < 0.6
    undivided = np.where(kept, p, 0) @ real[2]
    divided = undivided / np.where(kept, p, 0).sum(1, keepdims=True)
    assert qsnr(result.o * unit, undivided) > 25 > qsnr(result.o * unit, divided)
    for mask, theta in ((kept, 0.03), (seen.masks.pv_hp, 0.1)):
        far = np.abs(np.log2(p / theta)) > 0.3  # low precision moves P by some
        assert np.array_equal(mask[far], (p >= theta)[far])


def test_everything_pruned_by_thresholds():
    q, k, v = operands(40, 20)
    head, _ = head_of((q / 4, k, v), SMALL)  # no probability near 1
    first = attend(head, DENSE, None, SMALL)
    result = attend(head, Step(codes=(0, 0)), first.state, SMALL)
    assert not result.o.any() and not result.state.code.any()
    assert (result.state.c != tafa.NONE).all()


def test_refresh_brings_back_in_low_precision():
    params = SMALL
    head, _ = head_of(operands(40, 20), params)
    code = tuple(tafa.threshold_code([0.03, 0.1]).tolist())
    first = attend(head, DENSE, None, params)
    second = attend(head, Step(codes=code), first.state, params)
    for refresh in (False, True):
        third = attend(head, Step(codes=code, refresh=refresh), second.state, params,
                       keep_tiles=True)
        for i, row in enumerate(third.tiles):
            for j, tile in enumerate(row):
                size = min(12, 40 - 12 * i), min(16, 40 - 16 * j)
                hp, lp = mask_decoder.decode(second.state.code[i, j], False, *size, params)
                assert np.array_equal(tile.hp, hp)
                inside = np.zeros((12, 16), bool)
                inside[:size[0], :size[1]] = True
                assert np.array_equal(tile.lp, inside & ~hp if refresh else lp)


def test_dense_step_with_state_makes_masks_and_ignores_old_ones():
    head, _ = head_of(operands(40, 20), SMALL)
    code = tuple(tafa.threshold_code([0.03, 0.1]).tolist())
    first = attend(head, DENSE, None, SMALL)
    step = Step(codes=code, dense=True)
    second = attend(head, step, first.state, SMALL, keep_tiles=True)
    assert np.array_equal(second.o, first.o)
    assert 0 < second.state.code.mean() < first.state.code.mean()
    cleared = first.state._replace(code=no_code(SMALL, 4, 3))
    assert np.array_equal(attend(head, step, cleared, SMALL).state.code, second.state.code)
    tile = second.tiles[0][0]
    assert tile.hp.all() and not tile.new_hp.all() and tile.new_lp.any()


# Interface

def test_tiles_are_given_as_they_are_done():
    head, _ = head_of(operands(30, 20), SMALL)
    seen = []
    result = attend(head, DENSE, None, SMALL, keep_tiles=True,
                    on_tile=lambda i, j, tile: seen.append((i, j, tile)))
    assert [place[:2] for place in seen] == [(i, j) for i in range(3) for j in range(2)]
    assert all(result.tiles[i][j] is tile for i, j, tile in seen)
    assert attend(head, DENSE, None, SMALL).tiles == []


def test_quantized_head():
    real = operands(30, 20)
    codes, exponents = codes_of(real)
    head = quantize_head(*codes, *exponents[:2], SMALL)
    assert [len(scales) for scales in (head.a_q, head.a_k, head.a_v)] == [3, 2, 2]
    for words, scales, x, rows in ((head.q, head.a_q, codes[0], 12),
                                   (head.k, head.a_k, codes[1], 16),
                                   (head.v, head.a_v, codes[2], 16)):
        for tile, scale in enumerate(scales):
            part = slice(tile * rows, (tile + 1) * rows)
            assert scale == np.abs(x[part].astype(int)).max()
            ideal = x[part] / scale * SMALL.qmax
            assert np.abs(words[part] - ideal).max() <= 1.1


def test_mistakes():
    real = operands(30, 20)
    codes, exponents = codes_of(real)
    head = quantize_head(*codes, *exponents[:2], SMALL)
    with pytest.raises(ValueError, match=r"^The first step must be dense: there are no masks yet"):
        attend(head, Step(), None, SMALL)
    with pytest.raises(ValueError, match=r"^K must be \[tokens, 20\], not \[30, 19\]$"):
        quantize_head(codes[0], codes[1][:, :-1], codes[2], 0, 0, SMALL)
    with pytest.raises(ValueError, match=r"^V must be \[30, 20\] like K, not \[29, 20\]$"):
        quantize_head(*codes[:2], codes[2][:-1], 0, 0, SMALL)
    with pytest.raises(ValueError, match=r"^V must be \[30, 20\], not \[29, 20\]$"):
        attend(head._replace(v=head.v[:-1]), DENSE, None, SMALL)
    with pytest.raises(ValueError, match=r"^a_k must have 2 words, not \[3\]$"):
        attend(head._replace(a_k=head.a_q), DENSE, None, SMALL)
    with pytest.raises(ValueError, match=r"^a_v must be in 0..32767$"):
        attend(head._replace(a_v=head.a_v + 32767), DENSE, None, SMALL)
    with pytest.raises(ValueError, match=r"^Codes of thresholds must be in 0..65535, not 65536$"):
        attend(head, Step(codes=(0, 65536), dense=True), None, SMALL)
    with pytest.raises(ValueError, match=r"^Q must have at least one token$"):
        attend(Head(*(x[:0] for x in head[:6]), head.scale), DENSE, None, SMALL)
    with pytest.raises(ValueError, match=r"^Words must be in -2015..2015, not 2016$"):
        attend(head._replace(k=np.where(head.k == head.k.max(), 2016, head.k)), DENSE, None, SMALL)
    with pytest.raises(TypeError, match=r"^Thresholds of codec block must be BlockThresholds"):
        attend(head, DENSE._replace(counts=RowColThresholds()), None, SMALL)
    assert State._fields == ("code", "s", "c", "reference")
