"""Captures and attention tiles: the committed file against its definition, and rebuilt in part."""

import dataclasses
import importlib.resources
import itertools
import math
import re

import numpy as np
import pytest

from golden.common.errors import UserError
from golden.dit import heads
from golden.dit.capture import Capture, Recorder, capture
from golden.dit.fixture import PICKS, fixed_point, layers_needed, steps_needed, tile_of
from golden.dit.model import attention
from golden.dit.tiles import KEYS, QUERIES, THRESHOLD_NEVER, load_tiles, save_tiles


COMMITTED = importlib.resources.files("golden.dit") / "data" / "tiles.npz"


@pytest.fixture(scope="module")
def taken():
    """Steps 3 and 4, layer 0 of the run that the first tile is of."""
    done = []
    result = capture(category=heads.CATEGORY, style=heads.STYLE, seed=heads.SEED, steps=(4, 3),
                     layers=(0,), on_step=done.append)
    assert done == [1, 2, 3, 4]  # the fifth step ends in its first layer
    return result


# Committed tiles

def test_committed_tiles_are_what_they_should_be():
    assert len(COMMITTED.read_bytes()) < 400_000
    tiles = load_tiles(COMMITTED)
    assert [(t.step, t.layer, t.head, t.query0, t.key0) for t in tiles] == list(PICKS)
    assert len({t.step for t in tiles}) >= 3 and len({t.layer for t in tiles}) >= 3
    for tile in tiles:
        assert tile.q.shape == (QUERIES, 64) and tile.k.shape == tile.v.shape == (KEYS, 64)
        assert {tile.q.dtype, tile.k.dtype, tile.v.dtype} == {np.dtype(np.int16)}
        assert min(tile.q.min(), tile.k.min(), tile.v.min()) >= -32767
        assert tile.p.dtype == np.uint16 and tile.p.shape == (QUERIES, KEYS)
        assert (tile.p.max(axis=1) == 1 << 15).all()
        assert tile.thresholds.dtype == np.int32 and tile.thresholds.shape == (QUERIES, 2)
        assert tile.thresholds.min() >= 1 and tile.thresholds.max() <= THRESHOLD_NEVER
        assert (tile.thresholds[:, 0] <= tile.thresholds[:, 1]).all()


def check_probabilities(tile):
    """P' is exp(S - max) of the codes, to nearest; term by term in exact sums."""
    for row, key in itertools.product((0, 17, 63), (0, 50, 127)):
        scores = [math.fsum(int(a) * int(b) for a, b in zip(tile.q[row], other, strict=True))
                  * 2.0 ** -(tile.e_q + tile.e_k) / 8 for other in tile.k]
        expected = 2 ** 15 * math.exp(scores[key] - max(scores))
        assert abs(tile.p[row, key] - expected) <= 0.5 + 1e-6


def test_committed_probabilities_follow_from_the_codes():
    for tile in load_tiles(COMMITTED):
        check_probabilities(tile)


def test_committed_masks_are_not_degenerate():
    high_shares, valid_shares = [], []
    for tile in load_tiles(COMMITTED):
        high, low = tile.masks
        assert not (high & low).any() and high.any() and low.any()
        high_shares.append(high.mean())
        valid_shares.append((high | low).mean())
    assert 0.05 < np.mean(high_shares) < 0.2 and 0.3 < np.mean(valid_shares) < 0.7
    rows = np.concatenate([np.logical_or(*tile.masks).sum(axis=1)
                           for tile in load_tiles(COMMITTED)])
    assert rows.min() == 0 and rows.max() == KEYS  # empty and full rows are among them


def test_first_tile_is_rebuilt(taken):
    """Within what another BLAS may change; on one machine a rebuild is byte-identical."""
    stored, tile = load_tiles(COMMITTED)[0], tile_of(taken, *PICKS[0])
    check_probabilities(tile)
    for name in ("step", "layer", "head", "query0", "key0", "e_q", "e_k", "e_v"):
        assert getattr(tile, name) == getattr(stored, name)
    for name in ("q", "k", "v", "p"):
        difference = getattr(tile, name).astype(int) - getattr(stored, name)
        assert np.abs(difference).max() <= 16 and np.abs(difference).mean() < 1
    assert np.abs(tile.thresholds / stored.thresholds - 1).max() < 0.01


def test_thresholds_predict_the_masks(taken):
    """With rho of the step before, thresholds on P' give nearly the masks of the head itself."""
    step, layer, head, query0, key0 = PICKS[0]
    q, k, _ = taken.at(step, layer, head)
    p = heads.probabilities(q, k)
    high, valid = (mask[query0:query0 + QUERIES, key0:key0 + KEYS]
                   for mask in heads.masks_of(p, *heads.calibrate(p)))
    tile_high, tile_low = tile_of(taken, *PICKS[0]).masks
    assert np.mean(tile_high == high) > 0.95 and np.mean((tile_high | tile_low) == valid) > 0.95


# Files of tiles

def test_saving_is_reproducible(tmp_path):
    for name in ("a.npz", "b.npz"):
        save_tiles(tmp_path / name, load_tiles(COMMITTED))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    for tile, copy in zip(load_tiles(COMMITTED), load_tiles(tmp_path / "a.npz"), strict=True):
        for field in dataclasses.fields(tile):
            assert np.array_equal(getattr(tile, field.name), getattr(copy, field.name))


def test_environment_names_another_file(tmp_path, monkeypatch):
    save_tiles(tmp_path / "one.npz", load_tiles(COMMITTED)[1:2])
    monkeypatch.setenv("TILEWRIGHT_TILES", str(tmp_path / "one.npz"))
    (tile,) = load_tiles()
    assert (tile.step, tile.layer, tile.head) == PICKS[1][:3]
    assert len(load_tiles(COMMITTED)) == len(PICKS)


def test_errors_of_tile_files(tmp_path):
    missing = tmp_path / "none.npz"
    with pytest.raises(UserError, match=f"^tile file {re.escape(str(missing))} does not exist: "
                                        r"`python -m golden fixture -o PATH` writes one$"):
        load_tiles(missing)
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", q=np.zeros(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(UserError, match="must be a file that `golden fixture` wrote: "):
            load_tiles(tmp_path / name)
    with np.load(COMMITTED) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(tmp_path / "wide.npz", **{**arrays, "q": arrays["q"].astype(np.int32)})
    with pytest.raises(UserError, match=r"wide\.npz: q must be int16, not int32$"):
        load_tiles(tmp_path / "wide.npz")


def test_crop_cuts_and_repeats():
    tile = load_tiles(COMMITTED)[0]
    small = tile.crop(6, 10, 7)
    assert np.array_equal(small.q, tile.q[:6, :7]) and np.array_equal(small.k, tile.k[:10, :7])
    assert np.array_equal(small.v, tile.v[:10, :7]) and np.array_equal(small.p, tile.p[:6, :10])
    assert np.array_equal(small.thresholds, tile.thresholds[:6])
    large = tile.crop(100, 200, 72)
    assert large.q.shape == (100, 72) and large.k.shape == large.v.shape == (200, 72)
    assert np.array_equal(large.p[64:, 128:], tile.p[:36, :72])
    with pytest.raises(ValueError, match=r"^Tile rows must be at least 1, not 0$"):
        tile.crop(0, 1, 1)


@pytest.mark.parametrize("values", [
    [0.0, 0.0], [1.0, -0.25], [0.99999, 0.1], [-0.9999999, 0.5], [-3.7e4, 12.0], [1e-3, -2e-4],
    [32767.5, 1.0], [5.0]])
def test_fixed_point(values):
    codes, exponent = fixed_point(np.array(values, np.float32))
    assert codes.dtype == np.int16 and np.abs(codes.astype(int)).max() <= 32767
    assert np.abs(codes * 2.0 ** -exponent - np.float32(values)).max() <= 2.0 ** -exponent / 2
    peak = max(map(abs, values))
    if peak:  # one more bit would not fit
        assert np.rint(np.float64(np.float32(peak)) * 2 ** (exponent + 1)) > 32767


# Captures

def test_capture_holds_what_was_asked_for(taken):
    assert taken.steps == (3, 4) and taken.layers == (0,)
    assert taken.q.shape == taken.k.shape == taken.v.shape == (2, 1, 3, 1024, 64)
    q, _, v = taken.at(4, 0, 2)
    assert np.array_equal(q, taken.q[1, 0, 2]) and np.array_equal(v, taken.v[1, 0, 2])
    assert np.abs(taken.q[0] - taken.q[1]).max() > 1e-3
    assert steps_needed() == [3, 4, 13, 14, 23, 24] and layers_needed() == [0, 4, 9]


def test_capture_file(taken, tmp_path):
    taken.save(tmp_path / "a" / "capture.npz")
    copy = Capture.load(tmp_path / "a" / "capture.npz")
    for field in dataclasses.fields(Capture):
        assert np.array_equal(getattr(copy, field.name), getattr(taken, field.name))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(UserError, match="must be a file that `golden capture` wrote: "):
        Capture.load(tmp_path / "text.npz")
    dataclasses.replace(taken, v=taken.v[..., :32]).save(tmp_path / "short.npz")
    with pytest.raises(UserError, match=r"short\.npz: v must be float32 of shape \(2, 1, 3, 1024, "
                                        r"64\), not float32 of shape \(2, 1, 3, 1024, 32\)$"):
        Capture.load(tmp_path / "short.npz")


def test_recorder_leaves_the_attention_alone():
    rng = np.random.default_rng(0)
    recorder = Recorder((1, 0, 1), (2,))
    assert recorder.steps == (0, 1) and not recorder.complete
    tensors = {step: rng.standard_normal((3, 3, 8, 64), dtype=np.float32) for step in range(3)}
    for step, layer, guided in itertools.product(range(3), range(3), (True, False)):
        shifted = tensors[step] + layer + guided
        mixed = recorder(*shifted, step=step, layer=layer, guided=guided)
        assert np.array_equal(mixed, attention(*shifted, step=step, layer=layer, guided=guided))
    assert recorder.complete
    result = recorder.capture(category=1, style=0, seed=9)
    for step in (0, 1):
        for got, expected in zip(result.at(step, 2, 1), tensors[step] + 2 + True, strict=True):
            assert np.array_equal(got, expected[1])


# Heads

def test_heads_have_the_shares(taken):
    names = []
    for head in heads.calibrated_heads(taken):
        names.append(head.name)
        assert np.allclose(head.p.sum(axis=1), 1, atol=1e-5)
        assert abs(head.valid.mean() - (1 - heads.PRUNED_SHARE)) < 1e-4
        assert abs(head.high.mean() - heads.HIGH_SHARE) < 1e-4
        assert not (head.high & ~head.valid).any()
        assert head.p[head.high].min() >= head.p[head.valid & ~head.high].max()
    assert names == [f"step {step} layer 0 head {head}" for step in (3, 4) for head in range(3)]


def test_study_capture_reads_its_file(taken, tmp_path):
    taken.save(tmp_path / "kept.npz")
    assert np.array_equal(heads.study_capture(tmp_path / "kept.npz").k, taken.k)
