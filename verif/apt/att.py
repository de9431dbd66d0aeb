"""Vectors and payloads of the address translator, for its bench and its native tests."""

import numpy as np

from golden.apt.address_translator import lines
from golden.apt.placement import placement_tables, table_beats


__all__ = ["SlotGaps", "corner_tiles", "line_payloads", "random_tables", "random_tiles",
           "table_payloads", "word_payloads"]


def corner_tiles(params):
    """Tiles that random ones do not come near, by name; two that are alike stand in a row."""
    rows, keys = params.tile_q, params.tile_k
    row, key = np.indices((rows, keys))
    corners = {
        "empty": np.zeros((rows, keys), bool),
        "empty again": np.zeros((rows, keys), bool),
        "full": np.ones((rows, keys), bool),
        "one column": key == keys - 1,
        "one bank": key % params.lanes == 1,
        "last bank": key % params.lanes == params.lanes - 1,
        "one row": row == rows // 2,
        "first element": (row == 0) & (key == 0),
        "last element": (row == rows - 1) & (key == keys - 1),
        "first row and last": (row == 0) | (row == rows - 1),
        "diagonal": row % params.lanes == key % params.lanes,
        "every other row": row % 2 == 1,
        "one bank, then the others": (key % params.lanes == 0) == (row < rows // 2),
    }
    return np.stack(list(corners.values()))


def random_tiles(params, count, rng):
    """Tiles of all densities; rows, columns and banks have densities of their own."""
    shape = count, params.tile_q, params.tile_k
    tile = rng.random((count, 1, 1))
    row = rng.random((count, params.tile_q, 1)) ** rng.choice([0, 1, 3], (count, 1, 1))
    column = rng.random((count, 1, params.tile_k)) ** rng.choice([0, 1, 3], (count, 1, 1))
    bank = rng.random((count, 1, params.lanes)) ** rng.choice([0, 4], (count, 1, 1))
    bank = np.tile(bank, params.slots)[..., :params.tile_k]
    return rng.random(shape) < tile * row * column * bank


def random_tables(params, count, rng):
    """Placements that no rule would make, unless the design has none to choose."""
    if params.placement == "modulo":
        return np.tile(np.arange(params.tile_k), (count, 1))
    return rng.permuted(np.tile(np.arange(params.tile_k), (count, 1)), axis=1)


def word_payloads(masks, params, rng=None):
    """Mask words of tiles as integers; with ``rng`` the bits beyond a row's end are random."""
    shape = *np.shape(masks)[:-1], params.slots * params.lanes
    padded = np.zeros(shape, bool) if rng is None else rng.random(shape) < 0.5
    padded[..., :params.tile_k] = masks
    words = padded.reshape(-1, params.lanes)
    return [sum(1 << lane for lane in np.flatnonzero(word).tolist()) for word in words]


def table_payloads(tables, params):
    """Beats of tables: lists of ``{word, lane}``."""
    return [[{"word": word, "lane": lane} for word, lane in beat]
            for beat in table_beats(tables, params).reshape(-1, params.lanes, 2).tolist()]


def line_payloads(masks, params, window, tables=None):
    """The lines that the design must emit, as payloads."""
    tables = placement_tables(masks, params) if tables is None else tables
    att = lines(masks, params, window, tables)
    columns = (att.valid.astype(int).tolist(), att.row.tolist(), att.slot.tolist(),
               att.base.tolist(), att.last.astype(int).tolist())
    return [{"banks": [{"valid": v, "row": r, "slot": s}
                       for v, r, s in zip(valid, row, slot, strict=True)],
             "base": base, "last": last}
            for valid, row, slot, base, last in zip(*columns, strict=True)]


class SlotGaps:
    """Gaps of a sink that keeps each line for ``cycles`` cycles, a line without elements for one.

    ``taken`` gives the lines received so far, ``empty`` whether one has no element.
    """

    def __init__(self, cycles, taken, empty):
        self._cycles, self._taken, self._empty = cycles, taken, empty
        self._seen, self._wait = 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        taken = self._taken()
        if len(taken) > self._seen:
            self._seen = len(taken)
            self._wait = 0 if self._empty(taken[-1]) else self._cycles - 1
        if self._wait:
            self._wait -= 1
            return True
        return False
