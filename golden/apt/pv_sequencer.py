"""Reference of :mod:`rtl.apt.pv_sequencer`: element lists and the order of PV (quad dataflow).

A row of a tile has a list of ``tile_k`` places: its high-precision elements lie at positions 0 up,
its low-precision ones from ``tile_k - 1`` down, both in the order of their keys. A row is up to
three runs, each with a sum of its own: HH over all elements, then MID (``P_H * V_L`` and
``P_L * V_H``) and LL over the high-precision ones.
"""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64

from .dp_mac import split
from .quad_shape import OWNERS


__all__ = ["Element", "Lists", "issue", "lists", "owner_lists", "run_sums", "tile_sums"]


class Lists(NamedTuple):
    """Lists of rows; arrays ``[rows, tile_k]`` and ``[rows]``. What is not in a list reads 0."""

    key: np.ndarray
    high: np.ndarray     #: P_H, 0 up
    low: np.ndarray      #: P_L, signed
    n_valid: np.ndarray  #: elements of the row
    n_hp: np.ndarray     #: those in high precision


class Element(NamedTuple):
    """One cycle of an owner: a key of V, a segment of it, and what it is multiplied by."""

    row_block: int
    pass_: int     #: column pass
    shift: int     #: segments that the run's sum is shifted left by: HH 2, MID 1, LL 0
    key: int
    lsb: int       #: segment of V: 1 is the LSB
    p: int         #: segment of P
    first: int     #: of its run
    last: int
    row_first: int  #: first run of the row's column pass
    row_last: int   #: last run of the row


def lists(p, hp, lp, params):
    """Lists of a tile's rows from words P ``[rows, tile_k]`` and its two masks (bool)."""
    p, hp, lp = as_int64(p), np.asarray(hp, bool), np.asarray(lp, bool)
    if (hp & lp).any():
        raise ValueError("An element must not be in both masks")
    high, low = split(p, params)
    shape = len(p), params.tile_k
    place = {name: np.zeros(shape, np.int64) for name in ("key", "high", "low")}
    for row in range(len(p)):
        for mask, positions in ((hp[row], range(params.tile_k)),
                                (lp[row], range(params.tile_k - 1, -1, -1))):
            for key, position in zip(np.flatnonzero(mask), positions, strict=False):
                place["key"][row, position] = key
                place["high"][row, position] = high[row, key]
                place["low"][row, position] = low[row, key]
    return Lists(**place, n_valid=(hp | lp).sum(-1), n_hp=hp.sum(-1))


def owner_lists(tile, owner):
    """The rows of one owner out of a tile's lists: those ``owner`` modulo four."""
    return Lists(*(array[owner::OWNERS] for array in tile))


def issue(owner, blocks, params):
    """What an owner issues for its first ``blocks`` rows: the list of :class:`Element`."""
    elements = []
    for row in range(blocks):
        n_hp, n_lp = int(owner.n_hp[row]), int(owner.n_valid[row] - owner.n_hp[row])
        if n_hp + n_lp == 0:
            continue
        hp = list(range(n_hp))
        lp = [params.tile_k - 1 - i for i in range(n_lp)]
        # A run: its shift, and (position, segment of V, which segment of P) of its elements.
        runs = [(2, [(position, 0, owner.high) for position in hp + lp])]
        if n_hp:
            runs += [(1, [(position, 1, owner.high) for position in hp]
                      + [(position, 0, owner.low) for position in hp]),
                     (0, [(position, 1, owner.low) for position in hp])]
        for pass_ in range(params.column_passes):
            for number, (shift, run) in enumerate(runs):
                row_last = number == len(runs) - 1 and pass_ == params.column_passes - 1
                elements += [
                    Element(row, pass_, shift, int(owner.key[row, position]), lsb,
                            int(segment[row, position]), int(i == 0), int(i == len(run) - 1),
                            int(number == 0), int(row_last))
                    for i, (position, lsb, segment) in enumerate(run)]
    return elements


def run_sums(elements, v, params):
    """Sums of the runs in order: ``(last element of the run, sums [pv_width])`` of each.

    ``v`` are words ``[keys, head_dim]``; columns beyond the head read 0.
    """
    columns = params.column_passes * params.pv_width
    segments = [np.pad(segment, ((0, 0), (0, columns - params.head_dim)))
                for segment in split(v, params)]
    runs, total = [], None
    for element in elements:
        begin = element.pass_ * params.pv_width
        product = element.p * segments[element.lsb][element.key, begin:begin + params.pv_width]
        total = product if element.first else total + product
        if element.last:
            runs.append((element, total))
    return runs


def tile_sums(runs, blocks, params):
    """Sums of P times V ``[blocks, head_dim]`` of an owner's rows out of its :func:`run_sums`."""
    sums = np.zeros((blocks, params.column_passes * params.pv_width), np.int64)
    for element, total in runs:
        begin = element.pass_ * params.pv_width
        sums[element.row_block, begin:begin + params.pv_width] += (
            total << element.shift * params.segment_bits)
    return sums[:, :params.head_dim]
