"""PV sequencer: model against whole words, RTL against the model, credits, idle cycles, resets."""

import itertools

import numpy as np
import pytest
from amaranth import ResetInserter, Signal

from golden.apt.params import AptParams
from golden.apt.pv_sequencer import Element, issue, lists, owner_lists, run_sums, tile_sums
from rtl.apt.pv_sequencer import PvSequencer
from rtl.apt.pv_words import OWNERS, RING_SLOTS, RUNS_AHEAD
from tests.sim import simulate
from verif.apt.pv import corner_tiles, random_tile, real_tiles


def make(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, **fields):
    return AptParams(lanes=lanes, multipliers=multipliers, head_dim=head_dim, tile_q=tile_q,
                     tile_k=tile_k, vpu_lanes=4, **fields)


#: Four column passes; two with a short one; one pass; 18 multipliers; one row block; other widths.
SHAPES = [make(), make(head_dim=20, multipliers=8, lanes=8, tile_q=12, tile_k=24),
          make(multipliers=16, tile_q=20, tile_k=40), make(16, 18, 72, 8, 16),
          make(tile_q=4, tile_k=8, head_dim=3, segment_bits=3), make(segment_bits=8, head_dim=5)]


def ids(params):
    if isinstance(params, str):
        return params
    return (f"{params.lanes}x{params.multipliers}-{params.head_dim}-{params.tile_q}x"
            f"{params.tile_k}-{params.segment_bits}")


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_runs_add_up_to_the_sums_of_whole_words(params):
    rng = np.random.default_rng(1)
    tiles = [*corner_tiles(params, rng), *(random_tile(params, rng) for _ in range(5))]
    for tile in tiles:
        for owner in range(OWNERS):
            mine = owner_lists(tile.lists(params), owner)
            elements = issue(mine, params.row_blocks, params)
            n_hp, n_lp = int(mine.n_hp.sum()), int((mine.n_valid - mine.n_hp).sum())
            assert len(elements) == params.column_passes * (4 * n_hp + n_lp)
            runs = run_sums(elements, tile.v, params)
            got = tile_sums(runs, params.row_blocks, params)
            assert (got == tile.sums(params)[owner::OWNERS]).all()
            limit = 1 << params.run_bits - 1
            assert all((-limit <= total).all() and (total < limit).all() for _, total in runs)


@pytest.mark.parametrize("params", [AptParams(), make(multipliers=16, head_dim=64, tile_q=64,
                                                      tile_k=128)], ids=ids)
def test_runs_of_real_tiles(params):
    """That these are the sums of golden.apt.attend is asserted where the tiles are made."""
    for tile in real_tiles(params):
        for owner in range(OWNERS):
            runs = run_sums(issue(owner_lists(tile.lists(params), owner), params.row_blocks,
                                  params), tile.v, params)
            assert (tile_sums(runs, params.row_blocks, params)
                    == tile.sums(params)[owner::OWNERS]).all()


def test_lists_fill_from_both_ends():
    params = make(tile_q=4, tile_k=8)
    p = np.arange(32).reshape(4, 8) * 60
    hp = np.zeros((4, 8), bool)
    lp = hp.copy()
    hp[0, [1, 6]], lp[0, [0, 3, 7]] = True, True
    mine = lists(p, hp, lp, params)
    assert mine.key[0].tolist() == [1, 6, 0, 0, 0, 7, 3, 0]
    assert (mine.high[0, 1], mine.low[0, 1]) == (360 + 32 >> 6, 360 - (360 + 32 >> 6 << 6))
    assert (mine.n_valid.tolist(), mine.n_hp.tolist()) == ([5, 0, 0, 0], [2, 0, 0, 0])
    with pytest.raises(ValueError, match="both masks"):
        lists(p, hp, hp, params)


def write_beats(mine, buffer, params):
    """Writes of a tile's lists and headers for one owner, places without elements left out."""
    for row in range(params.row_blocks):
        n_hp, n_valid = int(mine.n_hp[row]), int(mine.n_valid[row])
        used = [*range(n_hp), *range(params.tile_k - (n_valid - n_hp), params.tile_k)]
        place = {"valid": 1, "buffer": buffer, "row_block": row}
        yield ([{**place, "position": position, "key": int(mine.key[row, position]),
                 "high": int(mine.high[row, position]), "low": int(mine.low[row, position])}
                for position in used], {**place, "n_valid": n_valid, "n_hp": n_hp})


async def write(ctx, dut, mine, buffer, params):
    for entries, header in write_beats(mine, buffer, params):
        for beat in entries:
            ctx.set(dut.entry, beat)
            await ctx.tick()
        ctx.set(dut.entry.valid, 0)
        ctx.set(dut.header, header)
        await ctx.tick()
        ctx.set(dut.header.valid, 0)


async def start(ctx, dut, buffer, blocks):
    ctx.set(dut.tile.payload, {"buffer": buffer, "blocks": blocks})
    ctx.set(dut.tile.valid, 1)
    while not (await ctx.tick().sample(dut.tile.ready))[-1]:
        pass
    ctx.set(dut.tile.valid, 0)


def as_element(v, c):
    tag = c.tag
    assert c.valid == v.valid and tag.pass_ == v.pass_
    return tag.buffer, Element(tag.row_block, tag.pass_, tag.shift, v.key, v.lsb, c.p, c.first,
                               c.last, tag.row_first, tag.row_last)


def run(params, jobs, flush_delay=0, row_delay=0, seed=None, pauses=False):
    """Run an owner over ``jobs``, ``(owner's lists, blocks)`` of each tile.

    Credits come back ``flush_delay`` cycles after the last element of a run, no two closer than
    that, and ``row_delay`` after the last of a row; a seed makes both random up to that. Lists are
    written before the tile is started, while the one before is gone through unless ``pauses``.
    Returns each tile's ``[(cycle, element)]``, the cycles of the starts and counts of pulses.
    """
    dut, rng = PvSequencer(params), np.random.default_rng(seed)
    lengths = [len(issue(mine, blocks, params)) for mine, blocks in jobs]
    want = sum(lengths)
    seen, starts = [[] for _ in jobs], []
    counts = {"issued": 0, "wait_flush": 0, "wait_row": 0}
    now = [0]

    def later(delay):
        return int(rng.integers(delay + 1)) if seed is not None else delay

    async def feed(ctx):
        for number, (mine, blocks) in enumerate(jobs):
            while pauses and not ctx.get(dut.idle):
                await ctx.tick()
            # The other buffer may still be gone through, this one may not.
            while number > 1 and len(seen[number - 2]) < lengths[number - 2]:
                await ctx.tick()
            await write(ctx, dut, mine, number % 2, params)
            await start(ctx, dut, number % 2, blocks)
            starts.append(now[0])

    async def watch(ctx):
        flushes, rows, tile, free, runs, held = [], [], 0, 0, 0, 0
        for _ in range(want * (2 + flush_delay + row_delay) + 4000):
            done = bool(flushes) and flushes[0] <= now[0]
            room = bool(rows) and rows[0] <= now[0]
            ctx.set(dut.flush_done, done)
            ctx.set(dut.row_room, room)
            if done:
                flushes.pop(0)
                runs -= 1
            if room:
                rows.pop(0)
                held -= 1
            pulses = [getattr(dut, name) for name in counts]
            *_, v, c, idle, issued, wait_flush, wait_row = await ctx.tick().sample(
                dut.v, dut.c, dut.idle, *pulses)
            for name, value in zip(counts, (issued, wait_flush, wait_row), strict=True):
                counts[name] += value
            if c.valid:
                buffer, element = as_element(v, c)
                while len(seen[tile]) == lengths[tile]:
                    tile += 1
                assert buffer == tile % 2 and not idle
                seen[tile].append((now[0], element))
                if element.last:
                    free = max(now[0] + 1, free) + later(flush_delay)
                    flushes.append(free)
                    runs += 1
                    held += element.row_first and element.pass_ == 0
                    assert runs <= RUNS_AHEAD and held <= RING_SLOTS
                if element.row_last and element.last:
                    rows.append(max([now[0] + 1, *rows[-1:]]) + later(row_delay))
            now[0] += 1
            if len(starts) == len(jobs) and idle and now[0] > starts[-1] + 2:
                break
        assert sum(map(len, seen)) == want and idle

    simulate(dut, feed, watch)
    assert counts["issued"] == want
    return seen, starts, counts


def jobs_of(tiles, owner, params, blocks=None):
    return [(owner_lists(tile.lists(params), owner), params.row_blocks if blocks is None else count)
            for tile, count in zip(tiles, blocks or tiles, strict=True)]


def check(params, jobs, seen):
    for (mine, blocks), got in zip(jobs, seen, strict=True):
        assert [element for _, element in got] == issue(mine, blocks, params)


CREDITS = {"at_once": {}, "late_flush": {"flush_delay": 9}, "late_rows": {"row_delay": 30},
           "random": {"flush_delay": 12, "row_delay": 40, "seed": 3},
           "paused": {"flush_delay": 3, "pauses": True}}


@pytest.mark.parametrize("params, credit", [
    *((params, "random") for params in SHAPES), *((SHAPES[1], credit) for credit in CREDITS),
    (SHAPES[4], "late_rows")], ids=ids)
def test_order_and_credits(params, credit):
    rng = np.random.default_rng(5)
    tiles = [*corner_tiles(params, rng), random_tile(params, rng), random_tile(params, rng, .05)]
    blocks = [params.row_blocks] * (len(tiles) - 2) + [max(1, params.row_blocks - 1), 0]
    jobs = jobs_of(tiles, int(rng.integers(OWNERS)), params, blocks)
    seen, _, counts = run(params, jobs, **CREDITS[credit])
    check(params, jobs, seen)
    if credit == "late_flush":
        assert counts["wait_flush"]
    if credit == "late_rows" and params.row_blocks > RING_SLOTS:
        assert counts["wait_row"]


@pytest.mark.parametrize("number", [0, 5])
def test_real_tiles_without_an_idle_cycle(number):
    """Every owner at the default parameters; credits after the flush path's ten cycles."""
    params = AptParams()
    tile = real_tiles(params)[number]
    owner = number % OWNERS
    jobs = jobs_of([tile], owner, params)
    seen, starts, counts = run(params, jobs)
    check(params, jobs, seen)
    cycles = [cycle for cycle, _ in seen[0]]
    assert cycles[0] - starts[0] == PvSequencer(params).latency
    assert cycles[-1] - cycles[0] + 1 == len(cycles) + counts["wait_flush"]
    # Runs of one or two elements wait, even if their credits come back as they end.
    short = sum(len(list(group)) < 3 for _, group in itertools.groupby(
        element[:3] for _, element in seen[0]))
    assert counts["wait_flush"] <= 3 * short and counts["wait_row"] == 0


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_no_idle_cycle_in_dense_and_low_tiles(params):
    rng = np.random.default_rng(6)
    for share in ((1, 0), (0, 1)):
        tiles = [random_tile(params, rng, *share) for _ in range(3)]
        jobs = jobs_of(tiles, 1, params)
        seen, starts, counts = run(params, jobs, pauses=True)
        check(params, jobs, seen)
        assert counts["wait_flush"] == counts["wait_row"] == 0
        for begin, got in zip(starts, seen, strict=True):
            cycles = [cycle for cycle, _ in got]
            first = begin + PvSequencer(params).latency
            assert cycles == list(range(first, first + len(got)))


@pytest.mark.parametrize("counts, idle", [
    ([9, 0, 0, 0, 9, 0, 9, 9], 0),
    ([5, 5, 0, 0, 0, 0, 0, 5], 0),
    ([9, 1, 0, 0, 0, 0, 0, 4], 0),
    ([4, 0, 0, 0, 0, 0, 0, 4], 3),
    ([1, 0, 0, 0, 0, 0, 0, 4], 6),
])
def test_empty_rows_take_a_cycle_of_reading_ahead(counts, idle):
    """A row is issued while the headers behind it are read: ``n`` cycles cover ``n`` headers."""
    params = make(tile_q=32, tile_k=16, multipliers=16)
    mask = np.zeros((32, 16), bool)
    mask[::4] = np.arange(16) < np.array(counts)[:, None]
    tile = random_tile(params, np.random.default_rng(7))._replace(hp=mask & False, lp=mask)
    seen, _, _ = run(params, jobs_of([tile], 0, params))
    cycles = [cycle for cycle, _ in seen[0]]
    assert cycles[-1] - cycles[0] + 1 - len(cycles) == idle


def test_credits_of_the_flush_path():
    """What the loop of credits costs on real tiles, and that it is no more than noted."""
    params = AptParams()
    waits, elements = 0, 0
    for number, tile in enumerate(real_tiles(params)[:3]):
        _, _, counts = run(params, jobs_of([tile], number % OWNERS, params), flush_delay=13)
        waits, elements = waits + counts["wait_flush"], elements + counts["issued"]
    assert waits < 0.2 * elements, (waits, elements)


@pytest.mark.parametrize("when", [1, 4, 9, 23, 60])
def test_reset_in_the_middle(when):
    """After it all credits are there again, and a tile comes out as if nothing had been."""
    params, rng = make(multipliers=16), np.random.default_rng(8)
    before, after = (owner_lists(random_tile(params, rng).lists(params), 2) for _ in range(2))
    inner, reset, got = PvSequencer(params), Signal(), []

    async def testbench(ctx):
        await write(ctx, inner, before, 1, params)
        await start(ctx, inner, 1, params.row_blocks)
        await ctx.tick().repeat(when)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert ctx.get(inner.idle)
        await write(ctx, inner, after, 0, params)
        await start(ctx, inner, 0, params.row_blocks)
        done = False
        while not ctx.get(inner.idle):
            ctx.set(inner.flush_done, done)
            ctx.set(inner.row_room, done and got[-1].row_last)
            *_, v, c = await ctx.tick().sample(inner.v, inner.c)
            if c.valid:
                got.append(as_element(v, c)[1])
            done = bool(c.valid and c.last)
        assert got == issue(after, params.row_blocks, params)

    simulate(ResetInserter(reset)(inner), testbench)


def test_wrong_parameters():
    with pytest.raises(ValueError, match=r"AptParams\.lanes"):
        PvSequencer(AptParams(lanes=2))
    with pytest.raises(TypeError, match="AptParams"):
        PvSequencer(None)
    assert PvSequencer(AptParams()).throughput == "one element a cycle"
