"""The demo's picture: codes within the limit on loss, figures that a second formula agrees with."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from golden.apt.params import AptParams
from golden.dit.tiles import load_tiles
from verif.demo_picture import LOST_LIMIT, CodecView, best_codes, draw


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
def test_best_codes_stay_within_the_limit_and_save_something(codec):
    tile = load_tiles()[1]
    view = best_codes(tile, dataclasses.replace(AptParams(), codec=codec))
    assert 0 < view.lost <= LOST_LIMIT
    assert view.cost < 1


def test_the_picture_is_written(tmp_path):
    tile = load_tiles()[1]
    views = [CodecView(str(index), tile, *tile.masks) for index in range(3)]
    draw(tmp_path / "tile.png", np.zeros((64, 64, 3), np.uint8), tile, views)
    picture = np.asarray(Image.open(tmp_path / "tile.png").convert("RGB"))
    assert picture.shape[0] > 400 and picture.shape[1] > 800
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
