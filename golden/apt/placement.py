"""Placement of a tile's keys on banks (APT 4.4), computed where the masks are known: the driver.

A placement is a permutation of the keys of a tile, ``table``: position ``p = lanes * slot + bank``
holds key ``table[p]``. There are ``tile_k`` positions, so banks from ``tile_k % lanes`` on hold one
key less where the lanes do not divide the tile. Masks are given and stored in key order.
"""

import numpy as np

from golden.common.arith import as_int64

from .params import AptParams


__all__ = ["as_masks", "balanced_tables", "correlated_tables", "modulo_tables", "placement_tables",
           "table_beats"]


def as_masks(masks, params):
    """One tile or a batch as a bool array ``[tiles, tile_q, tile_k]``.

    Raises :class:`TypeError` for floats, :class:`ValueError` for another shape or other values
    than 0 and 1.
    """
    if not isinstance(params, AptParams):
        raise TypeError(f"Params must be an AptParams, not {params!r}")
    masks = np.asarray(masks)
    if masks.dtype != bool:
        masks = as_int64(masks)
        if masks.size and (masks.min() < 0 or masks.max() > 1):
            raise ValueError(f"Mask must hold 0 and 1, not {masks.min()}..{masks.max()}")
        masks = masks.astype(bool)
    tile = params.tile_q, params.tile_k
    if masks.ndim not in (2, 3) or masks.shape[-2:] != tile:
        raise ValueError(f"Mask must be [tiles,] {tile[0]} x {tile[1]}, not {masks.shape}")
    return masks.reshape(-1, *tile)


def _by_falling_count(masks):
    """Keys of each tile, the one with most valid elements first; ties in key order."""
    return np.argsort(-masks.sum(axis=1, dtype=np.int32), axis=1, kind="stable")


def modulo_tables(masks, params):
    """Key ``k`` at position ``k``: bank ``k % lanes``, as in the paper."""
    masks = as_masks(masks, params)
    return np.tile(np.arange(params.tile_k, dtype=np.int32), (len(masks), 1))


def balanced_tables(masks, params):
    """Keys by falling valid count, dealt over the banks in snake order."""
    masks = as_masks(masks, params)
    positions = np.arange(params.slots * params.lanes).reshape(params.slots, params.lanes)
    positions[1::2] = positions[1::2, ::-1].copy()
    positions = positions.reshape(-1)
    positions = positions[positions < params.tile_k]
    tables = np.empty((len(masks), params.tile_k), np.int32)
    tables[:, positions] = _by_falling_count(masks)
    return tables


def correlated_tables(masks, params):
    """Keys by falling valid count, each to the bank whose load it overlaps least.

    The load of a bank is, row by row, the number of valid elements that its keys have. The cost
    of a bank for a key is four times its load summed over the key's valid rows, plus its load
    summed over all rows: the first term keeps elements of one row apart, the second keeps the
    banks' totals level, which is what counts once the window is wide. The cheapest bank that has
    a free slot gets the key, the lowest numbered of equals. A bank is filled from slot 0 up.
    """
    masks = as_masks(masks, params)
    tiles, lanes = len(masks), params.lanes
    order = _by_falling_count(masks)
    capacity = np.bincount(np.arange(params.tile_k) % lanes, minlength=lanes)
    load = np.zeros((tiles, params.tile_q, lanes), np.float32)  # small integers: exact
    total = np.zeros((tiles, lanes), np.float32)
    used = np.zeros((tiles, lanes), np.int64)
    tables = np.empty((tiles, params.tile_k), np.int32)
    columns = np.ascontiguousarray(masks.transpose(0, 2, 1)).astype(np.float32)
    every = np.arange(tiles)
    for rank in range(params.tile_k):
        key = order[:, rank]
        column = columns[every, key]
        cost = 4 * np.matmul(column[:, None, :], load)[:, 0] + total
        cost[used >= capacity] = np.inf
        bank = cost.argmin(axis=1)
        tables[every, used[every, bank] * lanes + bank] = key
        used[every, bank] += 1
        load[every, :, bank] += column
        total[every, bank] += column.sum(axis=1)
    return tables


def placement_tables(masks, params):
    """The tables ``[tiles, tile_k]`` of ``params.placement`` for each tile of ``masks``."""
    rule = {"modulo": modulo_tables, "balanced": balanced_tables,
            "correlated": correlated_tables}[params.placement]
    return rule(masks, params)


def table_beats(tables, params):
    """Tables as the hardware loads them: ``[tiles, slots, lanes, 2]`` of ``{word, lane}``.

    Beat ``slot`` tells each bank the word and the lane of the mask row that its key is in: key
    ``lanes * word + lane``. What stands for positions from ``tile_k`` on is 0 and not used.
    """
    tables = as_int64(tables).reshape(-1, params.tile_k)
    if not (np.sort(tables, axis=1) == np.arange(params.tile_k)).all():
        raise ValueError(f"Table must be a permutation of 0..{params.tile_k - 1}")
    padded = np.zeros((len(tables), params.slots * params.lanes), np.int64)
    padded[:, :params.tile_k] = tables
    beats = np.stack([padded // params.lanes, padded % params.lanes], axis=-1)
    return beats.reshape(-1, params.slots, params.lanes, 2)
