"""Cycle model of the engine, quad dataflow: what a head's step takes, from its masks.

Event by event, without data: block rows through QK, softmax, thresholds and lists; runs of PV
through the flush bus and the O update; loads on the memory port; phases of the array in turn.
Constants are the latencies that the components state. It is not cycle accurate where several
streams contend; the benches hold it against the counters of the RTL.
"""

import math
from typing import NamedTuple

import numpy as np

from golden.common.checks import ceil_div, check_choice

from .job import Region, panel
from .quad_shape import BLOCK_KEYS, OWNERS


__all__ = ["Cycles", "Work", "ideal", "predict", "work_of"]

#: Cycles that the row work takes for a row: thresholds, factors of O, and of the last key tile.
_TAFA, _RESCALE, _RESCALE_LAST = 10, 13, 30
#: From the last sums of a block row to its logits' last, and on to the first P'.
_LOGITS, _SOFTMAX = 20, 8
#: From a block row's last P' to its sums, and from its thresholds to its first entry.
_SUMS, _LISTS = 6, 5
#: From a tile's start to its first block, and to its first element of PV.
_QK_START, _PV_START = 5, 7
#: Between phases.
_CHANGE = 4
#: From a run's last element to the credit for another, all idle; and to its row's offer.
_FLUSH, _ROW_DONE = 14, 19
_RUNS, _RING, _SLOTS = 2, 2, 4


class Work(NamedTuple):
    """What a tile asks of the array."""

    hp_blocks: np.ndarray  #: blocks in high precision of each block row
    lp_blocks: np.ndarray  #: blocks in low precision
    valid: np.ndarray      #: elements of PV of each row
    hp: np.ndarray         #: those in high precision
    rows: int              #: rows inside the sequence
    keys: int              #: keys inside


class Cycles(NamedTuple):
    """Predicted cycles of a head's step."""

    total: int  #: from the job's first word to its last store
    qk: int     #: in QK
    pv: int     #: in PV


def work_of(tiles, layout, *, dense):
    """:class:`Work` of all tiles of a step, ``[query tiles][key tiles]`` of
    :class:`~golden.apt.attend.Tile`."""
    params, result = layout.params, []
    for row_tiles, rows in zip(tiles, layout.tile_rows, strict=True):
        works = []
        for tile, keys in zip(row_tiles, layout.tile_keys, strict=True):
            def blocks(mask):
                grid = np.pad(mask, ((0, -params.tile_q % OWNERS), (0, 0)))
                grid = grid.reshape(-1, OWNERS, params.key_blocks, BLOCK_KEYS)
                return grid.any(axis=(1, 3))
            hp = blocks(tile.hp)
            lp = blocks(tile.lp) & ~hp
            used_hp, used = ((tile.hp, tile.hp | tile.lp) if dense
                             else (tile.new_hp, tile.new_hp | tile.new_lp))
            works.append(Work(hp.sum(1), lp.sum(1), used.sum(1), used_hp.sum(1), rows, keys))
        result.append(works)
    return result


def ideal(works, params):
    """Products that the masks leave over products a cycle: ``(QK, PV)``."""
    per_element = params.head_dim / params.products
    elements = BLOCK_KEYS * OWNERS
    qk = sum(int(4 * w.hp_blocks.sum() + w.lp_blocks.sum()) * elements
             for row in works for w in row)
    pv = sum(int(3 * w.hp.sum() + w.valid.sum()) for row in works for w in row)
    return qk * per_element, pv * per_element


class _Softmax:
    """Block rows from QK to their lists; four slots for S, four for P'."""

    def __init__(self, params):
        self.params = params
        self.p2_ends, self.p3_ends = [0] * _SLOTS, [0] * _SLOTS
        self.tafa_end = self.rescale_end = 0

    def slot(self):
        """When the next block row of QK may begin."""
        return self.p2_ends[-_SLOTS]

    def block_row(self, qk_end, blocks, last):
        params = self.params
        keys = blocks * BLOCK_KEYS
        start = max(qk_end + _LOGITS + _SOFTMAX, self.p2_ends[-1], self.p3_ends[-_SLOTS])
        self.p2_ends = [*self.p2_ends[1:], start + max(1, keys // params.slice_keys)]
        self.tafa_end = max(self.p2_ends[-1] + _SUMS, self.tafa_end) + OWNERS * _TAFA
        start = max(self.tafa_end + 2, self.p3_ends[-1])
        self.p3_ends = [*self.p3_ends[1:], start + max(1, keys)]
        self.rescale_end = (max(self.p3_ends[-1] + _LISTS, self.rescale_end)
                            + OWNERS * (_RESCALE_LAST if last else _RESCALE))


def _qk(work, start, last, softmax, params):
    """When QK of a tile ends."""
    low, high = (max(passes * params.qk_chunks, params.step_keys) * params.block_steps
                 for passes in (1, 4))
    now = start + _QK_START
    for b in range(ceil_div(work.rows, OWNERS)):
        blocks = int(work.hp_blocks[b] + work.lp_blocks[b])
        now = max(now, softmax.slot())
        now += int(work.hp_blocks[b]) * high + int(work.lp_blocks[b]) * low or 1
        softmax.block_row(now, blocks, last)
    return now


class _Output:
    """The O update: rows one after another."""

    def __init__(self, params):
        self.cycles = ceil_div(params.head_dim, params.multipliers // 2)
        self.free = 0

    def row(self, offered):
        self.free = max(offered + 2, self.free) + self.cycles
        return self.free


def _owner_runs(work, owner, params):
    """Runs of an owner in a tile: ``(elements, first of its row, last of its row)``."""
    runs = []
    for row in range(owner, work.rows, OWNERS):
        valid, hp = int(work.valid[row]), int(work.hp[row])
        if not valid:
            continue
        for number in range(params.column_passes):
            legs = [valid, 2 * hp, hp] if hp else [valid]
            runs += [(n, not number and not k, number == params.column_passes - 1
                      and k == len(legs) - 1) for k, n in enumerate(legs)]
    return runs


def _pv(work, start, output, params):
    """When PV of a tile ends: owners go through their runs, the flush bus takes turns."""
    begin = start + _PV_START
    lanes = params.owner_lanes
    runs = [_owner_runs(work, owner, params) for owner in range(OWNERS)]
    at = [0] * OWNERS                  # next run of each
    now = [begin] * OWNERS             # when its next element may be issued
    credits = [[] for _ in range(OWNERS)]  # of each run: when its flush had begun
    room = [[] for _ in range(OWNERS)]     # of each row: when its slot was read
    rows = [0] * OWNERS
    bus, turn = begin, 0
    while any(at[o] < len(runs[o]) for o in range(OWNERS)):
        offers = []
        for owner in range(OWNERS):
            if at[owner] == len(runs[owner]):
                continue
            elements, first, _ = runs[owner][at[owner]]
            end = now[owner] + elements
            if at[owner] >= _RUNS:
                end = max(end, credits[owner][at[owner] - _RUNS] + 1)
            if first and rows[owner] >= _RING:
                end = max(end, room[owner][rows[owner] - _RING] + 1)
            offers.append((end, (owner - turn) % OWNERS, owner))
        # The bus takes what is there when it is free; of several the next in turn.
        soonest = min(offers)
        moment = max(bus, soonest[0] + _FLUSH - 1)
        ready = [offer for offer in offers if offer[0] + _FLUSH - 1 <= moment]
        end, _, owner = min(ready, key=lambda offer: offer[1])
        _, first, last = runs[owner][at[owner]]
        credits[owner].append(moment)
        bus, turn = moment + lanes, (owner + 1) % OWNERS
        now[owner] = end
        at[owner] += 1
        rows[owner] += first
        if last:
            room[owner].append(output.row(moment + lanes + _ROW_DONE - _FLUSH))
    return max([*now, begin])


class _Port:
    """Loads one after another, at a beat a cycle after a latency that overlaps."""

    def __init__(self, latency, beats_a_cycle):
        self.latency, self.rate, self.free = latency, beats_a_cycle, 0

    def load(self, ordered, beats):
        self.free = max(self.free, ordered + self.latency) + math.ceil(beats / self.rate)
        return self.free


def predict(works, layout, *, dense, has_state, latency=30, beats_a_cycle=1.0):
    """:class:`Cycles` of a head's step.

    Parameters
    ----------
    works : list of lists of :class:`Work`
        Of each query tile its key tiles, see :func:`work_of`.
    layout : :class:`~golden.apt.layout.Layout`
        Sizes.
    dense, has_state : :class:`bool`
        Whether old masks, and old state, are loaded.
    latency : :class:`int`
        Cycles from a read request to its first beat.
    beats_a_cycle : :class:`float`
        What the port moves on average.

    Raises :class:`ValueError` for another dataflow than quad.
    """
    params = layout.params
    check_choice(params, "dataflow", ("quad",))
    tiles = [(i, j, work) for i, row in enumerate(works) for j, work in enumerate(row)]
    softmax, output, port = _Softmax(params), _Output(params), _Port(latency, beats_a_cycle)
    job = 64 + 10
    listed, pv_ends, k_loaded, v_loaded, qk_ends = [], [], [], [], []
    qk_total = pv_total = 0
    now = job

    def order(s):
        """Order the loads of tile ``s``, as early as the walker does."""
        i, j, _ = tiles[s]
        ready = max(job, listed[s - 2] if s >= 2 else job)

        def beats(region, tile):
            return panel(region, layout).beats[tile]
        if j == 0:
            port.load(ready, beats(Region.Q, i))
            if has_state:
                port.load(ready, beats(Region.ROWS_IN, i))
        if not dense:
            port.load(ready, beats(Region.CODE_IN, i * layout.key_tiles + j))
        if has_state:
            port.load(ready, beats(Region.STATE_IN, i * layout.key_tiles + j))
        k_loaded.append(port.load(ready, beats(Region.K, j)))
        v_loaded.append(port.load(max(ready, pv_ends[s - 2] if s >= 2 else job),
                                  beats(Region.V, j)))

    def qk(s, now):
        nonlocal qk_total
        _, j, work = tiles[s]
        start = max(now + _CHANGE, k_loaded[s])
        end = _qk(work, start, j == layout.key_tiles - 1, softmax, params)
        qk_total += end - start
        listed.append(softmax.rescale_end + 4)
        qk_ends.append(end)
        return end

    def pv(s, now):
        nonlocal pv_total
        start = max(now + _CHANGE, listed[s], v_loaded[s])
        end = _pv(tiles[s][2], start, output, params)
        pv_total += end - start
        pv_ends.append(end)
        return end

    for s in range(len(tiles)):
        order(s)
        now = qk(s, now)
        if s:
            now = pv(s - 1, now)
    now = pv(len(tiles) - 1, now)
    # The last rows of O, and the last query tile on its way out.
    rows = tiles[-1][2].rows
    stored = max(now, output.free) + 20 + rows * output.cycles
    return Cycles(stored + 40, qk_total, pv_total)
