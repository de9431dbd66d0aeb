"""What the tests of the O update share: tiles to give it, and a stand-in for the tile sums."""

from typing import NamedTuple

import numpy as np

from golden.apt import rescale
from golden.apt.params import AptParams
from golden.common.checks import ceil_div
from rtl.apt.o_update import OUpdate
from rtl.apt.pv_words import OWNERS, RING_SLOTS
from verif.apt.pv import factor_words, final_words


__all__ = ["Job", "Ring", "ids", "make", "output_values", "plan", "serve"]


def make(lanes=4, multipliers=4, head_dim=16, tile_q=8, tile_k=16, **fields):
    return AptParams(lanes=lanes, multipliers=multipliers, head_dim=head_dim, tile_q=tile_q,
                     tile_k=tile_k, vpu_lanes=4, **fields)


def ids(params):
    if not isinstance(params, AptParams):
        return str(params)
    return f"{params.lanes}x{params.multipliers}-{params.head_dim}-{params.segment_bits}"


class Job(NamedTuple):
    """A tile on its way to the O update."""

    tile: object
    rows: int
    last: bool
    shift: int
    factors: list
    sums: np.ndarray


def plan(queries, params, shift=None):
    """Jobs of query tiles ``[(rows, [PvTile])]``, final words, and the output ``[rows]`` of each.
    """
    jobs, finals, outputs = [], [], []
    for rows, tiles in queries:
        places = params.o_shift(len(tiles)) if shift is None else shift
        state = rescale.Rows.fresh(params.tile_q, params.head_dim)
        for number, tile in enumerate(tiles):
            inside = (np.arange(params.tile_q) < rows)[:, None]
            tile = tile._replace(hp=tile.hp & inside, lp=tile.lp & inside)
            sums = tile.sums(params)
            jobs.append(Job(tile, rows, number == len(tiles) - 1, places,
                            factor_words(state, tile, params, rows), sums))
            unit, begun, o = rescale.add_output(state, sums, tile.maximum, tile.contributes,
                                                tile.a_v, places)
            assert np.abs(o).max() < 1 << 31
            maximum, total = rescale.merge(state.maximum, state.total, tile.maximum, tile.total)
            state = rescale.Rows(maximum, total, unit, begun, o)
        finals += final_words(state, places, params, rows)
        outputs.append(rescale.normalize(state, places, params)[:rows])
    return jobs, finals, outputs


def output_values(words, params):
    """Query tiles ``[rows, head_dim]`` out of the words of ``o``."""
    layout = OUpdate(params).o.payload.shape()
    tiles, row, rows = [], [], []
    for word in map(layout.from_bits, words):
        row += list(word.values)[:word.keep]
        if len(row) == params.head_dim:
            rows.append(row)
            row = []
        if word.last:
            assert not row
            tiles.append(rows)
            rows = []
    assert not row and not rows
    return tiles


class Ring:
    """Stands for TileSums: offers rows of each owner, answers reads, keeps to the credits."""

    def __init__(self, jobs, params):
        self.queues = [[(number, row, job.sums[row]) for number, job in enumerate(jobs)
                        for row in range(owner, job.rows, OWNERS) if job.tile.contributes[row]]
                       for owner in range(OWNERS)]
        self.params, self.slots = params, [{} for _ in range(OWNERS)]
        self.write, self.offer = [0] * OWNERS, [0] * OWNERS
        self.freed, self.started = [0] * OWNERS, 2

    def fill(self, owner):
        """The next row is complete, if there is a slot and its tile may have started."""
        taken = self.write[owner]
        if (self.queues[owner] and taken - self.freed[owner] < RING_SLOTS
                and self.queues[owner][0][0] < self.started):
            self.slots[owner][taken] = self.queues[owner].pop(0)
            self.write[owner] += 1


async def serve(ctx, dut, ring, rng, cycles, stall, trace, stop):
    params = ring.params
    columns = ceil_div(params.head_dim, params.multipliers) * params.multipliers
    shown = [0] * params.multipliers
    for now in range(cycles):
        for owner in range(OWNERS):
            if not stall or rng.random() >= stall:
                ring.fill(owner)
            place = ring.offer[owner]
            valid = place in ring.slots[owner] and place < ring.write[owner]
            ctx.set(dut.row[owner].valid, valid)
            if valid:
                number, row, _ = ring.slots[owner][place]
                ctx.set(dut.row[owner].payload, {"buffer": number % 2, "row_block": row // OWNERS,
                                                 "slot": place % RING_SLOTS})
        readies = [row.ready for row in dut.row]
        *_, read, room, done, updating, held, written, idle, r0, r1, r2, r3 = (
            await ctx.tick().sample(dut.read, dut.row_room, dut.tile_done, dut.updating, dut.held,
                                    dut.o.valid, dut.idle, *readies))
        trace.append((updating, held, done, written, idle))
        # What was read in the cycle before, and the slot that is read now: the youngest of its
        # number.
        ctx.set(dut.sums, shown)
        places = [place for place in ring.slots[read.owner] if place % RING_SLOTS == read.slot]
        if places:
            sums = np.pad(ring.slots[read.owner][max(places)][2], (0, columns - params.head_dim))
            first = read.word * params.multipliers
            word = sums[first:first + params.multipliers].tolist()
            shown = word + [0] * (params.multipliers - len(word))
        for owner, ready in enumerate((r0, r1, r2, r3)):
            if ready and ring.offer[owner] in ring.slots[owner]:
                ring.offer[owner] += 1
            if room >> owner & 1:
                ring.freed[owner] += 1
                assert ring.freed[owner] <= ring.offer[owner]
        ring.started += done
        if stop(now):
            return
    raise AssertionError(f"{cycles} cycles passed")
