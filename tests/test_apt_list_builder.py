"""List builder: model against PV, RTL against the model, headers, code, latency, idle cycles."""

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal

from golden.apt import dp_mac, list_builder
from golden.apt.mask_generator import NEVER
from golden.apt.params import AptParams
from golden.apt.vpu import probability_words
from rtl.apt.list_builder import ListBuilder
from rtl.apt.probability_split import ProbabilitySplit
from rtl.apt.softmax_words import code_row, list_entries, list_header
from tests.sim import FLOWS, coin, collect, drive, simulate
from verif.apt import softmax_tiles as stimulus


PARAMS = [
    AptParams(tile_q=12, tile_k=48, vpu_lanes=16),
    AptParams(tile_q=8, tile_k=16, vpu_lanes=4, segment_bits=8),
    AptParams(tile_q=12, tile_k=24, vpu_lanes=8, segment_bits=5),
    AptParams(lanes=4, tile_q=4, tile_k=8, vpu_lanes=32, segment_bits=3),
]
LARGE = AptParams(tile_q=64, tile_k=128)


def ids(params):
    return f"{params.tile_q}x{params.tile_k}by{params.vpu_lanes}"


def tiles_of(params, seed, count=6):
    rng = np.random.default_rng(seed)
    return [*stimulus.corner_tiles(params, rng),
            *(stimulus.random_tile(params, rng) for _ in range(count))]


@pytest.mark.parametrize("params", [LARGE, PARAMS[0]], ids=ids)
def test_model_gives_the_sums_of_pv(params):
    """What PV reads from the regions gives P times V of the engine's model."""
    for tile in stimulus.real_tiles(params):
        lists = tile.lists(params)
        key, high, low = list_builder.regions(lists, params)
        v_high, v_low = dp_mac.split(tile.v, params)
        sums = np.zeros_like(tile.sums)
        for row in range(params.tile_q):
            n_valid, n_hp = lists.n_valid[row], lists.n_hp[row]
            hp = np.arange(n_hp)
            lp = params.tile_k - 1 - np.arange(n_valid - n_hp)
            assert (key[row] >= 0).sum() == n_valid and (key[row, [*hp, *lp]] >= 0).all()
            both, only = [*hp, *lp], hp
            segment = params.segment_bits
            sums[row] = ((high[row, both] @ v_high[key[row, both]] << 2 * segment)
                         + (high[row, only] @ v_low[key[row, only]]
                            + low[row, only] @ v_high[key[row, only]] << segment)
                         + low[row, only] @ v_low[key[row, only]])
        assert (sums == tile.sums).all()


@pytest.mark.parametrize("segment_bits", range(3, 9))
def test_every_probability_is_split(segment_bits):
    params = AptParams(segment_bits=segment_bits)
    step = 1 if segment_bits == 6 else 37
    p = np.array([*range(0, 32768, step), 32767, 32768])
    high, low = dp_mac.split(probability_words(p, params), params)
    dut = ProbabilitySplit(params)
    got = []

    async def testbench(ctx):
        for value in [*p.tolist(), 0, 0, 0]:
            ctx.set(dut.p, value)
            await ctx.tick()
            got.append((ctx.get(dut.high), ctx.get(dut.low)))

    simulate(dut, testbench)
    assert got[dut.stages - 1:-1] == list(zip(high.tolist(), low.tolist(), strict=True))


class Expected:
    """Input and expected output of tiles, in order."""

    def __init__(self, params, tiles):
        self.tile, self.p, self.thresholds = [], [], []
        self.entry, self.header, self.code = [], [], []
        for tile in tiles:
            self.tile.append({"rows": tile.rows, "keys": tile.keys, "dense": int(tile.dense),
                              **tile.counts._asdict()})
            self.p += stimulus.probability_words(tile, params, none_p=0x8000)
            self.thresholds += stimulus.threshold_words(tile)
            entries, headers, codes = stimulus.list_words(tile, params)
            self.entry += [list_entries(params).const(word).as_bits() for word in entries]
            self.header += [list_header(params).const(word).as_bits() for word in headers]
            self.code += [code_row(params).const(word).as_bits() for word in codes]


def entry_masks(params):
    """Bits of each row's entry in an entry word, and the bit that says that it is valid."""
    layout = list_entries(params)
    rows = layout["rows"].shape
    for row in range(4):
        offset = layout["rows"].offset + rows[row].offset
        yield (1 << rows.elem_shape.size) - 1 << offset, 1 << offset


def run(params, tiles, flow="full_speed", seed=0, dut=None, before=None):
    want = Expected(params, tiles)
    top = ListBuilder(params) if dut is None else dut[0]
    dut = top if dut is None else dut[1]
    idle, stall = FLOWS[flow]
    times = {name: [] for name in ("tile", "p", "thresholds", "entry", "header", "code")}
    finished = set()
    testbenches = []
    ready = Signal()  # when `before` has done

    async def prepare(ctx):
        if before is not None:
            await before(ctx)
        ctx.set(ready, 1)

    async def wait(ctx):
        cycle = 0
        while not ctx.get(ready):
            await ctx.tick()
            cycle += 1
        return cycle

    for number, name in enumerate(("tile", "p", "thresholds")):
        async def source(ctx, name=name, number=number):
            await wait(ctx)
            gaps = coin(idle, (seed, number)) if idle else None
            await drive(ctx, getattr(dut, name), getattr(want, name), gaps, times[name])
        testbenches.append(source)
    for number, name in enumerate(("header", "code")):
        async def sink(ctx, name=name, number=number):
            await wait(ctx)
            gaps = coin(stall, (seed, 10 + number)) if stall else None
            got = await collect(ctx, getattr(dut, name), len(getattr(want, name)), gaps,
                                times[name])
            assert got == getattr(want, name)
            finished.add(name)
        testbenches.append(sink)

    async def watch(ctx):
        await wait(ctx)
        got, cycle, extra, masks = [], 0, 12, list(entry_masks(params))
        while len(finished) < 2 or extra:
            extra -= len(finished) == 2
            *_, word = await ctx.tick().sample(dut.entry.as_value())
            cycle += 1
            # What is not valid is nothing.
            absent = sum(mask for mask, valid in masks if not word & valid)
            if any(word & valid for _, valid in masks):
                got.append(word & ~absent)
                times["entry"].append(cycle)
        assert got == want.entry

    simulate(top, prepare, watch, *testbenches)
    return times, want


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_rtl_matches_model(params, flow):
    tiles = tiles_of(params, 1, 4)
    lists = [tile.lists(params) for tile in tiles]
    assert any((tile.dense and (each.valid & (tile.p == 0)).any())
               for tile, each in zip(tiles, lists, strict=True))
    assert any(each.code.any() for each in lists) and any(each.n_hp.any() for each in lists)
    _, want = run(params, tiles, flow, 2)
    # A block row's header comes after its last entry, and tile by tile there are all of them.
    assert len(want.header) == len(want.code) == len(tiles) * params.row_blocks


def test_real_tiles():
    run(LARGE, stimulus.real_tiles(LARGE, [2])[1:])
    run(PARAMS[0], stimulus.real_tiles(PARAMS[0]))


@pytest.mark.parametrize("params", [AptParams(tile_q=12, tile_k=48, vpu_lanes=width)
                                    for width in (4, 8, 16, 32)], ids=ids)
def test_latency_and_idle_cycles(params):
    rng = np.random.default_rng(3)
    dut = ListBuilder(params)
    assert dut.throughput == "1 key of 4 rows a cycle"
    # Every key has entries, so that every cycle is seen.
    one = stimulus.random_tile(params, rng, rows=12, keys=48, dense=True, density=1)
    times, _ = run(params, [one, one, one])
    keys, entry = 3 * 48, times["entry"]
    assert len(entry) == 3 * keys
    first = [times["thresholds"][index] + dut.latency for index in range(9)]
    # Reading is as fast as writing with one key a cycle: block rows may wait for the last word.
    if params.slice_keys > 1:
        for tile in range(3):
            start = entry[tile * keys]
            assert entry[tile * keys:(tile + 1) * keys] == list(range(start, start + keys))
            if tile:
                assert start - entry[tile * keys - 1] - 1 == dut.tile_gap
        assert first == entry[::48]
        assert times["header"] == [last + dut.header_latency for last in entry[47::48]]
        assert times["code"] == [last + dut.code_latency for last in entry[47::48]]
    assert entry[-1] - entry[0] <= 3 * keys + 3 * dut.tile_gap


def test_empty_block_rows_take_two_cycles():
    params = PARAMS[0]
    rng = np.random.default_rng(4)
    tile = stimulus.random_tile(params, rng, rows=12, keys=48, density=0, dense=False)
    times, _ = run(params, [tile])
    assert np.diff(times["thresholds"]).tolist() == [2, 2]
    # Block rows beyond the tile: one cycle each, and one more after eight, for their places.
    tile = stimulus.random_tile(LARGE, rng, rows=4, keys=8, density=0, dense=False)
    times, _ = run(LARGE, [tile])
    assert np.diff(times["header"]).tolist() == [1] * 7 + [2] + [1] * 7


def test_nothing_waits_for_the_outputs_of_others():
    """A held code row does not hold headers, and the other way round; up to eight block rows."""
    params = PARAMS[0]
    rng = np.random.default_rng(5)
    tiles = [stimulus.random_tile(params, rng, rows=12, density=0.5) for _ in range(3)]
    want = Expected(params, tiles)
    for first, second in (("header", "code"), ("code", "header")):
        dut = ListBuilder(params)

        async def sink(ctx, first=first, second=second, dut=dut):
            got = await collect(ctx, getattr(dut, first), 8)
            await ctx.tick().repeat(200)
            assert not ctx.get(getattr(dut, first).valid)
            assert ctx.get(getattr(dut, second).valid)
            other = await collect(ctx, getattr(dut, second), 9)
            got += await collect(ctx, getattr(dut, first), 1)
            assert got == getattr(want, first) and other == getattr(want, second)

        async def source(ctx, name, dut):
            await drive(ctx, getattr(dut, name), getattr(want, name))

        sources = []
        for name in ("tile", "p", "thresholds"):
            async def one(ctx, name=name, dut=dut):
                await source(ctx, name, dut)
            sources.append(one)
        simulate(dut, sink, *sources)


@pytest.mark.parametrize("cycles", [5, 18, 33, 50, 71])
def test_reset_in_the_middle_of_a_tile(cycles):
    params = PARAMS[0]
    rng = np.random.default_rng(cycles)
    old = Expected(params, [stimulus.random_tile(params, rng, rows=12, density=0.9)])
    tiles = [stimulus.random_tile(params, rng, density=0.6) for _ in range(2)]
    reset = Signal()
    dut = ListBuilder(params)

    async def before(ctx):
        names = ("tile", "p", "thresholds")
        words = {name: list(getattr(old, name)) for name in names}
        for _ in range(cycles):
            for name in names:
                ctx.set(getattr(dut, name).valid, bool(words[name]))
                if words[name]:
                    ctx.set(getattr(dut, name).payload, words[name][0])
            *_, tile, p, thresholds = await ctx.tick().sample(dut.tile.ready, dut.p.ready,
                                                              dut.thresholds.ready)
            for name, ready in zip(names, (tile, p, thresholds), strict=True):
                if ready and words[name]:
                    words[name].pop(0)
        for name in names:
            ctx.set(getattr(dut, name).valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)

    run(params, tiles, dut=(ResetInserter(reset)(dut), dut), before=before)


def test_thresholds_at_their_ends():
    """Never, always, and a quantization threshold below the pruning one."""
    params = PARAMS[0]
    rng = np.random.default_rng(6)
    z = rng.integers(-600, 0, (params.tile_q, params.tile_k))
    blocks = np.ones((params.row_blocks, params.key_blocks), bool)
    pairs = [(NEVER, 1), (1, NEVER), (NEVER, NEVER), (1, 1), (20000, 10000), (32768, 32768)]
    thresholds = np.array([pairs[row % len(pairs)] for row in range(params.tile_q)])
    tile = stimulus.make_tile(params, params.tile_q, params.tile_k, blocks, z, thresholds)
    run(params, [tile, tile._replace(dense=True)])


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 16$"):
        ListBuilder(16)
    with pytest.raises(ValueError, match="codec must be block"):
        ListBuilder(AptParams(codec="rowcol"))
