"""The demo's picture: codes within the limit on loss, figures that a second formula agrees with."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from golden.apt.params import AptParams
from golden.dit.heads import calibrated_heads, study_capture
from golden.dit.tiles import load_tiles
from golden.studies.codec_front import evaluate, sweep_of
from verif.demo_picture import STUDY_THRESHOLDS, CodecView, coded, draw


def test_element_masks_lose_nothing():
    tile = load_tiles()[0]
    view = CodecView("element masks", tile, *tile.masks)
    assert (view.lost, view.demoted) == (0, 0)
    assert view.cost == pytest.approx(view.high_share + (view.valid - view.high_share) / 4)


def test_figures_of_a_view():
    tile = load_tiles()[0]
    high, low = tile.masks
    nothing = np.zeros_like(high)
    view = CodecView("all low", tile, nothing, ~nothing)
    p = tile.p.astype(float)
    assert (view.valid, view.high_share, view.cost, view.lost) == (1, 0, 0.25, 0)
    assert view.demoted == pytest.approx(p[high].sum() / p.sum())
    view = CodecView("nothing", tile, nothing, nothing)
    assert view.demoted == 0
    assert view.lost == pytest.approx(p[high | low].sum() / p.sum())


@pytest.mark.parametrize("codec", ["rowcol", "block"])
def test_a_codec_keeps_most_of_the_mass_and_saves_something(codec):
    view = coded(load_tiles()[2], dataclasses.replace(AptParams(), codec=codec))
    assert view.cost < 0.3 and view.lost < 0.02
    assert view.valid > CodecView("", view.tile, *view.tile.masks).valid


@pytest.mark.full
@pytest.mark.parametrize("codec", ["rowcol", "block"])
def test_thresholds_are_the_studys(codec):
    sweep = sweep_of(AptParams(codec=codec))
    for head in calibrated_heads(study_capture()):
        sweep.add(head.p, head.high, head.valid)
    best = evaluate(sweep, [0.01]).best[0.01]
    assert STUDY_THRESHOLDS[codec]._asdict() == best.thresholds


def test_the_picture_is_written(tmp_path):
    tile = load_tiles()[1]
    views = [CodecView(str(index), tile, *tile.masks) for index in range(3)]
    draw(tmp_path / "tile.png", np.zeros((64, 64, 3), np.uint8), tile, views)
    picture = np.asarray(Image.open(tmp_path / "tile.png").convert("RGB"))
    assert picture.shape[0] > 400 and picture.shape[1] > 800
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
