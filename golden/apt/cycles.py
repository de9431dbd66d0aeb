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

from .cycles_memory import LoadCycles, Memory
from .cycles_pv import OutputCycles, pv_end
from .cycles_softmax import SoftmaxCycles
from .job import Region, panel
from .quad_shape import BLOCK_KEYS, OWNERS


__all__ = ["Cycles", "Work", "ideal", "predict", "work_of"]

#: From a job's first word to the walk of its first tile; cycles of a region that is ordered.
_JOB, _REGION = 66, 5
#: From what a phase waits for, or the end of the one before, to its begin.
_BEGIN = 2
#: From a begin to the first block.
_FIRST_BLOCK = 4
#: From a scale word of K to the factor of the logits, about; and from one of V to its logarithm.
_SCALE, _UNIT = 45, 17
#: From the last word of O to the end of the job: queue, and half a burst.
_STORED = 60


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


class _Head:
    """A head's step on its way through the engine: what is known so far, by tile."""

    def __init__(self, works, layout, dense, has_state, memory):
        self.layout, self.params = layout, layout.params
        self.dense, self.has_state = dense, has_state
        self.tiles = [(i, j, work) for i, row in enumerate(works) for j, work in enumerate(row)]
        self.softmax = SoftmaxCycles(self.params)
        self.output = OutputCycles(self.params, memory.beats_a_cycle)
        self.loads = LoadCycles(memory, self.params)
        self.walker = _JOB
        self.k, self.v = [], []             # Loaded
        self.listed, self.pv_ends, self.done = [], [], []

    def order(self, s):
        """Order the loads of tile ``s``, as the tile walker does."""
        i, j, _ = self.tiles[s]
        tile, last = i * self.layout.key_tiles + j, j == self.layout.key_tiles - 1
        now = max(self.walker, self.listed[s - 2] + 1 if s >= 2 else 0) + 1
        for region, wanted, number in (
                (Region.Q, j == 0, i), (Region.ROWS_IN, j == 0 and self.has_state, i),
                (Region.CODE_IN, not self.dense, tile), (Region.STATE_IN, self.has_state, tile),
                (Region.K, True, j)):
            if wanted:
                loaded = self._load(now + _REGION - 1, region, number)
            now += _REGION if wanted else 1
        self.k.append(loaded)
        # Stores are ordered next: of masks and state, and at the end of a query tile of the rest.
        now += 4 * _REGION if last else 2 * _REGION + 2
        now = max(now + 2, self.pv_ends[s - 2] + 1 if s >= 2 else 0) + _REGION - 1
        self.v.append(self._load(now, Region.V, j))
        self.walker = now + 1

    def _load(self, ordered, region, number):
        head = self.params.scale_beats if region in (Region.Q, Region.K, Region.V) else 0
        return self.loads.load(ordered, panel(region, self.layout), number, head)

    def qk_ready(self, s):
        """When QK of tile ``s`` may begin."""
        return max(self.k[s].end + _BEGIN, self.k[s].first + _SCALE)

    def qk(self, s, start):
        """When QK of tile ``s`` ends."""
        _, j, work = self.tiles[s]
        params = self.params
        low, high = (max(passes * params.qk_chunks, params.step_keys) * params.block_steps
                     for passes in (1, 4))
        take = start + _FIRST_BLOCK  # of the next block row's first block
        unit_v, last = self.v[s].first + _UNIT, j == self.layout.key_tiles - 1
        rows = ceil_div(work.rows, OWNERS)
        before = [start + 1, start + 2]  # when the code of the block row at hand was taken
        for b in range(rows):
            blocks = int(work.hp_blocks[b] + work.lp_blocks[b])
            take = max(take, self.softmax.slot())
            take += int(work.hp_blocks[b]) * high + int(work.lp_blocks[b]) * low or 1
            before.append(take)
            self.softmax.block_row(take + 1, blocks, min(OWNERS, work.rows - OWNERS * b),
                                   unit_v=unit_v, last=last)
        outside = params.row_blocks - rows
        self.listed.append(self.softmax.end_tile(outside))
        # Code of block rows without rows is taken too, a word a cycle.
        return max(take, before[rows - 1] + outside - 1) + 2

    def pv_ready(self, s):
        """When PV of tile ``s`` may begin."""
        return max(self.listed[s], self.v[s].end, self.done[s - 2] if s >= 2 else 0) + _BEGIN

    def pv(self, s, start):
        """When PV of tile ``s`` ends."""
        _, j, work = self.tiles[s]
        end = pv_end(work, start, self.output, self.params)
        self.pv_ends.append(end)
        self.done.append(self.output.done(start))
        if j == self.layout.key_tiles - 1:
            self.output.finish(self.done[-1], work.rows)
        return end


def predict(works, layout, *, dense, has_state, memory=None):
    """:class:`Cycles` of a head's step.

    Parameters
    ----------
    works : list of lists of :class:`Work`
        Of each query tile its key tiles, see :func:`work_of`.
    layout : :class:`~golden.apt.layout.Layout`
        Sizes.
    dense, has_state : :class:`bool`
        Whether old masks, and old state, are loaded.
    memory : :class:`~golden.apt.cycles_memory.Memory` or ``None``
        Its speed; without, that of :class:`Memory`'s defaults.

    Raises :class:`ValueError` for another dataflow than quad.
    """
    check_choice(layout.params, "dataflow", ("quad",))
    head = _Head(works, layout, dense, has_state, memory or Memory())
    tiles = len(head.tiles)
    qk_total = pv_total = now = 0
    s = t = 0  # tiles whose QK, and whose PV, have begun
    head.order(0)
    while t < tiles:
        # QK goes first if it can begin; it is two tiles ahead at most.
        qk = max(head.qk_ready(s), now) if s < tiles and s < t + 2 else math.inf
        pv = max(head.pv_ready(t), now) if t < s else math.inf
        if qk <= pv:
            end = head.qk(s, qk)
            qk_total += end - qk
            s += 1
        else:
            end = head.pv(t, pv)
            pv_total += end - pv
            t += 1
        now = end + _BEGIN
        if s < tiles and s == len(head.k) and t >= s - 1:
            head.order(s)
    return Cycles(round(max(now, head.output.out) + _STORED), round(qk_total), round(pv_total))
