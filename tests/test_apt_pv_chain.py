"""PV from element lists to output: sequencers, tile sums and O update of all owners together."""

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring

from golden.apt.dp_mac import split
from golden.apt.pv_sequencer import owner_lists
from golden.common.checks import ceil_div
from rtl.apt.o_update import OUpdate
from rtl.apt.pv_sequencer import PvSequencer
from rtl.apt.pv_words import OWNERS
from rtl.apt.tile_sums import TileSums
from tests.pv_bench import ids, make, output_values, plan
from tests.sim import coin, collect, drive, simulate
from tests.test_apt_pv_sequencer import start, write
from verif.apt.pv import corner_tiles, random_tile


class Chain(wiring.Component):
    """PV without its lanes: four sequencers, tile sums and the O update."""

    def __init__(self, params):
        self.owners = [PvSequencer(params) for _ in range(OWNERS)]
        self.sums, self.update = TileSums(params), OUpdate(params)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = self.sums
        m.submodules.update = self.update
        for k, owner in enumerate(self.owners):
            m.submodules[f"owner_{k}"] = owner
            m.d.comb += [owner.flush_done.eq(self.sums.flush_done[k]),
                         owner.row_room.eq(self.update.row_room[k])]
            wiring.connect(m, self.sums.row[k], self.update.row[k])
        m.d.comb += [self.sums.read.eq(self.update.read), self.update.sums.eq(self.sums.sums)]
        return m


class Lanes:
    """The lanes of an owner and its V memory, ``way`` cycles from ``c`` to the end of a run."""

    def __init__(self, params, way):
        self.params, self.way, self.total, self.under_way = params, way, None, []
        self.shown = {}

    def step(self, now, v, c, segments):
        p = self.params
        if c.valid:
            first = v.pass_ * p.pv_width
            product = c.p * segments[v.lsb][v.key, first:first + p.pv_width]
            self.total = product if c.first else self.total + product
            if c.last:
                self.under_way.append((now + self.way, c.tag, self.total))
        valid = bool(self.under_way) and self.under_way[0][0] == now
        if valid:
            _, tag, total = self.under_way.pop(0)
            self.shown = {"tag": tag, "sums": total.reshape(p.owner_lanes, -1).tolist()}
        soon = bool(self.under_way) and self.under_way[0][0] == now + 1
        return {**self.shown, "valid": int(valid), "soon": int(soon)}


CHAINS = [make(), make(8, 6, 20, 12), make(4, 16, 16, 12, 24)]


@pytest.mark.parametrize("params, stall", [(CHAINS[0], 0.85), (CHAINS[1], 0.0), (CHAINS[2], 0.5)],
                         ids=ids)
def test_from_lists_to_output(params, stall):
    """Lists in, output out; a tile starts when the one before has been issued and the one before
    that is done."""
    rng = np.random.default_rng(7)
    corners = corner_tiles(params, rng)
    queries = [(params.tile_q, [random_tile(params, rng), corners[0], random_tile(params, rng)]),
               (params.tile_q, corners[4:6]), (params.tile_q - 3, [random_tile(params, rng, 1, 0)]),
               (params.tile_q, corners[1:4])]
    jobs, finals, outputs = plan(queries, params)
    dut = Chain(params)
    words = sum(map(len, outputs)) * dut.update.row_cycles
    received, state = [], {"done": 0, "now": 0, "tile": -1, "written": -1}

    def segments_of(tile):
        pad = params.column_passes * params.pv_width - params.head_dim
        return [np.pad(x, ((0, 0), (0, pad))) for x in split(tile.v, params)]
    values = [segments_of(job.tile) for job in jobs]

    async def writer(ctx, owner):
        for number, job in enumerate(jobs):
            while state["tile"] < number - 1 or (number and not ctx.get(dut.owners[owner].idle)):
                await ctx.tick()
            await write(ctx, dut.owners[owner], owner_lists(job.tile.lists(params), owner),
                        number % 2, params)
            while (state["done"] < number - 1 or not all(
                    ctx.get(other.idle) for other in dut.owners)) and state["tile"] < number:
                await ctx.tick()
            state["ready"] = state.get("ready", 0) + 1
            while state["ready"] < OWNERS * (number + 1):
                await ctx.tick()
            state["tile"] = number
            await start(ctx, dut.owners[owner], number % 2, ceil_div(job.rows, OWNERS))

    def writes(owner):
        async def testbench(ctx):
            await writer(ctx, owner)
        return testbench

    async def lanes(ctx):
        units = [Lanes(params, 7) for _ in range(OWNERS)]
        while len(received) < words:
            now = state["now"]
            for owner in range(OWNERS):
                v, c = ctx.get(dut.owners[owner].v), ctx.get(dut.owners[owner].c)
                ctx.set(dut.sums.run[owner],
                        units[owner].step(now, v, c, values[max(state["tile"], 0)]))
            *_, done = await ctx.tick().sample(dut.update.tile_done)
            state["done"] += done
            state["now"] += 1

    async def tiles(ctx):
        await drive(ctx, dut.update.tile, [
            {"rows": job.rows, "last": job.last, "shift": job.shift} for job in jobs])

    async def factors(ctx):
        await drive(ctx, dut.update.factor, [word for job in jobs for word in job.factors],
                    coin(0.8, 1))

    async def lasts(ctx):
        await drive(ctx, dut.update.final, finals)

    async def sink(ctx):
        received.extend(await collect(ctx, dut.update.o, words,
                                      coin(stall, 2) if stall else None))

    simulate(dut, *map(writes, range(OWNERS)), lanes, tiles, factors, lasts, sink, cycles=30_000)
    assert output_values(received, params) == [output.tolist() for output in outputs]
