"""Tile sums: runs of four owners against the model, order, rates, credits, resets, extremes."""

import numpy as np
import pytest
from amaranth import ResetInserter, Signal

from golden.apt.params import AptParams
from golden.apt.pv_sequencer import Element, issue, owner_lists, run_sums
from rtl.apt.flush_bus import FlushBus
from rtl.apt.flush_lane import FlushLane
from rtl.apt.pv_words import OWNERS, RING_SLOTS, RUNS_AHEAD
from rtl.apt.sum_columns import SumColumns
from rtl.apt.tile_sums import TileSums
from tests.sim import simulate
from verif.apt.pv import corner_tiles, random_tile


def make(lanes=4, multipliers=4, head_dim=16, tile_q=8, tile_k=16, **fields):
    return AptParams(lanes=lanes, multipliers=multipliers, head_dim=head_dim, tile_q=tile_q,
                     tile_k=tile_k, vpu_lanes=4, **fields)


#: One lane and four passes, two lanes and two passes, four lanes, 18 multipliers, other widths.
SHAPES = [make(), make(8, 6, 20, 12), make(16, 2, 8), make(16, 18, 72, 4), make(4, 6, 6, 4, 24),
          make(segment_bits=8, head_dim=5), make(segment_bits=3, multipliers=2, head_dim=1)]


def ids(params):
    return f"{params.lanes}x{params.multipliers}-{params.head_dim}-{params.segment_bits}"


def owner_runs(tiles, params):
    """Runs of each owner over tiles: ``(parity, element, sums)``."""
    return [[(number % 2, element, sums) for number, tile in enumerate(tiles)
             for element, sums in run_sums(
                 issue(owner_lists(tile.lists(params), owner), params.row_blocks, params),
                 tile.v, params)] for owner in range(OWNERS)]


def run_payload(parity, element, sums, params, valid=1, soon=0):
    return {"soon": soon, "valid": valid,
            "sums": sums.reshape(params.owner_lanes, params.multipliers).tolist(),
            "tag": {"buffer": parity, "row_block": element.row_block, "pass_": element.pass_,
                    "shift": element.shift, "row_first": element.row_first,
                    "row_last": element.row_last}}


class Feeder:
    """Gives an owner's runs as the lanes do: within the credits, ``way`` cycles after issue."""

    def __init__(self, runs, params, way, rng, gap):
        self.runs, self.params, self.way, self.rng, self.gap = runs, params, way, rng, gap
        self.next, self.flushes, self.slots = 0, RUNS_AHEAD, RING_SLOTS
        self.under_way, self.wait, self.shown = [], 0, None
        self.times = []

    def step(self, now, flush_done, room):
        """Credits of the last cycle; returns the payload of this one."""
        self.flushes += flush_done
        self.slots += room
        if self.wait:
            self.wait -= 1
        elif self.next < len(self.runs) and self.flushes:
            _, element, _ = self.runs[self.next]
            begins = bool(element.row_first and element.pass_ == 0)
            if self.slots or not begins:
                self.flushes -= 1
                self.slots -= begins
                self.under_way.append((now + self.way, self.runs[self.next]))
                self.next += 1
                self.wait = int(self.rng.integers(self.gap + 1)) if self.gap else 0
        valid = int(bool(self.under_way) and self.under_way[0][0] == now)
        if valid:
            _, self.shown = self.under_way.pop(0)
            self.times.append(now)
        soon = int(bool(self.under_way) and self.under_way[0][0] == now + 1)
        if self.shown is None:
            return {"soon": soon}
        return run_payload(*self.shown, self.params, valid, soon)


async def drive(ctx, dut, runs, params, rng, *, gap=0, stall=0.0, way=9, cycles=20_000,
                stop=None):
    """Feed all runs, take and read all rows: ``(owner, parity, row block, sums)`` in order, and
    the cycles of runs, offers and flushes."""
    feeders = [Feeder(mine, params, way, rng, gap) for mine in runs]
    want = sum(element.row_last for mine in runs for _, element, _ in mine)
    words = -(-params.head_dim // params.multipliers)
    got, offered, flushed = [], [], []
    credits, reading, row = [0] * OWNERS, None, None
    done = [0] * OWNERS
    for now in range(cycles):
        for owner, feeder in enumerate(feeders):
            ctx.set(dut.run[owner], feeder.step(now, done[owner], credits[owner]))
        credits = [0] * OWNERS
        # One row after another is taken and read, a word a cycle.
        offers = [owner for owner in range(OWNERS) if ctx.get(dut.row[owner].valid)]
        offered += [(owner, now) for owner in offers]
        for owner in range(OWNERS):
            ctx.set(dut.row[owner].ready, 0)
        if row is None and offers and rng.random() >= stall:
            owner = int(rng.choice(offers))
            ctx.set(dut.row[owner].ready, 1)
            row = owner, ctx.get(dut.row[owner].payload)
            reading, sums = 0, []
        if reading is not None and reading < words:
            ctx.set(dut.read, {"owner": row[0], "slot": row[1].slot, "word": reading})
        shown = reading is not None and reading > 0  # what was read in the cycle before
        *_, flush = await ctx.tick().sample(dut.flush_done)
        done = [flush >> owner & 1 for owner in range(OWNERS)]
        flushed += [(owner, now) for owner in range(OWNERS) if done[owner]]
        if row is not None:
            if shown:
                sums += list(ctx.get(dut.sums))
            reading += 1
            if reading == words + 1:
                credits[row[0]] = 1
                got.append((row[0], row[1].buffer, row[1].row_block, sums[:params.head_dim]))
                row, reading = None, None
        if len(got) == want or now == stop:
            break
    else:
        raise AssertionError(f"{len(got)} of {want} rows after {cycles} cycles")
    for owner in range(OWNERS):
        ctx.set(dut.row[owner].ready, 0)
        ctx.set(dut.run[owner], {"valid": 0})
    return got, feeders, offered, flushed


def expected(tiles, params):
    return [[(owner, number % 2, row // OWNERS, tile.sums(params)[row].tolist())
             for number, tile in enumerate(tiles)
             for row in range(owner, params.tile_q, OWNERS) if tile.contributes[row]]
            for owner in range(OWNERS)]


def check(got, tiles, params):
    for owner, want in enumerate(expected(tiles, params)):
        assert [row for row in got if row[0] == owner] == want


FLOWS = {"dense_runs": {}, "gaps": {"gap": 9}, "slow_reader": {"stall": 0.9},
         "both": {"gap": 5, "stall": 0.6}}


@pytest.mark.parametrize("params, flow", [
    *((params, "both") for params in SHAPES), *((SHAPES[1], flow) for flow in FLOWS),
    (SHAPES[4], "dense_runs")], ids=lambda value: value if isinstance(value, str) else ids(value))
def test_rows_against_the_model(params, flow):
    rng = np.random.default_rng(1)
    tiles = [*corner_tiles(params, rng), random_tile(params, rng)]
    dut, runs = TileSums(params), owner_runs(tiles, params)

    async def testbench(ctx):
        got, *_ = await drive(ctx, dut, runs, params, rng, **FLOWS[flow])
        check(got, tiles, params)

    simulate(dut, testbench)


def single(params, row_block=0, value=1):
    element = Element(row_block, params.column_passes - 1, 0, 0, 0, 0, 1, 1,
                      int(params.column_passes == 1), 1)
    return 0, element, np.full(params.pv_width, value)


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_latency(params):
    dut, first = TileSums(params), []

    async def testbench(ctx):
        ctx.set(dut.run[2].soon, 1)
        await ctx.tick()
        ctx.set(dut.run[2], run_payload(*single(params), params))
        for cycle in range(40):
            *_, valid = await ctx.tick().sample(dut.row[2].valid)
            ctx.set(dut.run[2].valid, 0)
            if valid:
                first.append(cycle)

    simulate(dut, testbench)
    assert first[0] == dut.latency

    bus, seen = FlushBus(params), []

    async def bus_bench(ctx):
        ctx.set(bus.run[1].soon, 1)
        await ctx.tick()
        ctx.set(bus.run[1], run_payload(*single(params, value=-3), params))
        for cycle in range(20):
            *_, word = await ctx.tick().sample(bus.o)
            ctx.set(bus.run[1].valid, 0)
            if word.valid:
                assert word.owner == 1 and list(word.values) == [-3] * params.multipliers
                seen.append((cycle, word.lane, word.end))

    simulate(bus, bus_bench)
    assert seen == [(bus.latency + k, k, int(k == params.owner_lanes - 1))
                    for k in range(params.owner_lanes)]


@pytest.mark.parametrize("params", [SHAPES[0], SHAPES[1], SHAPES[2]], ids=ids)
def test_bus_rates(params):
    """Four owners with runs at hand keep the bus busy; one alone is held to its own rate."""
    lanes = params.owner_lanes
    runs = [[single(params)] * 12] * OWNERS
    for active, period in ((OWNERS, None), (1, max(lanes + 1, 3))):
        bus, busy = FlushBus(params), []

        async def testbench(ctx, bus=bus, busy=busy, active=active):
            feeders = [Feeder([(parity, element._replace(row_first=0), sums)
                               for parity, element, sums in mine], params, 5,
                              np.random.default_rng(0), 0) for mine in runs[:active]]
            done = [0] * OWNERS
            for now in range(30 + 13 * 12 * lanes):
                for owner, feeder in enumerate(feeders):
                    ctx.set(bus.run[owner], feeder.step(now, done[owner], 0))
                *_, word, flush = await ctx.tick().sample(bus.o, bus.flush_done)
                done = [flush >> owner & 1 for owner in range(OWNERS)]
                if word.valid:
                    busy.append((now, word.owner))

        simulate(bus, testbench)
        assert len(busy) == 12 * lanes * active
        if active == OWNERS and lanes == 4:
            assert busy[-1][0] - busy[0][0] + 1 == len(busy)
        if active == 1:
            # Credits take longer to come round than a turn; two runs each time at most.
            times = [now for now, _ in busy][::lanes]
            assert min(np.diff(times)) >= period


def test_owners_take_turns():
    params = make(16, 2, 8)
    bus, order = FlushBus(params), []

    async def testbench(ctx):
        for owner in range(OWNERS):
            ctx.set(bus.run[owner].soon, 1)
        await ctx.tick()
        for owner in range(OWNERS):
            ctx.set(bus.run[owner], run_payload(*single(params, value=owner), params))
        for _ in range(40):
            *_, word = await ctx.tick().sample(bus.o)
            for owner in range(OWNERS):
                ctx.set(bus.run[owner].valid, 0)
            if word.valid:
                assert list(word.values) == [word.owner] * params.multipliers
                order.append((word.owner, word.lane))

    simulate(bus, testbench)
    assert order == [(owner, lane) for owner in (1, 2, 3, 0) for lane in range(4)]


def test_largest_sums_fit():
    """Dense tiles of the extremes of both words, all column passes, at the default tile_k."""
    params = make(4, 4, 8, 4, 128)
    rng = np.random.default_rng(2)
    tiles = [random_tile(params, rng, 1, 0, value) for value in (params.qmax, -params.qmax)]
    high = params.msb_range[0] << params.segment_bits
    tiles += [tiles[0]._replace(p=np.full_like(tiles[0].p, 31 * 64), v=np.full_like(
        tiles[0].v, high), hp=tiles[0].lp, lp=tiles[0].hp)]
    dut = TileSums(params)
    largest = max(np.abs(tile.sums(params)).max() for tile in tiles)
    assert largest.item().bit_length() == params.sum_bits - 1

    async def testbench(ctx):
        got, *_ = await drive(ctx, dut, owner_runs(tiles, params), params, rng)
        check(got, tiles, params)

    simulate(dut, testbench)


@pytest.mark.parametrize("when", [12, 15, 31, 70])
def test_reset_in_the_middle(when):
    params, rng = SHAPES[1], np.random.default_rng(3)
    before, after = (random_tile(params, rng) for _ in range(2))
    inner, reset = TileSums(params), Signal()

    async def testbench(ctx):
        await drive(ctx, inner, owner_runs([before], params), params, rng, stop=when, stall=0.5)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert not any(ctx.get(row.valid) for row in inner.row)
        got, *_ = await drive(ctx, inner, owner_runs([after], params), params, rng)
        check(got, [after], params)

    simulate(ResetInserter(reset)(inner), testbench)


@pytest.mark.parametrize("first", [False, True])
def test_flush_lane(first):
    """Loads go before turns, and the first lane gives zeros out of its turn."""
    params, rng = SHAPES[1], np.random.default_rng(6)
    dut, seen = FlushLane(params, first=first), []
    size = 60
    load, turn = rng.integers(0, 2, (2, size))
    sums, nexts = rng.integers(-1000, 1000, (2, size, params.multipliers))

    async def testbench(ctx):
        for now in range(size):
            ctx.set(dut.load, int(load[now]))
            ctx.set(dut.turn, int(turn[now]))
            ctx.set(dut.sums, sums[now].tolist())
            ctx.set(dut.next, nexts[now].tolist())
            await ctx.tick()
            seen.append(list(ctx.get(dut.o)))

    simulate(dut, testbench)
    held, want = np.zeros(params.multipliers, int), []
    for now in range(size):
        # What is done in a cycle was said in the one before.
        loads, turns = (now > 0 and flags[now - 1] for flags in (load, turn))
        leaving = held if turns else np.zeros_like(held)
        held = sums[now] if loads else nexts[now] if turns else held
        want.append((leaving if first else held).tolist())
    assert seen == want
    assert dut.latency == 1 + first and dut.throughput == "a word a cycle"


def test_sum_columns():
    params, rng = SHAPES[1], np.random.default_rng(7)
    dut = SumColumns(params, 3)
    layout = dut.read.shape()
    words = rng.integers(-1000, 1000, (40, 3))
    shift, first = rng.integers(0, 3, 40), rng.integers(0, 2, 40)
    first[:OWNERS] = 1
    places = [{"word": k % 2, "slot": k // 2, "owner": k} for k in range(OWNERS)]
    model = {}

    async def testbench(ctx):
        for number, values in enumerate(words):
            place = places[number % OWNERS]
            ctx.set(dut.step, {"valid": 1, "address": place, "first": int(first[number]),
                               "shift": int(shift[number])})
            ctx.set(dut.values, values.tolist())
            key = layout.const(place).as_bits()
            before = np.zeros(3, int) if first[number] else model[key]
            model[key] = before + (values << params.segment_bits * int(shift[number]))
            await ctx.tick()
        ctx.set(dut.step.valid, 0)
        # The last word's sum is there when it was written.
        ctx.set(dut.read, place)
        await ctx.tick().repeat(dut.latency)
        assert list(ctx.get(dut.sums)) != model[key].tolist()
        await ctx.tick()
        assert list(ctx.get(dut.sums)) == model[key].tolist()
        for key, sums in model.items():
            ctx.set(dut.read, layout.from_bits(key))
            await ctx.tick().repeat(2)
            assert list(ctx.get(dut.sums)) == sums.tolist()

    simulate(dut, testbench)
    assert dut.throughput == "a word a cycle"


def test_wrong_parameters():
    for component in (TileSums, FlushBus):
        with pytest.raises(ValueError, match=r"AptParams\.lanes"):
            component(AptParams(lanes=2))
    assert TileSums(AptParams()).throughput == "16 sums a cycle"
    assert FlushBus(AptParams()).throughput == "one lane a cycle"
