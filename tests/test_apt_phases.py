"""Phases of the array: each begins when it has what it needs, in order, and none is forgotten."""

import numpy as np
import pytest

from golden.apt.params import AptParams
from rtl.apt.phases import Phases
from tests.sim import simulate


PARAMS = AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4)
TILES = 14


def tiles(rng):
    """What is told of the tiles, and what PV is to be told."""
    rows = rng.integers(1, PARAMS.tile_q + 1, TILES).tolist()
    shift = rng.integers(0, 8, TILES).tolist()
    return [{"rows": rows[k], "first": k % 3 == 0, "last": k % 3 == 2, "shift": shift[k]}
            for k in range(TILES)]


class World:
    """Everything around the phases, which never has more than two tiles ahead of their use.

    ``chance`` is that of each event in a cycle in which it may happen, but for one that is
    ``late``; ``length`` the cycles of a phase at most.
    """

    def __init__(self, chance, length, seed, late=None):
        self.rng = np.random.default_rng(seed)
        self.chance, self.length, self.late = chance, length, late
        self.tiles = tiles(self.rng)
        self.begun = {"qk": 0, "pv": 0}
        self.ended = {"qk": 0, "pv": 0}
        self.given = dict.fromkeys(("k_loaded", "v_loaded", "listed", "updated"), 0)
        self.order, self.starts, self.ends, self.phase, self.left = [], [], [], None, 0

    def may(self):
        """Which events may happen now."""
        given, ended = self.given, self.ended
        return {
            "k_loaded": given["k_loaded"] < min(TILES, ended["qk"] + 2),
            "v_loaded": given["v_loaded"] < min(TILES, ended["pv"] + 2),
            "listed": given["listed"] < min(ended["qk"], self.begun["pv"] + 2),
            "updated": given["updated"] < ended["pv"],
        }

    def flip(self):
        return self.rng.random() < self.chance

    async def run(self, ctx, dut):
        cycle = 0
        while self.ended["pv"] < TILES:
            events = {name: ok and (self.flip() if name != self.late else
                                    self.rng.random() < 0.01)
                      for name, ok in self.may().items()}
            for name, event in events.items():
                ctx.set(getattr(dut, name), int(event))
            if self.begun["qk"] < TILES and (ctx.get(dut.tile.valid) or self.flip()):
                ctx.set(dut.tile.valid, 1)
                ctx.set(dut.tile.p.tile, self.tiles[self.begun["qk"]])
                ctx.set(dut.tile.p.factor, {"mantissa": 7 + self.begun["qk"]})
            for name in ("qk", "pv"):
                ctx.set(getattr(dut, name).ready, int(self.flip()))
            ctx.set(dut.idle, int(self.left == 0))
            began = self.watch(ctx, dut, cycle)
            await ctx.tick()
            cycle += 1
            for name, event in events.items():
                self.given[name] += event
            if began == "qk":
                ctx.set(dut.tile.valid, 0)
            self.left = int(self.rng.integers(1, self.length + 1)) if began else max(
                0, self.left - 1)
        assert self.begun == self.ended == {"qk": TILES, "pv": TILES}

    def watch(self, ctx, dut, cycle):
        """Check what begins and ends in this cycle; returns the phase that begins."""
        in_qk, in_pv = ctx.get(dut.in_qk), ctx.get(dut.in_pv)
        assert (in_qk, in_pv) == (self.phase == "qk", self.phase == "pv")
        waits = [ctx.get(getattr(dut, f"wait_{name}")) for name in ("k", "v", "lists")]
        assert not any(waits) or self.phase is None
        done = ctx.get(dut.pv_done)
        assert not done or in_pv
        if self.phase and self.left == 0 and cycle > self.starts[-1] + 1:
            assert done == (self.phase == "pv")
            self.ended[self.phase] += 1
            self.ends.append(cycle)
            self.phase = None
            return None
        assert not done
        began = None
        for name in ("qk", "pv"):
            port = getattr(dut, name)
            if not (ctx.get(port.valid) and ctx.get(port.ready)):
                continue
            number, given = self.begun[name], self.given
            if name == "qk":
                assert given["k_loaded"] > number and number < self.begun["pv"] + 2
                assert ctx.get(port.p.tile.rows) == self.tiles[number]["rows"]
                assert ctx.get(port.p.factor.mantissa) == 7 + number
                assert ctx.get(dut.tile.ready)
            else:
                assert given["v_loaded"] > number and given["listed"] > number
                assert given["updated"] >= number - 1
                assert {key: ctx.get(getattr(port.p, key)) for key in self.tiles[number]} \
                    == self.tiles[number]
            self.begun[name] += 1
            self.order.append(name)
            self.starts.append(cycle)
            began = self.phase = name
        return began


@pytest.mark.parametrize("chance", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("length", [1, 9])
def test_every_tile_has_both_phases_in_order(chance, length):
    world = World(chance, length, seed=int(10 * chance) + length)

    async def testbench(ctx):
        await world.run(ctx, dut)

    dut = Phases(PARAMS)
    simulate(dut, testbench)
    assert world.begun == {"qk": TILES, "pv": TILES}


@pytest.mark.parametrize("late", ["k_loaded", "v_loaded", "listed", "updated"])
def test_phases_wait_for_what_is_late(late):
    world = World(0.9, 3, seed=5, late=late)

    async def testbench(ctx):
        await world.run(ctx, dut)

    dut = Phases(PARAMS)
    simulate(dut, testbench)
    assert world.begun == {"qk": TILES, "pv": TILES}


def test_order_and_gaps_when_nothing_is_late():
    world = World(1.0, 9, seed=3)

    async def testbench(ctx):
        await world.run(ctx, dut)

    dut = Phases(PARAMS)
    simulate(dut, testbench)
    assert world.order == ["qk", "qk", *["pv", "qk"] * (TILES - 2), "pv", "pv"]
    assert dut.throughput == "three cycles between phases"
    gaps = [start - end for start, end in zip(world.starts[1:], world.ends, strict=False)]
    assert set(gaps) <= {2, 3}
