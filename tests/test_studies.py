"""The studies: histograms against decoded masks, the front against brute force, real figures."""

import numpy as np
import pytest

from golden.apt import address_translator, mask_decoder, mask_encoder
from golden.apt.params import AptParams
from golden.apt.placement import placement_tables
from golden.apt.thresholds import THRESHOLDS
from golden.dit import heads
from golden.studies import codec_front, utilisation
from golden.studies.pareto import ParetoFront
from golden.studies.tiling import cut


SIZE = {"tile_q": 12, "tile_k": 8, "lanes": 4, "window_qk": 1, "window_pv": 1}
CODECS = [
    AptParams(**SIZE, codec="block", block_rows=4, block_cols=8),
    AptParams(**SIZE, codec="block", block_rows=5, block_cols=3),
    AptParams(**SIZE, codec="rowcol"),
    AptParams(**SIZE, codec="rowcol", rowcol_decode="and"),
]
IDS = ["block 4x8", "block 5x3", "rowcol or", "rowcol and"]


@pytest.fixture(scope="module")
def small_heads():
    """Two heads of 36 queries and 24 keys with clustered masks."""
    rng = np.random.default_rng(11)
    result = []
    for width in (3, 9):
        distance = np.abs(np.arange(36)[:, None] / 1.5 - np.arange(24))
        p = np.exp(-distance / width + rng.normal(0, 0.7, (36, 24))).astype(np.float32)
        p /= p.sum(axis=1, keepdims=True)
        result.append((p, *heads.masks_of(p, *heads.calibrate(p))))
    return result


def decoded_figures(head_list, params, thresholds):
    """The figures by their definitions, from masks that the golden codec has encoded."""
    elements = high_count = low_count = 0
    mass = lost = demoted = 0.0
    for p, high, valid in head_list:
        p, high, valid = (cut(array, params.tile_q, params.tile_k) for array in (p, high, valid))
        code = mask_encoder.encode(high, valid & ~high, thresholds, params)
        new_high, new_low = mask_decoder.decode(code, 0, params.tile_q, params.tile_k, params)
        elements += p.size
        high_count += new_high.sum()
        low_count += new_low.sum()
        p = p.astype(np.float64)
        mass += p.sum()
        lost += p[valid & ~(new_high | new_low)].sum()
        demoted += p[high & new_low].sum()
    return (high_count / elements, (high_count + low_count) / elements, lost / mass, demoted / mass,
            (high_count + low_count / 4) / elements)


def all_settings(params, head_list):
    sweep = codec_front.sweep_of(params)
    for head in head_list:
        sweep.add(*head)
    parts = list(sweep.slices())
    assert len(parts) == sweep.slice_count
    labels = np.concatenate([part.labels for part in parts])
    figures = np.stack([np.concatenate([getattr(part, name) for part in parts])
                        for name in ("high", "valid", "lost", "demoted", "cost")], axis=1)
    return sweep, labels, figures


@pytest.mark.parametrize("params", CODECS, ids=IDS)
def test_sweep_equals_the_decoded_masks(params, small_heads):
    sweep, labels, figures = all_settings(params, small_heads)
    kind = THRESHOLDS[params.codec]
    assert sweep.names == kind._fields
    rows, cols = params.flag_block
    counts = [params.tile_k + 1 if name.startswith("k_row") else rows * cols + 1
              for name in sweep.names]
    assert len(labels) == np.prod(counts) == len(np.unique(labels, axis=0))
    assert labels.min() == 0 and (labels.max(axis=0) + 1).tolist() == counts

    rng = np.random.default_rng(2)
    chosen = np.concatenate([rng.choice(len(labels), 60, replace=False), [0, len(labels) - 1]])
    for index in chosen:
        expected = decoded_figures(small_heads, params, kind(*labels[index].tolist()))
        assert figures[index] == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(figures[chosen].round(5), axis=0)) > 20  # they do differ


@pytest.mark.parametrize("params", CODECS, ids=IDS)
def test_best_settings_and_front(params, small_heads):
    sweep, labels, figures = all_settings(params, small_heads)
    steps = []
    result = codec_front.evaluate(sweep, (0.01, 0.05), lambda: steps.append(0))
    assert len(steps) == sweep.slice_count and result.settings == len(labels)
    expected_mass = sum(p[high].sum() for p, high, _ in small_heads)
    assert result.high_mass == pytest.approx(expected_mass / 72, rel=1e-5)
    _, _, lost, demoted, cost = figures.T
    for limit in (0.01, 0.05):
        best = result.best[limit]
        assert best.lost <= limit
        assert best.figure == (cost + 0.3 * demoted)[lost <= limit].min()
        (index,) = np.flatnonzero((labels == list(best.thresholds.values())).all(axis=1))
        assert (best.cost, best.lost, best.demoted) == tuple(figures[index][[4, 2, 3]])

    points = figures[:, [4, 2, 3]]
    for point, thresholds in zip(result.front, result.front_thresholds, strict=True):
        (index,) = np.flatnonzero((labels == thresholds).all(axis=1))
        assert np.array_equal(points[index], point)
    # Nothing within the limit beats the front by more than its resolution.
    cell = np.array([1e-12, *codec_front.FRONT_CELL])
    for point in points[points[:, 1] <= 0.05]:
        assert (result.front <= point + cell).all(axis=1).any()
    within = result.front[result.front_within(0.01)]
    assert len(within) and within[:, 1].max() <= 0.01
    assert (np.diff(within[:, 0]) >= 0).all() and (np.diff(within[:, 2]) < 0).all()


def test_pareto_front_against_brute_force():
    rng = np.random.default_rng(4)
    points = rng.integers(0, 12, (3000, 3)) / np.array([1, 10, 10])  # on the cells' edges: exact
    points[:, 0] = rng.random(3000) - points[:, 1] - points[:, 2]
    labels = np.arange(3000)[:, None]
    front = ParetoFront((0.9, 0.1), (1.1, 0.1))
    for part in np.array_split(np.arange(3000), 7):
        front.add(*points[part].T, labels[part])
    found, names = front.result
    assert np.array_equal(points[names[:, 0]], found)
    allowed = points[points[:, 1] <= 0.9]
    expected = [point for point in allowed
                if not ((allowed <= point).all(axis=1) & (allowed < point).any(axis=1)).any()]
    assert sorted(map(tuple, expected)) == sorted(map(tuple, found)) and len(found) > 10
    assert (np.diff(found[:, 0]) >= 0).all()


def test_tiles_of_a_head():
    head = np.arange(6 * 8).reshape(6, 8)
    tiles = cut(head, 3, 4)
    assert tiles.shape == (4, 3, 4)
    assert np.array_equal(tiles[1], head[:3, 4:]) and np.array_equal(tiles[2], head[3:, :4])
    with pytest.raises(ValueError, match=r"^Tile must divide a head of 6 x 8, not 4 x 4$"):
        cut(head, 4, 4)


# Utilisation

@pytest.mark.parametrize("placement", ["modulo", "balanced", "correlated"])
@pytest.mark.parametrize("tile_k", [32, 48])
def test_usage_of_a_head(placement, tile_k):
    rng = np.random.default_rng(9)
    mask = rng.random((32, 96)) < np.linspace(0.1, 0.8, 96)
    params = utilisation.engine(16, tile_k, placement)
    *usages, bound = utilisation.head_usage(mask, params, (1, 4, 99))
    tiles = cut(mask, 16, tile_k)
    for usage, window in zip(usages, (1, 4, 16), strict=True):
        assert usage.elements == mask.sum()
        assert usage.share == pytest.approx(address_translator.utilisation(tiles, params, window))
        assert usage.share < bound.share < 1

    slots = 0
    for tile, table in zip(tiles, placement_tables(tiles, params), strict=True):
        slots += max(sum(int(tile[:, key].sum()) for key in table[bank::16])
                     for bank in range(16))
    assert (bound.elements, bound.places) == (mask.sum(), 16 * slots)
    total = usages[0] + usages[2]
    assert total.share == pytest.approx(2 * mask.sum() / (usages[0].places + usages[2].places))


# Real heads: the figures that the README states

@pytest.fixture(scope="module")
def study_heads():
    return heads.study_capture()


@pytest.mark.full
def test_block_codec_beats_rowcol_on_real_heads(study_heads):
    sweeps = {codec: codec_front.sweep_of(AptParams(tile_k=64, codec=codec))
              for codec in ("block", "rowcol")}
    for head in heads.calibrated_heads(study_heads):
        for sweep in sweeps.values():
            sweep.add(head.p, head.high, head.valid)
    best = {codec: codec_front.evaluate(sweep, (0.01,)).best[0.01]
            for codec, sweep in sweeps.items()}
    assert best["block"].figure <= 0.85 * best["rowcol"].figure
    assert best["block"].figure == pytest.approx(0.273, abs=0.002)
    assert best["rowcol"].figure == pytest.approx(0.325, abs=0.002)


@pytest.mark.full
def test_placements_on_real_heads(study_heads):
    windows = (1, 4, 64)
    shares = {}
    for placement in ("modulo", "balanced", "correlated"):
        params = utilisation.engine(64, 128, placement)
        rows = [utilisation.head_usage(head.valid, params, windows)
                for head in heads.calibrated_heads(study_heads)]
        shares[placement] = [sum(column, utilisation.Usage()).share
                             for column in zip(*rows, strict=True)]
    assert shares["correlated"][0] == pytest.approx(0.83, abs=0.02)
    assert shares["correlated"][1] >= 0.92 and shares["balanced"][2] >= 0.95
    assert shares["modulo"][2] < shares["modulo"][3] < 0.77  # which no window can mend
