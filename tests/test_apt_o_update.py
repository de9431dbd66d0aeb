"""O update: lanes against exact arithmetic, whole query tiles against the model, hand-over."""

import numpy as np
import pytest
from amaranth import ResetInserter, Signal

from golden.apt.params import AptParams
from golden.common.arith import round_shift_half_up
from golden.common.checks import ceil_div
from rtl.apt.o_lane import OLane
from rtl.apt.o_update import OUpdate
from tests.pv_bench import Ring, ids, make, output_values, plan, serve
from tests.sim import coin, collect, drive, simulate
from verif.apt.pv import corner_tiles, random_tile, real_tiles


#: Rows of 8, 7 (with a tail), 8 of 9 values, 2, 1 and 3 (with a tail) words.
SHAPES = [make(), make(8, 6, 20, 12), make(4, 18, 72, 4), make(4, 8, 8, 20), make(8, 4, 2, 4),
          make(segment_bits=8, head_dim=5, tile_q=12)]


@pytest.mark.parametrize("params", [make(), make(segment_bits=8, tile_k=512),
                                    make(segment_bits=3, tile_k=8)], ids=ids)
def test_lane(params):
    lane, rng = OLane(params), np.random.default_rng(1)
    words = [-1 << 31, (1 << 31) - 1, 0, 1, -1, 0x7fff << 15]
    for shift in (*range(0, 16, 3), 14):
        top = (1 << min(params.sum_bits - 1, 31 + shift)) - (1 << 16)
        count = 220
        sums = rng.integers(-top, top + 1, count) if top > 0 else rng.integers(-9, 9, count)
        if top > 0:
            sums[:3] = top, -top, 0
        o = rng.integers(-1 << 31, 1 << 31, count) >> rng.integers(0, 32, count)
        o[:len(words)] = words
        by_o = rng.integers(0, 2, count)
        by_o[:len(words)] = 1
        factor = rng.integers(0, 1 << 15, count)
        factor[:12] = [0xffff, 0x8000, 0xffff, 0x8000, 0x8000, 0xffff] * 2
        factor[::7] = 1 << 15
        factor[20::9] = 0
        places = rng.integers(1, 63, count)
        places[::3] = rng.integers(10, 40, len(places[::3]))
        # Halves about the limits: 32766.5, 32767, 32767.5, the negative ones, and one more.
        edge = slice(30, 30 + 8)
        o[edge] = [65533, 65534, 65535, -65533, -65534, -65535, -65536, -65537]
        by_o[edge], factor[edge], places[edge] = 1, 1 << 15, 16
        odds = rng.integers(0, 2, count)
        tile = round_shift_half_up(sums, shift)
        a, b = np.where(by_o, o, tile), np.where(by_o, tile, o)
        want_total = b + round_shift_half_up(a * factor, 15)
        scaled = [(x * f + (1 << n - 1)) >> n for x, f, n in zip(
            a.tolist(), factor.tolist(), places.tolist(), strict=True)]
        want_value = [min(max(x, -0x7fff), 0x7fff) for x in scaled]
        assert min(scaled) < -0x7fff or max(scaled) > 0x7fff
        totals, values = [], []

        async def testbench(ctx, shift=shift, sums=sums, o=o, by_o=by_o, factor=factor,
                            places=places, odds=odds, totals=totals, values=values, count=count):
            ctx.set(lane.shift, shift)
            ctx.set(lane.odd, int(odds[0]))
            await ctx.tick()
            for now in range(count + lane.latency):
                def at(stage, array, now=now, count=count):
                    return int(array[min(max(now - stage, 0), count - 1)])
                # The other one of the two sums is of no use.
                odd = at(0, odds)
                ctx.set(lane.odd, at(-1, odds))
                ctx.set(lane.sums, [at(0, sums), 5][::-1 if odd else 1])
                ctx.set(lane.o, at(3, o))
                ctx.set(lane.by_o, at(3, by_o))
                ctx.set(lane.factor, at(3, factor))
                ctx.set(lane.places_high, at(6, places) >> 3)
                ctx.set(lane.places_low, at(7, places) & 7)
                if now >= lane.total_latency:
                    totals.append(ctx.get(lane.total))
                if now >= lane.latency:
                    values.append(ctx.get(lane.value))
                await ctx.tick()

        simulate(lane, testbench)
        fits = [-1 << 31 <= total < 1 << 31 for total in want_total.tolist()]
        assert sum(fits) > count // 2
        got = [total for total, fit in zip(totals, fits, strict=False) if fit]
        assert got == [total for total, fit in zip(want_total.tolist(), fits, strict=True) if fit]
        assert values == want_value


def run(params, queries, *, idle=0.0, stall=0.0, rows_stall=0.0, seed=0, late=0, late_finals=0,
        cycles=30_000):
    """Everything through an OUpdate; checks the output and returns the trace and transfer times."""
    jobs, finals, outputs = plan(queries, params)
    dut, rng, trace = OUpdate(params), np.random.default_rng(seed), []
    times = {name: [] for name in ("tile", "factor", "final", "o")}
    words = sum(len(output) for output in outputs) * dut.row_cycles
    received, finished = [], []
    inputs = {
        "tile": [{"rows": job.rows, "last": job.last, "shift": job.shift} for job in jobs],
        "factor": [word for job in jobs for word in job.factors],
        "final": finals,
    }
    benches = []
    for number, (name, payloads) in enumerate(inputs.items()):
        async def source(ctx, name=name, payloads=payloads, number=number):
            if name == "factor":
                await ctx.tick().repeat(late + 1)
            if name == "final":
                await ctx.tick().repeat(late_finals + 1)
            await drive(ctx, getattr(dut, name), payloads,
                        coin(idle, (seed, number)) if idle else None, times[name])
            finished.append(name)
        benches.append(source)

    async def sink(ctx):
        received.extend(await collect(ctx, dut.o, words, coin(stall, (seed, 9)) if stall else None,
                                      times["o"]))

    async def sums(ctx):
        await serve(ctx, dut, Ring(jobs, params), rng, cycles, rows_stall, trace,
                    lambda now: len(received) == words and ctx.get(dut.idle)
                    and len(finished) == 3)

    simulate(dut, *benches, sink, sums)
    assert output_values(received, params) == [output.tolist() for output in outputs]
    assert sum(done for _, _, done, *_ in trace) == len(jobs)
    return trace, times


def mixed_queries(params, rng):
    """Several key tiles and query tiles, tail rows, and every corner."""
    corners = corner_tiles(params, rng)
    some = [random_tile(params, rng, *shares) for shares in ((.1, .3), (.02, .05), (.3, .1))]
    return [(params.tile_q, [some[0], corners[0], some[1]]), (params.tile_q - 1, [corners[0]]),
            (params.tile_q, corners[3:6]), (1, [some[2]]), (params.tile_q - 2, corners[1:3]),
            (params.tile_q, [*corners[6:], some[2]])]


FLOWS = {"full_speed": {}, "late_factors": {"idle": 0.7, "late": 200},
         "late_finals": {"late_finals": 700},
         "stalled_output": {"stall": 0.8}, "late_rows": {"rows_stall": 0.9},
         "all": {"idle": 0.4, "stall": 0.5, "rows_stall": 0.6}}


@pytest.mark.parametrize("params, flow", [
    *((params, "all") for params in SHAPES), *((SHAPES[3], flow) for flow in FLOWS),
    (SHAPES[4], "full_speed"), (SHAPES[4], "stalled_output")], ids=ids)
def test_query_tiles_against_the_model(params, flow):
    rng = np.random.default_rng(2)
    run(params, mixed_queries(params, rng), **FLOWS[flow])


def test_real_tiles():
    """The committed tiles as key tiles of one query tile, at the default width of a word."""
    params = AptParams(lanes=4, tile_q=16, tile_k=32, vpu_lanes=4)
    tiles = real_tiles(params)
    run(params, [(16, tiles[:3]), (16, tiles[3:])], stall=0.2)


def test_sums_that_are_shifted():
    """So many key tiles that ``o_shift`` is not 0, extremes all the way."""
    params = make(tile_k=512, tile_q=4, head_dim=4)
    rng = np.random.default_rng(4)
    extreme = [random_tile(params, rng, 1, 0, sign * params.qmax)._replace(
        maximum=np.zeros(4, np.int64), a_v=1000) for sign in (1, -1)]
    assert params.o_shift(9) == 4
    run(params, [(4, extreme[:1] * 9), (4, extreme[1:] * 9),
                 (4, [random_tile(params, rng, 1, 0) for _ in range(9)])])


@pytest.mark.parametrize("params", SHAPES[:4], ids=ids)
def test_latency_and_rates(params):
    """Rows follow without a gap, the output too, and both take what is stated."""
    rng = np.random.default_rng(3)
    dut, tile = OUpdate(params), random_tile(params, rng, 1, 0)
    trace, times = run(params, [(params.tile_q, [tile])], late=3)
    updating = [now for now, (flag, *_) in enumerate(trace) if flag]
    done = next(now for now, (_, _, flag, *_) in enumerate(trace) if flag)
    cycles = dut.row_cycles * params.tile_q
    assert len(updating) == cycles == ceil_div(params.head_dim,
                                               params.multipliers // 2) * params.tile_q
    # Factor words come one a cycle: only the first rows may have to wait for theirs.
    assert updating[-1] - updating[0] + 1 - cycles <= (3 if dut.row_cycles < 4 else 0)
    # A row is chosen two cycles after its offer, and written nine after its issue: then the count
    # of rows, and the tile is done.
    assert done == updating[-1] + dut.latency - 2 + 1
    first = next(now for now, (_, _, _, flag, _) in enumerate(trace) if flag)
    assert first - done == dut.output_latency
    # `collect` stamps the edge that ends a cycle.
    assert times["o"][0] == first + 1
    assert times["o"][-1] - times["o"][0] + 1 == cycles


def test_latency_of_a_row():
    params = make()
    tile = random_tile(params, np.random.default_rng(3), 1, 0)
    jobs, _, _ = plan([(8, [tile])], params)
    dut, seen = OUpdate(params), []

    async def testbench(ctx):
        ctx.set(dut.tile.payload, {"rows": 8, "last": 1, "shift": 0})
        ctx.set(dut.tile.valid, 1)
        await ctx.tick()
        ctx.set(dut.tile.valid, 0)
        await drive(ctx, dut.factor, jobs[0].factors)
        await ctx.tick().repeat(3)
        ctx.set(dut.row[1].payload, {"buffer": 0, "row_block": 1, "slot": 1})
        ctx.set(dut.row[1].valid, 1)
        for now in range(10):
            *_, updating, ready, read, held, room = await ctx.tick().sample(
                dut.updating, dut.row[1].ready, dut.read, dut.held, dut.row_room)
            if ready:
                ctx.set(dut.row[1].valid, 0)
            seen.append((updating, ready, held))
            if updating:
                assert (read.owner, read.slot, read.word) == (1, 1, (now - 2) // 2)
            assert room == 0

    simulate(dut, testbench)
    # Issued two cycles after the offer; the rest of `latency` is the pipeline.
    assert [flag for flag, *_ in seen] == [0, 0] + [1] * 8
    assert [flag for _, flag, _ in seen] == [0, 1] + [0] * 8
    assert dut.latency == 2 + 2 + OLane(params).total_latency


def test_rows_of_the_next_query_tile_wait_until_theirs_have_left():
    """With the output held, the queue's 33 words leave their rows free and no others."""
    params = make(multipliers=8, head_dim=16, tile_q=16)  # four words a row
    rng = np.random.default_rng(5)
    queries = [(16, [random_tile(params, rng, .5, .3)]), (16, [random_tile(params, rng, .5, .3)])]
    jobs, finals, outputs = plan(queries, params)
    dut, trace = OUpdate(params), []
    ring = Ring(jobs, params)
    received = []

    async def words(ctx):
        for job in jobs:
            await drive(ctx, dut.tile, [{"rows": job.rows, "last": 1, "shift": job.shift}])

    async def factors(ctx):
        await drive(ctx, dut.factor, [word for job in jobs for word in job.factors])

    async def last(ctx):
        await drive(ctx, dut.final, finals)

    async def sums(ctx):
        await serve(ctx, dut, ring, rng, 5000, 0, trace, lambda now: now > 400)
        taken = sum(flag for flag, *_ in trace)
        # 33 words are 8 rows and one word.
        assert taken == (16 + 8) * 4
        assert trace[-1][1] and not trace[-1][4]
        await serve(ctx, dut, ring, rng, 5000, 0, trace, lambda now: len(received) == 128)

    async def sink(ctx):
        while len(trace) < 401:
            await ctx.tick()
        received.extend(await collect(ctx, dut.o, 128))

    simulate(dut, words, factors, last, sums, sink)
    assert output_values(received, params) == [output.tolist() for output in outputs]


@pytest.mark.parametrize("when", [8, 20, 30, 55, 90, 130])
def test_reset_in_the_middle(when):
    """After a reset, of updates or of output, tiles come out as if nothing had been."""
    params, rng = make(), np.random.default_rng(6)
    queries = [(8, [random_tile(params, rng, .5, .3)]), (7, [random_tile(params, rng, .5, .3)] * 2)]
    jobs, finals, outputs = plan(queries, params)
    inner, reset = OUpdate(params), Signal()
    received, clean = [], []

    async def guarded(ctx, stream, payloads):
        """Like :func:`drive`, and given up when the reset comes."""
        for payload in payloads:
            ctx.set(stream.payload, payload)
            ctx.set(stream.valid, 1)
            ready = 0
            while not ready and not clean:
                *_, ready = await ctx.tick().sample(stream.ready)
        ctx.set(stream.valid, 0)

    inputs = {"tile": [{"rows": job.rows, "last": job.last, "shift": job.shift} for job in jobs],
              "factor": [word for job in jobs for word in job.factors], "final": finals}

    def source(name):
        async def testbench(ctx):
            await guarded(ctx, getattr(inner, name), inputs[name])
            while len(clean) < 2:
                await ctx.tick()
            await drive(ctx, getattr(inner, name), inputs[name])
        return testbench

    async def sums(ctx):
        ctx.set(inner.o.ready, 1)
        await serve(ctx, inner, Ring(jobs, params), rng, 1000, .3, [], lambda now: now == when)
        clean.append(1)
        ctx.set(reset, 1)
        await ctx.tick().repeat(2)
        ctx.set(reset, 0)
        for row in inner.row:
            ctx.set(row.valid, 0)
        assert ctx.get(inner.idle) and not ctx.get(inner.o.valid)
        clean.append(2)
        await serve(ctx, inner, Ring(jobs, params), rng, 3000, .3, [],
                    lambda now: len(received) == 15 * inner.row_cycles)

    async def sink(ctx):
        while len(clean) < 2:
            await ctx.tick()
        received.extend(await collect(ctx, inner.o, 15 * inner.row_cycles))

    simulate(ResetInserter(reset)(inner), *map(source, inputs), sums, sink)
    assert output_values(received, params) == [output.tolist() for output in outputs]


def test_wrong_parameters():
    with pytest.raises(ValueError, match=r"AptParams\.lanes"):
        OUpdate(AptParams(lanes=2))
    assert OUpdate(AptParams()).throughput == "8 values a cycle"
    assert OUpdate(AptParams()).row_cycles == 8
