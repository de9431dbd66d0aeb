import pytest

from golden.apt import job
from golden.apt.job import Region
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from rtl.apt.tile_walker import TileWalker
from tests.jobs import BAD, ODD, SCALE, STEPS, TINY, expected_walk, fields, make_job
from tests.sim import coin, collect, drive, simulate


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


@pytest.mark.parametrize("step, tokens, has_state", [
    (STEPS[0], 45, False), (STEPS[1], 45, True), (STEPS[2], 5, True), (STEPS[0], 64, True)])
@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
def test_beats_of_a_job_are_those_of_its_walk(params, step, tokens, has_state):
    _, places = make_job(step, tokens, has_state, params)
    loads, stores, _ = expected_walk(step, tokens, has_state, places, params)
    want = dict.fromkeys(Region, 0)
    for region, _, beats, _ in loads + stores:
        want[region] += beats
    assert job.moved_beats(Layout(params, tokens), dense=step.dense, has_state=has_state) == want


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
