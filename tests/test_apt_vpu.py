"""Vector unit: RTL against the model, slots, latency, throughput, order of the two outputs."""

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal

from golden.apt.params import AptParams
from rtl.apt.softmax_words import logit_word, probability_word, row_word
from rtl.apt.vpu import Vpu
from tests.sim import FLOWS, coin, collect, drive, run_streams, simulate
from verif.apt import softmax_tiles as stimulus


PARAMS = [
    AptParams(tile_q=12, tile_k=48, vpu_lanes=16),
    AptParams(tile_q=8, tile_k=16, vpu_lanes=4, exp2="table"),
    AptParams(tile_q=12, tile_k=24, vpu_lanes=8),
    AptParams(lanes=4, tile_q=4, tile_k=8, vpu_lanes=32, exp2="table"),
]
LARGE = AptParams(tile_q=64, tile_k=128)


def ids(params):
    return f"{params.tile_q}x{params.tile_k}by{params.vpu_lanes}{params.exp2}"


def bits(layout, words):
    return [layout.const(word).as_bits() for word in words]


def tile_words(tiles):
    return [{"rows": tile.rows, "keys": tile.keys} for tile in tiles]


def run(params, tiles, flow="full_speed", seed=0):
    rng = np.random.default_rng(seed)
    z = [word for tile in tiles for word in stimulus.logit_words(tile, rng)]
    p = [word for tile in tiles for word in stimulus.probability_words(tile, params)]
    rows = [word for tile in tiles for word in stimulus.row_words(tile)]
    received, times = run_streams(
        Vpu(params), {"tile": tile_words(tiles), "z": z},
        {"p": len(p), "rows": len(rows)}, flow=flow, seed=seed)
    assert received["rows"] == bits(row_word(params), rows)
    assert received["p"] == bits(probability_word(params), p)
    # A block row's maximum and sum come after its last word of P'.
    ends = [time for time, word in zip(times["p"], p, strict=True) if word["end"]]
    assert all(row > end for row, end in zip(times["rows"], ends, strict=True))
    return times, z, p


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_rtl_matches_model(params, flow):
    rng = np.random.default_rng(1)
    tiles = stimulus.corner_tiles(params, rng)
    tiles += [stimulus.random_tile(params, rng) for _ in range(4)]
    assert any(tile.total.min() == 0 and tile.total.max() > 0 for tile in tiles)
    run(params, tiles, flow, 2)


def test_real_tiles():
    run(LARGE, stimulus.real_tiles(LARGE, [2])[1:])
    tiles = stimulus.real_tiles(PARAMS[0])
    assert any((tile.computed & (tile.p == 0)).any() for tile in tiles if tile.dense)
    run(PARAMS[0], tiles)


@pytest.mark.parametrize("params", [AptParams(tile_q=4, tile_k=48, vpu_lanes=width, exp2=kind)
                                    for width in (4, 8, 16, 32) for kind in ("pwl16", "table")],
                         ids=ids)
def test_latency_and_throughput(params):
    rng = np.random.default_rng(3)
    dut = Vpu(params)
    assert dut.throughput == f"{params.vpu_lanes} elements a cycle"
    single = stimulus.random_tile(params, rng, rows=4, keys=48, density=1, dense=True)
    times, _, p = run(params, [single])
    assert times["p"][0] == times["z"][-1] + dut.latency
    # Words of a block row without a gap.
    assert times["p"] == list(range(times["p"][0], times["p"][0] + len(p)))
    assert times["rows"] == [times["p"][-1] + dut.rows_latency]
    # Logits at one key a cycle, over tiles and their block rows, empty ones too.
    tiles = [stimulus.random_tile(params, rng, density=density)
             for density in (1, 0.5, 0.3, 0.8, 0, 1, 0.7)]
    times, z, _ = run(params, tiles)
    busy = times["z"][-1] - times["z"][0] + 1
    if params.slice_keys > 1:
        assert busy == len(z)
    else:
        # Reading is no faster than writing: short block rows wait behind a long one.
        assert busy <= len(z) + 48


def test_reading_has_no_idle_cycles():
    """Four block rows that wait behind a stalled ``p`` leave without a gap."""
    params = PARAMS[2]
    rng = np.random.default_rng(4)
    tiles = [stimulus.random_tile(params, rng, rows=4, keys=24, density=1) for _ in range(4)]
    p = [word for tile in tiles for word in stimulus.probability_words(tile, params)]
    dut = Vpu(params)
    times, done = [], []

    async def tile(ctx):
        await drive(ctx, dut.tile, tile_words(tiles))

    async def z(ctx):
        await drive(ctx, dut.z, [word for tile in tiles
                                 for word in stimulus.logit_words(tile, rng)])
        done.append(True)

    async def sink(ctx):
        while not done:
            await ctx.tick()
        await ctx.tick().repeat(20)
        received = await collect(ctx, dut.p, len(p), times=times)
        assert received == bits(probability_word(params), p)

    simulate(dut, tile, z, sink)
    assert times == list(range(times[0], times[0] + len(p)))


def test_rows_are_complete_while_p_is_held():
    """Thresholds of a block row depend on its sum; P' of the next one may wait for them."""
    params = PARAMS[0]
    rng = np.random.default_rng(5)
    tiles = [stimulus.random_tile(params, rng, rows=8, density=1)]
    first = stimulus.probability_words(tiles[0], params)
    words = next(index for index, word in enumerate(first) if word["end"]) + 1
    dut = Vpu(params)

    async def tile(ctx):
        await drive(ctx, dut.tile, tile_words(tiles))

    async def z(ctx):
        await drive(ctx, dut.z, stimulus.logit_words(tiles[0], rng))

    async def sink(ctx):
        await collect(ctx, dut.p, words)
        received = await collect(ctx, dut.rows, 1)
        assert received == bits(row_word(params), stimulus.row_words(tiles[0])[:1])
        assert not ctx.get(dut.rows.valid)
        await collect(ctx, dut.p, len(first) - words)
        await collect(ctx, dut.rows, 1)

    simulate(dut, tile, z, sink)


@pytest.mark.parametrize("flow", ["full_speed", "stalled"])
def test_never_refuses_who_counts_slots(flow):
    params = PARAMS[0]
    rng = np.random.default_rng(6)
    tiles = [stimulus.random_tile(params, rng, density=density) for density in (0.1, 0, 0.5, 1, 0)]
    z = [word for tile in tiles for word in stimulus.logit_words(tile, rng)]
    p = [word for tile in tiles for word in stimulus.probability_words(tile, params)]
    rows = [word for tile in tiles for word in stimulus.row_words(tile)]
    dut = Vpu(params)
    slots = [4]

    async def tile(ctx):
        await drive(ctx, dut.tile, tile_words(tiles))

    async def freed(ctx):
        returned = 0
        while returned < len(rows):
            *_, pulse = await ctx.tick().sample(dut.slot_free)
            returned += pulse
            slots[0] += pulse

    async def source(ctx):
        await ctx.tick().repeat(2)
        start = True
        for word in z:
            while start and not slots[0]:
                await ctx.tick()
            slots[0] -= start
            start = bool(word["end"])
            ctx.set(dut.z.payload, word)
            ctx.set(dut.z.valid, 1)
            *_, ready = await ctx.tick().sample(dut.z.ready)
            assert ready
            ctx.set(dut.z.valid, 0)

    async def sink(ctx):
        gaps = coin(FLOWS[flow][1], 7)
        assert await collect(ctx, dut.p, len(p), gaps) == bits(probability_word(params), p)

    async def row_sink(ctx):
        gaps = coin(FLOWS[flow][1], 8)
        assert await collect(ctx, dut.rows, len(rows), gaps) == bits(row_word(params), rows)

    simulate(dut, tile, freed, source, sink, row_sink)
    assert slots[0] == 4


def test_reset_in_the_middle_of_a_tile():
    params = PARAMS[0]
    rng = np.random.default_rng(9)
    tiles = [stimulus.random_tile(params, rng, rows=12, density=0.7) for _ in range(2)]
    p = [word for tile in tiles for word in stimulus.probability_words(tile, params)]
    rows = [word for tile in tiles for word in stimulus.row_words(tile)]
    reset = Signal()
    dut = Vpu(params)

    async def testbench(ctx):
        for cycles in (3, 29, 60, 111):
            ctx.set(dut.tile.payload, tile_words(tiles)[0])
            ctx.set(dut.tile.valid, 1)
            ctx.set(dut.z.valid, 1)
            for word in stimulus.logit_words(tiles[0], rng)[:cycles]:
                ctx.set(dut.z.payload, word)
                await ctx.tick()
            ctx.set(dut.tile.valid, 0)
            ctx.set(dut.z.valid, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.p.valid) and not ctx.get(dut.rows.valid)
        times = await feed(ctx)
        assert times

    async def feed(ctx):
        inputs = {"tile": tile_words(tiles),
                  "z": [word for tile in tiles for word in stimulus.logit_words(tile, rng)]}
        outputs = {"p": [], "rows": []}
        for name in outputs:
            ctx.set(getattr(dut, name).ready, 1)
        for _ in range(2000):
            for name, words in inputs.items():
                ctx.set(getattr(dut, name).valid, bool(words))
                if words:
                    ctx.set(getattr(dut, name).payload, words[0])
            *_, tile, z, p_valid, p_word, row_valid, row = await ctx.tick().sample(
                dut.tile.ready, dut.z.ready, dut.p.valid, dut.p.payload.as_value(),
                dut.rows.valid, dut.rows.payload.as_value())
            for name, ready in (("tile", tile), ("z", z)):
                if ready and inputs[name]:
                    inputs[name].pop(0)
            if p_valid:
                outputs["p"].append(p_word)
            if row_valid:
                outputs["rows"].append(row)
        assert outputs["p"] == bits(probability_word(params), p)
        assert outputs["rows"] == bits(row_word(params), rows)
        return True

    simulate(ResetInserter(reset)(dut), testbench)


@pytest.mark.parametrize("change, message", [
    ({"codec": "rowcol"}, "codec must be block"),
    ({"vpu_lanes": 12, "tile_k": 120}, "vpu_lanes must be 4 or 8 or 16 or 32"),
    ({"tile_k": 100}, "tile_k must be a multiple of 8"),
])
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        Vpu(AptParams(**change))


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 16$"):
        Vpu(16)


def test_payloads():
    params = LARGE
    assert logit_word(params).size == 4 + 7 + 64 + 2
    assert probability_word(params).size == 4 + 1 + 256 + 2
    assert row_word(params).size == 4 + 64 + 4 * params.total_bits
