"""Model of :mod:`rtl.apt.address_translator`: which element of a tile goes into which line.

The scanner meets the elements of a tile row by row and, within a row, slot by slot. It gives each
element the number of the line (the issue slot) in which its bank pops it:

    line(element) = max(free[bank], start[row]);  free[bank] = line(element) + 1
    start[row]    = max(end[row - window], end[row - 1] - skew)

where ``free`` is the first line that has no element of the bank, and ``end[row]`` the first line
behind every element of rows up to ``row``. The first term of ``start`` is the window: an element
waits until all rows ``window`` or more before its own have left. The second bounds how far the
banks may drift apart, and with it the FIFOs. So the lines are a function of the mask alone: how
fast masks arrive and lines leave changes when a line is issued, never what is in it.

A tile without any element has one line without elements, so that each tile has a last line.
"""

from dataclasses import dataclass

import numpy as np

from .params import AptParams
from .placement import as_masks, placement_tables


__all__ = ["Lines", "Schedule", "lines", "schedule", "transfer_cycles", "utilisation"]


@dataclass(frozen=True)
class Schedule:
    """Line numbers of a batch of tiles, each tile counted from 0.

    ``line`` is ``[tiles, tile_q, slots, lanes]``, -1 where there is no element; ``count`` the
    lines of each tile; ``start`` is ``[tiles, tile_q]``, the first line open to a row; ``end`` is
    ``[tiles, tile_q * slots]``, the lines begun once a word has been scanned.
    """

    params: AptParams
    window: int
    line: np.ndarray
    count: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class Lines:
    """All lines of a batch in order: ``valid``, ``row``, ``slot`` are ``[lines, lanes]`` (0 where
    not valid), ``base``, ``last`` and ``tile`` are ``[lines]``."""

    valid: np.ndarray
    row: np.ndarray
    slot: np.ndarray
    base: np.ndarray
    last: np.ndarray
    tile: np.ndarray


def _placed(masks, params, tables):
    """Mask bits by position: ``[tiles, tile_q, slots, lanes]``."""
    tables = np.broadcast_to(np.asarray(tables), (len(masks), params.tile_k))
    padded = np.zeros((len(masks), params.tile_q, params.slots * params.lanes), bool)
    padded[..., :params.tile_k] = np.take_along_axis(masks, tables[:, None, :], axis=2)
    return padded.reshape(len(masks), params.tile_q, params.slots, params.lanes)


def schedule(masks, params, window=None, tables=None):
    """Line numbers of one tile or a batch of tiles; see the module for the rule.

    Parameters
    ----------
    masks : array of bool or integer, ``[tiles,] tile_q x tile_k``
        Valid elements in key order.
    params : :class:`AptParams`
        Shape of the engine.
    window : :class:`int`
        Query rows that may be open at once; ``params.window_qk`` if not given.
    tables : array, ``[tiles,] tile_k``
        Placement; made by :func:`golden.apt.placement.placement_tables` if not given.
    """
    masks = as_masks(masks, params)
    window = params.att_window(window)
    skew = params.att_skew(window)
    tables = placement_tables(masks, params) if tables is None else tables
    placed = _placed(masks, params, tables)
    tiles, rows = len(masks), params.tile_q
    pushes = placed.sum(axis=2, dtype=np.int32)                  # elements of a row in a bank
    first = np.empty((rows, tiles, params.lanes), np.int32)
    ends = np.zeros((rows + 1, tiles), np.int32)                 # ends[row] is before the row
    start = np.empty((rows, tiles), np.int32)
    free = np.zeros((tiles, params.lanes), np.int32)
    for row in range(rows):
        np.maximum(ends[max(0, row + 1 - window)], ends[row] - skew, out=start[row])
        np.maximum(free, start[row, :, None], out=first[row])
        # A bank without an element in the row may show free < start: the next row lifts it again.
        free = first[row] + pushes[:, row]
        np.maximum(ends[row], np.where(pushes[:, row] > 0, free, 0).max(axis=1),
                   out=ends[row + 1])
    rank = np.cumsum(placed, axis=2, dtype=np.int32) - placed
    line = np.where(placed, first.transpose(1, 0, 2)[:, :, None] + rank, np.int32(-1))
    count = np.maximum(ends[rows], 1)
    end = np.maximum.accumulate(line.max(axis=3).reshape(tiles, -1), axis=1) + 1
    end[:, -1] = count
    return Schedule(params, window, line, count, start.T, end)


def lines(masks, params, window=None, tables=None):
    """The lines of one tile or of a batch, tile after tile; arguments as :func:`schedule`."""
    plan = schedule(masks, params, window, tables)
    offset = np.cumsum(plan.count) - plan.count
    total = int(plan.count.sum())
    tile, row, slot, bank = np.nonzero(plan.line >= 0)
    at = offset[tile] + plan.line[tile, row, slot, bank]
    shape = total, params.lanes
    valid, rows, slots = np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    valid[at, bank], rows[at, bank], slots[at, bank] = True, row, slot
    # The oldest unfinished row of a line has an element in it: a line is begun by its oldest row.
    base = np.where(valid, rows, params.tile_q).min(axis=1)
    base[~valid.any(axis=1)] = params.tile_q - 1
    last = np.zeros(total, bool)
    last[offset + plan.count - 1] = True
    return Lines(valid, rows, slots, base, last, np.repeat(np.arange(len(plan.count)), plan.count))


def transfer_cycles(plan, slot_cycles):
    """Cycle in which each line leaves the hardware, for tiles back to back from reset.

    Mask words (and tables) are there whenever they are asked for; the first word is transferred
    in cycle 0. The sink takes a line once ``slot_cycles`` cycles have passed since the one before
    (one cycle, if that had no element).

    The pipeline: a word is *pushed* into the FIFOs while fewer than ``att_depth`` lines are begun
    and not popped. A line is *popped* into the line store when no later element can enter it and,
    unless its tile has ended, a later line is begun. It is then *read* from the store, which
    holds ``att_lines``, *fetched* from it, *moved* to the output register and *taken*: a cycle
    each at the least.
    """
    params = plan.params
    depth, store = params.att_depth(plan.window), params.att_lines
    first_push = 1 if params.placement == "modulo" else params.slots + 2
    tiles = len(plan.count)
    offset = np.cumsum(plan.count) - plan.count
    # Lines begun, and lines complete, once a word has been pushed.
    begun = (plan.end + offset[:, None]).reshape(-1)
    complete = np.empty_like(plan.end)
    complete[:, :-1] = np.repeat(plan.start, params.slots, axis=1)[:, 1:]
    complete = np.minimum(complete, np.maximum(plan.end - 1, 0))
    complete[:, -1] = plan.count
    complete = (complete + offset[:, None]).reshape(-1)
    total = int(plan.count.sum())
    number = np.arange(total)
    completed_by = np.searchsorted(complete, number, side="right")
    # Until line j is popped, words after the one that begins line j + depth - 1 are held up.
    held = np.searchsorted(begun, number[:max(0, total - depth)] + depth, side="left") + 1
    holders = np.searchsorted(held, completed_by, side="right").tolist()
    held = held.tolist()
    empty = ~(plan.line.reshape(tiles, -1) >= 0).any(axis=1)
    pace = np.where(np.repeat(empty, plan.count), 1, slot_cycles).tolist()
    delay = [first_push]  # push cycle less word number, after the first holders
    reads, leaves = [], []
    popped = fetched = moved = left = free = -1
    for index, word in enumerate(completed_by.tolist()):
        popped = max(word + delay[holders[index]] + 1, popped + 1)
        if index >= store:
            popped = max(popped, reads[index - store] + 1)
        reads.append(max(popped + 1, fetched))
        fetched = max(reads[-1] + 1, moved)
        moved = max(fetched + 1, left)
        left = max(moved + 1, free)
        free = left + pace[index]
        leaves.append(left)
        if index < len(held):
            delay.append(max(delay[-1], popped + 1 - held[index]))
    return np.asarray(leaves)


def utilisation(masks, params, window=None, tables=None):
    """Valid elements / (lanes x issue slots), tiles back to back, at the block's own speed.

    An issue slot lasts ``params.chunks`` cycles. Time in which the lanes have no line because the
    scanner is behind counts as lost slots, from the first word to the end of the last slot.
    """
    plan = schedule(masks, params, window, tables)
    cycles = int(transfer_cycles(plan, params.chunks)[-1]) + params.chunks
    return int((plan.line >= 0).sum()) * params.chunks / (params.lanes * cycles)
