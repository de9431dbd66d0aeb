"""Models of the vector unit against real numbers and Python integers: exp2, log2, softmax, TAFA."""

import math
from fractions import Fraction

import numpy as np
import pytest

from golden.apt import exp2, log2, rescale, tafa, vpu
from golden.apt.params import AptParams


PWL, TABLE = AptParams(), AptParams(exp2="table")


# Powers of two

@pytest.mark.parametrize("params, bound", [(PWL, 4.01), (TABLE, 0.76)], ids=["pwl16", "table"])
def test_exp2_everywhere(params, bound):
    u = np.arange(1 << 16)
    value = exp2.exp2(u, params)
    assert np.abs(value - 32768 * 2.0 ** (-u / 256)).max() <= bound
    assert (np.diff(value) <= 0).all() and value[-1] == 0
    assert (value[:4095] > 0).all() and not value[16 * 256:].any()
    assert value[0] == (32764 if params is PWL else 32768)


def test_exp2_by_hand():
    assert exp2.table()[:3] == (32768, 32679, 32591) and len(exp2.table()) == 256
    assert exp2.exp2(255, TABLE) == 16428 and exp2.exp2(256 + 255, TABLE) == 8214
    base, slope = exp2.chords()
    assert (base[0], slope[0], base[-1], slope[-1]) == (32764, 22228, 17107, 11606)
    # Segment 3, 5 / 16 of it: 28771 - (19519 * 5 + 128) // 256, shifted by 2, rounding half up.
    inner = 28771 - (19519 * 5 + 128) // 256
    assert exp2.exp2(2 * 256 + 3 * 16 + 5, PWL) == (inner + 2) // 4
    assert exp2.exp2(np.int64(1) << 40, PWL) == 0
    with pytest.raises(ValueError, match=r"^Exponents must not be negative, not -1$"):
        exp2.exp2([3, -1], PWL)


def test_chords_are_lowered_by_half_their_error():
    base, slope = exp2.chords()
    for k in range(16):
        t = np.linspace(0, 16, 4001)
        error = base[k] - slope[k] * t / 256 - 32768 * 2.0 ** (-(k + t / 16) / 16)
        assert error.max() == pytest.approx(-error.min(), abs=1.1)


def test_fine_powers():
    u = np.arange(-20000, 20000)
    mantissa, places = exp2.exp2_fine(u)
    assert np.array_equal(places, u // 4096)
    assert mantissa.min() >= 1 << 14 and mantissa.max() <= 1 << 15
    value = mantissa * 2.0 ** (-15 - places)
    assert np.abs(value / 2.0 ** (-u / 4096) - 1).max() < 1.8e-4
    u = np.arange(1 << 17)
    factor = exp2.exp2_factor(u)
    assert np.abs(factor - 32768 * 2.0 ** (-u / 4096)).max() < 4.6
    assert (np.diff(factor) <= 1).all() and not factor[16 << 12:].any()


# Logarithms

def test_log2():
    value = np.concatenate([np.arange(1, 5000), 2 ** np.arange(13, 62), 2 ** np.arange(13, 62) - 1])
    error = log2.log2(value) / 256 - np.log2(value.astype(np.float64))
    # Half a step of the table and what was cut off, 1 / 256 at the most at the lower end.
    assert error.max() <= 0.5 / 256 + 1e-9 and error.min() >= -1.97 / 256
    assert np.array_equal(log2.log2(2 ** np.arange(62)), 256 * np.arange(62))
    assert log2.log2(3 << 20) == 21 * 256 + 150  # 256 * log2(1.5) = 149.75
    assert log2.table()[0] == 0 and log2.table()[-1] == 255
    for bad in (0, -5):
        with pytest.raises(ValueError, match=rf"^Logarithms are of positive numbers, not {bad}$"):
            log2.log2([4, bad])


def test_fine_log2_is_rounded_down_or_one_less():
    """Exactly: ``2**r <= value**4096``; with 16 bits cut off it may be one less."""
    values = [1, 2, 3, 5, 7, 100, 2015 ** 2, 2047 ** 2, 65535, 65536, 65537, (1 << 23) - 1,
              123456789, (1 << 61) + 12345]
    for value in values:
        exact = (value ** 4096).bit_length() - 1
        assert exact - int(log2.log2_fine(value)) in (0, 1)
    values = np.arange(1, 1 << 16, 7)
    error = np.log2(values) * 4096 - log2.log2_fine(values)
    assert error.min() > -1e-6 and error.max() < 2


# Logits and softmax

def test_scale_of_a_head():
    for dim, e_q, e_k in ((64, 12, 12), (72, 15, 10), (1, 16, 20), (256, 14, 14)):
        scale = vpu.logit_scale(dim, e_q, e_k, PWL)
        exact = 256 * math.log2(math.e) / (math.sqrt(dim) * 2015 ** 2 * 2 ** (e_q + e_k))
        assert 1 << 15 <= scale.mantissa < 1 << 16
        assert scale.mantissa * 2.0 ** -scale.shift == pytest.approx(exact, rel=2 ** -16)
    assert vpu.logit_scale(64, 100, 100, PWL).shift == 127
    assert vpu.logit_scale(1, 0, 2, PWL).shift == 31
    with pytest.raises(ValueError, match=r"^Exponents of Q and K must be at least 2 together, "
                                         r"not 1$"):
        vpu.logit_scale(1, 4, -3, PWL)


def test_scale_of_a_tile():
    scale = vpu.LogitScale(50001, 40)
    a_q, a_k = np.array([0, 1, 77, 12345, 32767])[:, None], np.array([0, 1, 3, 32767])
    mantissas, shifts = vpu.tile_scale(scale, a_q, a_k)
    for row, q in enumerate(a_q[:, 0].tolist()):
        for column, k in enumerate(a_k.tolist()):
            product = q * k * 50001
            places = max(product.bit_length() - 16, 0)
            expected = (product >> places, 40 - places) if product else (0, 63)
            assert (mantissas[row, column], shifts[row, column]) == expected
    assert vpu.tile_scale(vpu.LogitScale(40000, 127), 1, 1)[1] == 63
    mantissa, shift = vpu.tile_scale(vpu.LogitScale(65535, 31), 32767, 32767)
    assert mantissa < 1 << 16 and shift == 1


def test_dequantize():
    rng = np.random.default_rng(0)
    acc = np.concatenate([rng.integers(-2 ** 29, 2 ** 29, 300), [0, 2 ** 29, -2 ** 29, 1, -1]])
    for mantissa, shift in ((40000, 31), (65535, 1), (32768, 40), (50000, 63), (32768, 30)):
        expected = [min(max(math.floor(Fraction(a * mantissa, 2 ** shift) + Fraction(1, 2)),
                            -32768), 32767) for a in acc.tolist()]
        assert vpu.dequantize(acc, mantissa, shift).tolist() == expected
    assert vpu.dequantize([3, -3], 1, 1).tolist() == [2, -1]  # half up


@pytest.mark.parametrize("params", [PWL, TABLE], ids=["pwl16", "table"])
def test_softmax(params):
    rng = np.random.default_rng(1)
    z = rng.integers(-2000, 2000, (6, 20))
    computed = rng.random((6, 20)) < 0.5
    computed[2] = False
    z[3], computed[3] = -32768, True
    result = vpu.softmax(z, computed, params)
    for row in range(6):
        keys = np.flatnonzero(computed[row])
        if not keys.size:
            assert result.maximum[row] == vpu.NO_LOGIT == -32768 and result.total[row] == 0
        else:
            assert result.maximum[row] == z[row, keys].max()
        for key in range(20):
            there = key in keys
            expected = 32768 * 2.0 ** ((z[row, key] - result.maximum[row]) / 256) if there else 0
            assert abs(result.p[row, key] - expected) <= (4.01 if there else 0)
        assert result.total[row] == result.p[row].sum()


def test_probability_words():
    p = np.arange(32769)
    for params in (PWL, AptParams(split="truncate")):
        words = vpu.probability_words(p, params)
        assert words.tolist() == [(x * params.qmax + 2 ** 14) // 2 ** 15 for x in range(32769)]
        assert words[-1] == words[32764] == params.qmax


# TAFA

def test_codes_of_thresholds():
    assert tafa.threshold_code([1, 0.5, 2 ** -31.99951171875]).tolist() == [0, 2048, 65535]
    assert tafa.threshold_code(2.0 ** -32) == 65535
    theta = np.geomspace(1e-9, 1, 200)
    assert np.abs(2.0 ** (-tafa.threshold_code(theta) / 2048) / theta - 1).max() < 2 ** -12
    for bad in (0, 1.01, -1):
        with pytest.raises(ValueError, match=r"^Thresholds must be above 0 and at most 1$"):
            tafa.threshold_code([0.5, bad])


def test_mass():
    maximum = np.array([[-32768], [-700], [0], [32767]])
    total = np.array([1, 32764, 99999, 1 << 22])
    word = tafa.mass(maximum, total)
    exact = maximum / 256 + np.log2(total / 32768)
    inside = np.abs(exact) < 127
    assert np.abs(word / 256 - exact)[inside].max() < 2 / 256
    assert word[0, 0] == -32767 and word[3, 3] == 32767  # saturated, and not NONE
    assert (tafa.mass(maximum, 0) == tafa.NONE).all()


def test_state_of_sixteen_and_eight_bits():
    s = np.array([[tafa.NONE, 500, 516, 515, -9000, 9000], [tafa.NONE] * 6,
                  [100, tafa.NONE, 84, 83, 100, 68]])
    words, reference = tafa.store(s, PWL)
    assert np.array_equal(words, s) and reference.tolist() == [500, tafa.NONE, 100]
    assert np.array_equal(tafa.recall(words, reference[:, None], PWL), s)
    narrow = AptParams(state_bits=8)
    words, reference = tafa.store(s, narrow)
    assert reference.tolist() == [500, tafa.NONE, 100]
    # Eighths of an octave (32 of 256), half up, within -127..127; -128 is NONE.
    assert words.tolist() == [[-128, 0, 1, 0, -127, 127], [-128] * 6, [0, -128, 0, -1, 0, -1]]
    assert tafa.recall(words, reference[:, None], narrow).tolist() == [
        [tafa.NONE, 500, 532, 500, 500 - 127 * 32, 500 + 127 * 32], [tafa.NONE] * 6,
        [100, tafa.NONE, 100, 68, 100, 68]]
    assert tafa.recall([[127, -127]], [[32000]], narrow).tolist() == [[32767, 32000 - 127 * 32]]
    assert tafa.recall([[-127]], [[-32000]], narrow).tolist() == [[-32767]]


def test_thresholds():
    rng = np.random.default_rng(2)
    total, c = rng.integers(1, 1 << 22, 500), rng.integers(-3000, 3000, 500)
    s = c - rng.integers(-300, 4000, 500)
    codes = 12345, 5678
    for params, bound in ((PWL, 4), (TABLE, 1)):
        values = tafa.thresholds(codes, total, c, s, params)
        assert values.shape == (500, 2)
        for code, value in zip(codes, values.T, strict=True):
            # theta * l / rho, log2 of l as the unit has it, the code to eight fraction bits.
            exponent = np.floor(code / 8 + 0.5) - (log2.log2(total) - 15 * 256) - (c - s)
            exact = 32768 * 2.0 ** (-exponent / 256)
            assert (value[exponent < 0] == 32769).all() and (exponent < 0).any()
            value, exact = value[exponent >= 0], exact[exponent >= 0]
            assert np.abs(value - np.maximum(exact, 1)).max() <= bound and value.min() >= 1
    assert tafa.thresholds((65535, 0), [32768], [0], [0], TABLE).tolist() == [[1, 32768]]
    assert tafa.thresholds((4, 3), [32768], [0], [0], TABLE).tolist() == [[32679, 32768]]
    for never in (([0], [0], [0]), ([9], [tafa.NONE], [0]), ([9], [0], [tafa.NONE]),
                  ([9], [-32700], [tafa.NONE]), ([9], [tafa.NONE], [-32700])):
        assert tafa.thresholds((65535, 65535), *never, PWL).tolist() == [[32769, 32769]]


# Running maximum, sum and output

def test_merge():
    rng = np.random.default_rng(3)
    maximum, other = rng.integers(-3000, 3000, (2, 400))
    total, tile = rng.integers(1, 1 << 24, 400), rng.integers(1, 1 << 22, 400)
    merged, sums = rescale.merge(maximum, total, other, tile)
    assert np.array_equal(merged, np.maximum(maximum, other))
    exact = total * 2.0 ** ((maximum - merged) / 256) + tile * 2.0 ** ((other - merged) / 256)
    scaled = np.where(other > maximum, total, tile)
    assert (np.abs(sums - exact) <= 0.51 + scaled * 4.6 / 32768).all()
    first = rescale.merge([rescale.NO_LOGIT], [0], [-32768], [77])
    assert [x.tolist() for x in first] == [[-32768], [77]]
    same = rescale.merge([5], [1000], [rescale.NO_LOGIT], [0])
    assert [x.tolist() for x in same] == [[5], [1000]]


def test_output_over_tiles():
    """Twelve tiles of sums, with other scales of V, and rows that skip tiles."""
    rng = np.random.default_rng(4)
    rows, dim, tiles = 30, 6, 12
    maxima = rng.integers(-2500, 2500, (tiles, rows))
    maxima[:, 10:20] -= 8000  # with units below 0
    totals = rng.integers(30000, 1 << 22, (tiles, rows))
    scales = rng.integers(1, 32768, tiles)
    scales[3] = 0
    sums = rng.integers(-2 ** 26, 2 ** 26, (tiles, rows, dim)) * (scales > 0)[:, None, None]
    there = rng.random((tiles, rows)) < 0.7
    there[:, 5] = False
    shift = 2
    state, exact = rescale.Rows.fresh(rows, dim), np.zeros((rows, dim))
    weights = np.zeros(rows)
    for j in range(tiles):
        before = state
        state = rescale.Rows(
            *rescale.merge(state.maximum, state.total, maxima[j], totals[j]),
            *rescale.add_output(state, np.where(there[j][:, None], sums[j], 0), maxima[j],
                                there[j], scales[j], shift))
        for field in ("unit", "begun", "o"):
            unchanged = getattr(state, field)[~there[j]] == getattr(before, field)[~there[j]]
            assert unchanged.all()
        exact += (np.where(there[j][:, None], sums[j], 0) * scales[j] / 2015 ** 2
                  * 2.0 ** (maxima[j] / 256)[:, None])
        weights += totals[j] / 32768 * 2.0 ** (maxima[j] / 256)
    assert np.array_equal(state.begun, there.any(0)) and not state.begun[5]
    output = rescale.normalize(state, shift, PWL)
    reference = np.clip(exact / weights[:, None], -32767, 32767)
    assert not output[5].any()
    error = np.abs(output - reference)
    assert (error <= 0.6 + 9e-4 * np.abs(reference)).all() and np.abs(reference).max() > 2000


def test_output_saturates_symmetrically():
    state = rescale.Rows(np.array([0, 0]), np.array([32768, 0]), np.array([15 << 12, 15 << 12]),
                         np.array([True, True]), np.array([[2 ** 30, -2 ** 30], [5, 5]]))
    assert rescale.normalize(state, 0, PWL).tolist() == [[32767, -32767], [0, 0]]


@pytest.mark.parametrize("tile_k, key_tiles", [(128, 8), (512, 512), (16, 1), (64, 1024)])
def test_output_fits_32_bits(tile_k, key_tiles):
    params = AptParams(tile_k=tile_k)
    shift = params.o_shift(key_tiles)
    largest = tile_k * params.qmax ** 2
    assert (largest >> shift) * key_tiles < 2 ** 31
    assert shift == 0 or (1 << params.sum_bits) * key_tiles >> (shift - 1) > 2 ** 32


def test_unit_of_a_tile():
    assert rescale.tile_unit(-256, 1) == -4096
    assert rescale.tile_unit(256, 0) == 4096
    assert rescale.tile_unit(0, 32767) == log2.log2_fine(32767) == (15 << 12) - 1
