import dataclasses

import pytest

from golden.apt import job
from golden.apt.attend import Step
from golden.apt.job import Region
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds
from golden.apt.vpu import LogitScale
from golden.common.checks import ceil_div
from rtl.apt.tile_walker import TileWalker
from tests.sim import coin, collect, drive, simulate


TINY = AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                 placement="modulo")
ODD = dataclasses.replace(TINY, lanes=8, head_dim=20, tile_q=12, tile_k=24, state_bits=8,
                          beat_bytes=4)
SCALE = LogitScale(40000, 50)
STEPS = [Step(codes=(100, 200), dense=True), Step(codes=(5, 65535), counts=BlockThresholds(3, 1)),
         Step(codes=(7, 8), refresh=True)]


def make_job(step, tokens, has_state, params, first=1000):
    places, layout = {}, Layout(params, tokens)
    for region in Region:
        places[region] = job.place(region, first, layout)
        first += job.panel(region, layout).total + 3
    return job.job_words(step, SCALE, has_state, places, layout), places


def expected_walk(step, tokens, has_state, places, params):
    """Loads, stores and tiles of a job, from the layout's own numbers."""
    loads, stores, tiles = [], [], []
    queries, keys = ceil_div(tokens, params.tile_q), ceil_div(tokens, params.tile_k)
    for i in range(queries):
        for j in range(keys):
            index = {Region.K: j, Region.V: j}
            for region in (Region.CODE_IN, Region.CODE_OUT, Region.STATE_IN, Region.STATE_OUT):
                index[region] = i * keys + j

            def order(region, i=i, index=index):
                number = index.get(region, i)
                one = job.panel(region, Layout(params, tokens))
                return (region, places[region].base + number * one.stride, one.beats[number],
                        one.words[number])
            wanted = [Region.Q] if j == 0 else []
            wanted += [Region.ROWS_IN] if j == 0 and has_state else []
            wanted += [] if step.dense else [Region.CODE_IN]
            wanted += [Region.STATE_IN] if has_state else []
            loads += [order(region) for region in (*wanted, Region.K, Region.V)]
            wanted = [Region.STATE_OUT, Region.CODE_OUT]
            wanted += [Region.ROWS_OUT, Region.O] if j == keys - 1 else []
            stores += [order(region) for region in wanted]
            tiles.append({
                "rows": min(params.tile_q, tokens - i * params.tile_q),
                "keys": min(params.tile_k, tokens - j * params.tile_k),
                "first": j == 0, "last": j == keys - 1, "dense": step.dense,
                "refresh": step.refresh, "has_state": has_state, "code_prune": step.codes[0],
                "code_quant": step.codes[1], "k_hp": step.counts.k_hp, "k_v": step.counts.k_v})
    return loads, stores, tiles


def fields(layout, bits):
    value = layout.from_bits(bits)
    return {name: int(getattr(value[name], "value", value[name])) if name != "scale" else None
            for name, _ in layout}


@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
@pytest.mark.parametrize("stalled", [False, True])
def test_jobs_are_walked_tile_by_tile(params, stalled):
    jobs = [(STEPS[0], 45, False), (STEPS[1], 45, True), (STEPS[2], 5, True), (STEPS[0], 64, True)]
    words, loads, stores, tiles = [], [], [], []
    for number, (step, tokens, has_state) in enumerate(jobs):
        packed, places = make_job(step, tokens, has_state, params, 1000 + 100_000 * number)
        words += packed
        for total, part in zip((loads, stores, tiles),
                               expected_walk(step, tokens, has_state, places, params),
                               strict=True):
            total += part
    dut = TileWalker(params)
    received = {}
    counts = {"load": len(loads), "store": len(stores), "tile": len(tiles), "accepted": len(jobs)}

    async def give(ctx):
        await drive(ctx, dut.job, words)

    def sink(name):
        async def take(ctx):
            gaps = coin(0.6, len(name)) if stalled else None
            received[name] = await collect(ctx, getattr(dut, name), counts[name], gaps)
        take.__name__ = name
        return take

    async def finish_tiles(ctx):
        """Give a tile's credits back some time after it is announced."""
        due, done, cycle = [], 0, 0
        while done < len(tiles):
            *_, valid, ready = await ctx.tick().sample(dut.tile.valid, dut.tile.ready)
            cycle += 1
            if valid and ready:
                due.append(max(cycle + (150 if stalled else 1), due[-1] + 1 if due else 0))
            now = done < len(due) and due[done] <= cycle
            for pulse in (dut.listed, dut.pv_done):
                ctx.set(pulse, int(now))
            done += now

    simulate(dut, give, finish_tiles, *map(sink, counts))
    layout = dut.load.p.shape()
    got = [fields(layout, bits) for bits in received["load"]]
    assert [(g["kind"], g["address"], g["beats"], g["words"]) for g in got] == loads
    layout = dut.store.p.shape()
    got_stores = [fields(layout, bits) for bits in received["store"]]
    assert [(g["kind"] + Region.CODE_OUT, g["address"], g["beats"], g["words"])
            for g in got_stores] == stores
    layout = dut.tile.p.shape()
    for bits, want in zip(received["tile"], tiles, strict=True):
        have = fields(layout, bits)
        assert {name: have[name] for name in want} == {name: int(x) for name, x in want.items()}
    assert [bits >> 16 for bits in received["accepted"]] == [0] * len(jobs)
    # Buffers: of K by tiles, of Q by query tiles, from the first tile of all on.
    for region in (Region.K, Region.Q):
        buffers = [g["buffer"] for g in got if g["kind"] == region]
        assert buffers == [number % 2 for number in range(len(buffers))]


def test_credits_hold_tiles_back():
    words, _ = make_job(STEPS[0], 64, False, TINY)
    dut = TileWalker(TINY)
    seen = []

    async def give(ctx):
        await drive(ctx, dut.job, words)

    async def watch(ctx):
        for name in ("load", "store", "tile", "accepted"):
            ctx.set(getattr(dut, name).ready, 1)
        for cycle in range(1000):
            *_, valid = await ctx.tick().sample(dut.tile.valid)
            if valid:
                seen.append(cycle)
            ctx.set(dut.listed, int(cycle == 500))
            ctx.set(dut.pv_done, int(cycle == 500))

    simulate(dut, give, watch)
    # Two tiles at once, the third when the first is listed.
    assert len(seen) == 3
    assert seen[1] < 300 < 500 < seen[2]


BAD = {"query tiles": (1, 0x0001_0000), "key tiles": (1, 1),  "rows": (2, 0x0010_0000),
       "many rows": (2, 0x0010_0011), "keys": (2, 16), "many keys": (2, 0x0011_0010),
       "mantissa": (4, 50 << 16 | 20000), "shift": (4, 30 << 16 | 40000), "flags": (0, 0)}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_job_is_refused_and_the_next_is_walked(name):
    good, _ = make_job(STEPS[0], 16, False, TINY)
    number, value = BAD[name]
    bad = list(good)
    bad[number] = value
    dut = TileWalker(TINY)
    received = []

    async def give(ctx):
        await drive(ctx, dut.job, bad + good)

    async def answers(ctx):
        ctx.set(dut.load.ready, 1)
        ctx.set(dut.store.ready, 1)
        received.extend(await collect(ctx, dut.accepted, 2))

    async def tiles(ctx):
        await collect(ctx, dut.tile, 1)

    simulate(dut, give, answers, tiles)
    assert [bits >> 16 for bits in received] == [1, 0]


@pytest.mark.parametrize("make, message", [
    (lambda: job.job_words(STEPS[1], SCALE, False, {}, Layout(TINY, 16)), "must be dense"),
    (lambda: job.job_words(STEPS[0], SCALE, False, {}, Layout(TINY, 65537)),
     "Tokens must be in 1..65536, not 65537"),
    (lambda: job.job_words(STEPS[0], SCALE, False, {}, Layout(TINY, 1, 65537)),
     "Queries must be in 1..65536, not 65537"),
    (lambda: TileWalker(AptParams(vpu_lanes=8, codec="rowcol")), "codec must be block"),
])
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
