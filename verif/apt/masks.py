"""Stimulus for the mask blocks: stream payloads, random and corner masks of tiles."""

import numpy as np

from golden.apt.masks import pack_mask_words
from golden.apt.thresholds import THRESHOLDS, BlockThresholds, RowColThresholds


__all__ = ["corner_masks", "mask_payloads", "random_masks", "random_thresholds", "zero_thresholds"]


def mask_payloads(hp, lp, width):
    """Payloads of a mask stream of ``width`` lanes: tile after tile, row after row."""
    words = (pack_mask_words(mask, width).ravel().tolist() for mask in (hp, lp))
    return [{"hp": high, "lp": low} for high, low in zip(*words, strict=True)]


def corner_masks(params):
    """Tiles that random masks hardly reach: ``[tiles, tile_q, tile_k]`` for HP and for LP.

    Nothing, everything in either mask, one row, one column, single elements in the corners of the
    tile, and stripes.
    """
    shape = (params.tile_q, params.tile_k)
    none, every = np.zeros(shape, bool), np.ones(shape, bool)
    tiles = [(none, none), (every, none), (none, every)]
    one = np.zeros((4, *shape), bool)
    one[range(4), [0, -1, 0, -1], [0, -1, -1, 0]] = True
    tiles += [(one[0], none), (none, one[1]), (one[2], ~one[2]), (none, one[3])]
    line, column = none.copy(), none.copy()
    line[params.tile_q // 2], column[:, params.tile_k // 2] = True, True
    stripes = every.copy()
    stripes[::2] = False
    tiles += [(line, none), (none, column), (column, line & ~column), (stripes, ~stripes)]
    hp, lp = zip(*tiles, strict=True)
    return np.stack(hp), np.stack(lp)


def random_masks(params, count, rng):
    """Random tiles of densities from 1 in 50 to 49 in 50, with structure in rows and columns."""
    shape = (count, params.tile_q, params.tile_k)
    level = rng.choice([0.02, 0.1, 0.5, 0.9, 0.98], (count, 1, 1))
    uneven = rng.random((count, params.tile_q, 1)) * rng.random((count, 1, params.tile_k)) * 4
    valid = rng.random(shape) < level * uneven
    hp = valid & (rng.random(shape) < rng.choice([0.1, 0.5, 0.9], (count, 1, 1)))
    return hp, valid & ~hp


def zero_thresholds(params):
    """A flag for any set element."""
    return THRESHOLDS[params.codec]()


def random_thresholds(params, rng):
    """Thresholds low enough that flags of both kinds come out."""
    rows, cols = params.flag_block
    block = rng.integers(0, max(rows * cols // 2, 1) + 1, 2).tolist()
    if params.codec == "block":
        return BlockThresholds(*block)
    return RowColThresholds(*rng.integers(0, params.tile_k // 2 + 1, 2).tolist(), *block)
