"""Rows between key tiles: model against fractions, RTL against the model, O by the RTL's words."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from golden.apt import rescale
from golden.apt.exp2 import exp2_factor
from golden.apt.params import AptParams
from rtl.apt.rescale import Rescale
from tests.sim import FLOWS, run_streams
from verif.apt.row_vectors import rescale_payloads, some_query_tile


SHAPES = [
    AptParams(tile_q=4, tile_k=16),
    AptParams(tile_q=12, tile_k=24, segment_bits=4),
    AptParams(tile_q=20, tile_k=512, segment_bits=8),
]


def ids(params):
    return f"{params.tile_q}x{params.tile_k}b{params.segment_bits}"


def test_model_merge_against_fractions():
    rng = np.random.default_rng(0)
    for _ in range(300):
        count = int(rng.integers(1, 6))
        maximum = rng.integers(-3000, 3000, count)
        total = rng.integers(1 << 15, 128 << 15, count)
        m, t = np.array([-1 << 15]), np.array([0])
        exact = sum(Fraction(int(x)) * Fraction(2.0 ** (int(y - maximum.max()) / 256))
                    for x, y in zip(total, maximum, strict=True))
        for x, y in zip(maximum, total, strict=True):
            m, t = rescale.merge(m, t, x, y)
        assert m[0] == maximum.max()
        # A factor is off by less than 5 of 2**15; the largest term is never scaled.
        assert abs(int(t[0]) - exact) <= count * (exact * Fraction(6, 1 << 15) + 128 * 5 + 1)


def test_model_merge_in_whole_numbers():
    rng = np.random.default_rng(1)
    values = rng.integers(-1 << 15, 1 << 15, (400, 2)) >> rng.integers(0, 16, (400, 1))
    totals = rng.integers(0, 1 << 31, (400, 2)) >> rng.integers(0, 32, (400, 2))
    m, t = rescale.merge(values[:, 0], totals[:, 0], values[:, 1], totals[:, 1])
    for index in range(400):
        (a, b), (x, y) = values[index].tolist(), totals[index].tolist()
        if x == 0 or y == 0:
            want = (a, x) if y == 0 else (b, y)
        else:
            factor = int(exp2_factor(abs(a - b) << 4))
            large, small = (y, x) if b > a else (x, y)
            want = max(a, b), large + floor(Fraction(small * factor, 1 << 15) + Fraction(1, 2))
        assert (int(m[index]), int(t[index])) == want


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_model_output_against_float(params):
    """Rows of any units and maxima give ``sum(P V) / L`` in the exponent of V."""
    rng = np.random.default_rng(2)
    rows, tiles, dim = 60, 4, 5
    shift = params.o_shift(tiles)
    state = rescale.Rows.fresh(rows, dim)
    exact, mass = np.zeros((rows, dim)), np.zeros(rows)
    for _ in range(tiles):
        maximum = rng.integers(-600, 600, rows)
        total = rng.integers(params.tile_k << 13, (params.tile_k << 15) + 1, rows)
        a_v = int(rng.integers(8000, 1 << 15))
        contributes = rng.random(rows) < 0.8
        # Sums that P' of this row sum can have with words of V up to qmax.
        limit = total * params.qmax ** 2 // (1 << 15)
        sums = (rng.uniform(-1, 1, (rows, dim)) * limit[:, None]).astype(np.int64)
        unit, begun, o = rescale.add_output(state, sums, maximum, contributes, a_v, shift)
        merged = rescale.merge(state.maximum, state.total, maximum, total)
        state = rescale.Rows(*merged, unit, begun, o)
        weight = 2.0 ** (maximum / 256)
        exact += np.where(contributes, weight, 0)[:, None] * sums * a_v / params.qmax ** 2
        mass += weight * total / (1 << 15)
        assert (np.abs(o) < 1 << 31).all()
    got = rescale.normalize(state, shift, params)
    want = np.where(state.begun, 1 / mass, 0)[:, None] * exact
    assert np.abs(want).max() > 8000 and np.abs(got - want).max() <= 0.001 * np.abs(want).max() + 2


def test_model_rows_without_an_element():
    params = SHAPES[0]
    fresh = rescale.Rows.fresh(3, 2)
    assert (rescale.normalize(fresh, 0, params) == 0).all()
    pruned = fresh._replace(total=np.array([0, 9, 9]), maximum=np.array([0, 5, 5]),
                            begun=np.array([False, False, True]), o=np.full((3, 2), 1 << 30))
    out = rescale.normalize(pruned, 0, params)
    assert (out[:2] == 0).all() and (out[2] == 32767).all()


def pack(word, widths):
    value = place = 0
    for (name, width), field in zip(widths.items(), word.values(), strict=True):
        assert list(word) == list(widths), name
        value |= (field & ((1 << width) - 1)) << place
        place += width
    return value


def widths(params):
    row = {"row": params.row_bits}
    return {"o": {**row, "begin": 1, "contributes": 1, "scale_o": 1, "factor": 16},
            "row_o": {**row, "maximum": 16, "total": 32},
            "final": {**row, "zero": 1, "mantissa": 16, "places": 6}}


def run(params, tiles, flow="full_speed"):
    payloads = [rescale_payloads(tile, params) for tile in tiles]
    every = {name: [word for tile in payloads for word in tile[name]]
             for name in ("i", "o", "row_o", "final")}
    dut = Rescale(params)
    received, times = run_streams(
        dut, {"i": every["i"]}, {name: len(every[name]) for name in ("o", "row_o", "final")},
        flow=flow)
    for name, fields in widths(params).items():
        want = [pack(word, fields) for word in every[name]]
        assert received[name] == want and len(set(want)) > 3
    return dut, every, times


def query_tiles(params, seed, count=5):
    rng = np.random.default_rng(seed)
    return [some_query_tile(params, rng, int(rng.choice([params.tile_q, params.tile_q - 3])),
                            int(rng.integers(1, 5))) for _ in range(count)]


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_rtl_matches_the_model(params, flow):
    run(params, query_tiles(params, 3), flow)


def test_stimulus_has_what_it_should():
    words = [rescale_payloads(tile, params) for params in SHAPES for seed in range(5)
             for tile in query_tiles(params, seed)]
    o = [word for one in words for word in one["o"] if word["contributes"]]
    assert min(sum(word[name] == value for word in o) for name in ("begin", "scale_o")
               for value in (0, 1)) > 100
    added = [word["factor"] for word in o if not word["begin"]]
    assert added.count(0) > 10 and sum(0 < factor < 1 << 14 for factor in added) > 100
    final = [word for one in words for word in one["final"]]
    assert {word["zero"] for word in final} == {0, 1}
    assert {1, 62} < {word["places"] for word in final}
    assert any(word["total"] == 0 for one in words for word in one["row_o"])


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_the_words_make_the_models_output(params):
    """O made by these words, as the O update will, is what ``add_output`` and ``normalize`` say."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        tile = some_query_tile(params, rng, params.tile_q, 4)
        tile = tile._replace(shift=params.o_shift(4))
        words = rescale_payloads(tile, params)
        state = rescale.Rows.fresh(params.tile_q, 3)
        o = [[0] * 3 for _ in range(params.tile_q)]
        rounded = Fraction(1, 2)
        steps = iter(words["o"])
        for j in range(4):
            limit = 1 << (params.sum_bits - 2)
            sums = rng.integers(-limit, limit, (params.tile_q, 3))
            unit, begun, new = rescale.add_output(state, sums, tile.maximum[:, j],
                                                  tile.contributes[:, j], tile.a_v[j], tile.shift)
            merged = rescale.merge(state.maximum, state.total, tile.maximum[:, j],
                                   tile.total[:, j])
            state = rescale.Rows(*merged, unit, begun, new)
            for row in range(params.tile_q):
                word = next(steps)
                if not word["contributes"]:
                    continue
                for column in range(3):
                    t = floor(Fraction(int(sums[row, column]), 1 << tile.shift) + rounded)
                    sides = [o[row][column], t]
                    if not word["begin"]:
                        side = 0 if word["scale_o"] else 1
                        sides[side] = floor(Fraction(sides[side] * word["factor"], 1 << 15)
                                            + rounded)
                    o[row][column] = t if word["begin"] else sum(sides)
        assert o == state.o.tolist()
        want = [[0 if word["zero"] else
                 max(-32767, min(32767, floor(Fraction(value * word["mantissa"],
                                                       1 << word["places"]) + rounded)))
                 for value in o[word["row"]]] for word in words["final"]]
        assert want == rescale.normalize(state, tile.shift, params).tolist()


def test_latencies_and_throughput():
    params = SHAPES[1]
    rng = np.random.default_rng(5)
    rows = params.tile_q
    dut, _, times = run(params, [some_query_tile(params, rng, rows, 3)])
    i, o, row_o, final = (np.array(times[name]) for name in ("i", "o", "row_o", "final"))
    assert (o - i == dut.latency).all() and dut.latency == 8
    assert (np.diff(i[:2 * rows + 1]) == 13).all() and (np.diff(i[2 * rows:]) == 31).all()
    assert (row_o - i[2 * rows:] == dut.row_latency).all() and dut.row_latency == 13
    assert (final - i[2 * rows:] == dut.final_latency).all() and dut.final_latency == 30
    assert dut.throughput == "one row every 13 cycles, or 31 of the last key tile"


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Rescale(8)
    with pytest.raises(ValueError, match=r"^AptParams\.lanes must be "):
        Rescale(AptParams(lanes=5))
    dut = Rescale(SHAPES[0])
    assert dut.params is SHAPES[0]
