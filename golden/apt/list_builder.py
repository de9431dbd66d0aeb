"""Reference of :mod:`rtl.apt.list_builder`: element lists of the rows of a tile, and its code.

A row has a region of ``tile_k`` entries. Its high-precision elements fill it from position 0 up,
in ascending order of their keys, and its low-precision ones from the last position down; an entry
is the key and the two segments of the probability word. The row's header is the number of entries
and that of the high-precision ones.
"""

from typing import NamedTuple

import numpy as np

from . import mask_encoder
from .dp_mac import split
from .mask_generator import generate
from .vpu import probability_words


__all__ = ["Lists", "build", "regions", "writes"]


class Lists(NamedTuple):
    """Lists of a tile; arrays ``[tile_q, tile_k]`` but for the headers and the code."""

    valid: np.ndarray     #: element is in its row's list
    hp: np.ndarray        #: in high precision
    position: np.ndarray  #: where in the region; meaningless if not valid
    high: np.ndarray      #: MSB segment of its probability word
    low: np.ndarray       #: LSB segment
    n_valid: np.ndarray   #: entries of each row
    n_hp: np.ndarray      #: those in high precision
    code: np.ndarray      #: flag pairs ``[row_blocks, key_blocks]``


def build(p, computed, thresholds, dense, counts, params):
    """The :class:`Lists` of a tile.

    Parameters
    ----------
    p : integers ``[tile_q, tile_k]``
        P' in U1.15, 0 where not computed.
    computed : bools ``[tile_q, tile_k]``
        Which elements were.
    thresholds : integers ``[tile_q, 2]``
        theta'_p and theta'_q, U1.15.
    dense : :class:`bool`
        Every computed element is listed in high precision; the code goes by the thresholds.
    counts : :class:`~golden.apt.thresholds.BlockThresholds`
        Count thresholds of the code.
    """
    new_hp, new_lp = generate(p, thresholds)
    hp = np.asarray(computed, bool) if dense else new_hp
    valid = hp if dense else new_hp | new_lp
    position = np.where(hp, np.cumsum(hp, axis=-1) - 1,
                        params.tile_k - np.cumsum(valid & ~hp, axis=-1))
    high, low = split(probability_words(p, params), params)
    code = mask_encoder.encode(new_hp, new_lp, counts, params)
    return Lists(valid, hp, position, high, low, valid.sum(-1), hp.sum(-1),
                 code.reshape(params.row_blocks, params.key_blocks))


def writes(lists, row_block, params):
    """Entries of a block row in the order in which they are written, up to four at once.

    For each key with an entry, the four rows' ``(position, key, high, low)``, ``None`` where the
    row has none.
    """
    first = row_block * params.block_rows
    rows = range(first, first + params.block_rows)
    keys = np.flatnonzero(lists.valid[first:first + params.block_rows].any(axis=0)).tolist()
    return [[(int(lists.position[row, key]), key, int(lists.high[row, key]),
              int(lists.low[row, key])) if lists.valid[row, key] else None for row in rows]
            for key in keys]


def regions(lists, params):
    """What the regions hold in the end: arrays ``[tile_q, tile_k]`` of key, MSB and LSB segment,
    -1 as the key of a position without an entry."""
    key = np.full(lists.valid.shape, -1)
    high, low = np.zeros_like(lists.high), np.zeros_like(lists.low)
    row, column = np.nonzero(lists.valid)
    place = row, lists.position[row, column]
    key[place], high[place], low[place] = (column, lists.high[row, column],
                                           lists.low[row, column])
    return key, high, low
