"""TAFA: model against float64 and whole numbers, RTL against the model over query tiles."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from golden.apt import tafa
from golden.apt.mask_generator import NEVER, P_ONE
from golden.apt.params import AptParams
from rtl.apt.tafa import Tafa
from tests.sim import FLOWS, coin, collect, drive, simulate
from verif.apt.row_vectors import some_query_tile, tafa_payloads


SHAPES = [
    AptParams(tile_q=4, tile_k=16),
    AptParams(tile_q=12, tile_k=24, state_bits=8),
    AptParams(tile_q=8, tile_k=512, state_bits=8, exp2="table"),
    AptParams(tile_q=20, tile_k=40, exp2="table"),
]


def ids(params):
    return f"{params.tile_q}x{params.tile_k}s{params.state_bits}{params.exp2}"


def test_model_thresholds_follow_the_equation():
    """``theta' = theta * l~ / rho`` in float64."""
    rng = np.random.default_rng(0)
    params = AptParams(exp2="table")
    count = 500
    theta = 2.0 ** -rng.uniform(0, 12, (count, 2))
    total = rng.integers(1 << 15, 128 << 15, count)
    c, s = rng.integers(-500, 500, count), rng.integers(-900, 400, count)
    nevers = 0
    for index in range(count):
        codes = tafa.threshold_code(theta[index])
        got = tafa.thresholds(codes, total[index], c[index], s[index], params)
        want = theta[index] * total[index] / 2.0 ** ((s[index] - c[index]) / 256)
        for value, exact in zip(got.tolist(), want.tolist(), strict=True):
            # An exponent is off by a step and a half of 1/256 at most, and by the cut of log2.
            if value == NEVER:
                nevers += 1
                assert exact > P_ONE * 0.99
            else:
                assert abs(value - exact) <= 0.009 * exact + 1
    assert 0 < nevers < 2 * count


def test_model_corners_of_thresholds():
    params = AptParams(exp2="table")

    def pair(codes, total, c, s):
        return tafa.thresholds(codes, total, c, s, params).tolist()

    assert pair([0, 0], 0, 5, 5) == [NEVER, NEVER]
    assert pair([0, 0], 1 << 15, tafa.NONE, 5) == [NEVER, NEVER]
    assert pair([0, 0], 1 << 15, 5, tafa.NONE) == [NEVER, NEVER]
    # All of a row's mass in this tile, one element: theta' is theta.
    assert pair([0, 1 << 11], 1 << 15, 7, 7) == [P_ONE, P_ONE // 2]
    # Codes are rounded half up: 3 is nearer to 0, 4 is half a step.
    assert pair([3, 4], 1 << 15, 7, 7) == [P_ONE, 32679]
    assert pair([3, 4], 1 << 15, 8, 7) == [NEVER, P_ONE]
    assert pair([0xffff, 0xffff], 1 << 15, -32767, 32767) == [1, 1]


def test_model_of_the_mass():
    assert tafa.mass([0, 32767, -32768, -32768, 5], [1 << 15, 512 << 15, 1, 0, 4 << 15]).tolist() \
        == [0, 32767, -32767, tafa.NONE, 517]


def test_model_state_of_eight_bits():
    params = AptParams(state_bits=8)
    s = np.array([[tafa.NONE, 100, 84, 83, 117, 5000, -5000, tafa.NONE],
                  [tafa.NONE] * 8])
    words, reference = tafa.store(s, params)
    steps = [max(-127, min(127, floor(Fraction(int(x) - 100, 32) + Fraction(1, 2))))
             for x in s[0, 1:7]]
    assert reference.tolist() == [100, tafa.NONE]
    assert words.tolist() == [[tafa.NONE_8, *steps, tafa.NONE_8], [tafa.NONE_8] * 8]
    back = tafa.recall(words, reference[:, None], params)
    assert back[0].tolist() == [tafa.NONE, *(100 + 32 * step for step in steps), tafa.NONE]
    assert (back[1] == tafa.NONE).all()
    assert tafa.recall([127, -127], [32000, -32000], params).tolist() == [32767, -32767]
    rng = np.random.default_rng(1)
    s = rng.integers(-1000, 1000, (50, 9))
    words, reference = tafa.store(s, params)
    assert np.abs(tafa.recall(words, reference[:, None], params) - s).max() <= 16
    words, reference = tafa.store(s, AptParams())
    assert np.array_equal(words, s) and np.array_equal(reference, s[:, 0])
    assert np.array_equal(tafa.recall(words, reference[:, None], AptParams()), s)


def test_model_codes_of_thresholds():
    assert tafa.threshold_code([1, 0.5, 2.0 ** -32, 2.0 ** -31.5]).tolist() == [
        0, 2048, 65535, 64512]
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match=r"^Thresholds must be above 0 and at most 1$"):
            tafa.threshold_code([wrong])


def pack(word, params):
    """A word of an output stream as an integer."""
    if "thresholds" in word:
        pair = word["thresholds"]["prune"] | word["thresholds"]["quant"] << 17
        fields = ((word["row"], params.row_bits), (pair, 34), (word["s"], params.state_bits))
    else:
        fields = (word["row"], params.row_bits), (word["c"], 16), (word["reference"], 16)
    value = place = 0
    for field, width in fields:
        value |= (field & ((1 << width) - 1)) << place
        place += width
    return value


def run(params, tiles, flow="full_speed", lead=True):
    """Query tiles through the RTL; with ``lead`` the next one's rows may come before the whole
    rows of the one before."""
    payloads = [tafa_payloads(tile, params) for tile in tiles]
    dut = Tafa(params)
    idle, stall = FLOWS[flow]
    taken = {"i": 0, "row_i": 0}
    times = {name: [] for name in ("i", "o", "row_i", "row_o")}
    received = {}

    def source(name, other, before):
        async def testbench(ctx):
            gaps = coin(idle, (1, len(name))) if idle else None
            cycle = 0
            for number, tile in enumerate(payloads):
                while taken[other] < number + before:
                    await ctx.tick()
                    cycle += 1
                own = []
                await drive(ctx, getattr(dut, name), tile[name], gaps, own)
                times[name] += [cycle + time for time in own]
                cycle += own[-1]
                taken[name] += 1
        return testbench

    def sink(name):
        async def testbench(ctx):
            gaps = coin(stall, (2, len(name))) if stall else None
            count = sum(len(tile[name]) for tile in payloads)
            received[name] = await collect(ctx, getattr(dut, name), count, gaps, times[name])
        return testbench

    simulate(dut, source("i", "row_i", -1 if lead else 0), source("row_i", "i", 1), sink("o"),
             sink("row_o"))
    for name in ("o", "row_o"):
        want = [pack(word, params) for tile in payloads for word in tile[name]]
        assert received[name] == want and len(set(want)) > 3
    return dut, times


def query_tiles(params, seed, count=5):
    rng = np.random.default_rng(seed)
    return [some_query_tile(params, rng, int(rng.choice([params.tile_q, params.tile_q - 3])),
                            int(rng.integers(1, 4))) for _ in range(count)]


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_rtl_matches_the_model(params, flow):
    run(params, query_tiles(params, 2), flow)


def test_stimulus_has_what_it_should():
    tiles = [tile for params in SHAPES for seed in range(4) for tile in query_tiles(params, seed)]
    words = [word for tile in tiles for word in tafa_payloads(tile, SHAPES[0])["o"]]
    pairs = [value for word in words for value in word["thresholds"].values()]
    kinds = [pairs.count(NEVER), pairs.count(1), sum(1 < value < NEVER for value in pairs)]
    assert min(kinds) > len(pairs) // 20
    assert {tile.has_state for tile in tiles} == {False, True}
    assert any((tile.total == 0).all(-1).any() for tile in tiles)
    assert any((tile.total[:, 0] == 0).any() and (tile.total > 0).any(-1).all() for tile in tiles)


def test_one_query_tile_after_the_other():
    run(SHAPES[1], query_tiles(SHAPES[1], 3), lead=False)


def test_latencies_and_throughput():
    params = SHAPES[0]
    rng = np.random.default_rng(4)
    dut, times = run(params, [some_query_tile(params, rng, 4, 5)])
    i, o, row_i, row_o = (np.array(times[name]) for name in ("i", "o", "row_i", "row_o"))
    assert (o - i == dut.latency).all() and dut.latency == 10
    assert (np.diff(i) == 11).all() and dut.throughput == "one row of a tile every 11 cycles"
    assert (row_o - row_i == dut.row_latency).all() and dut.row_latency == 6
    assert (np.diff(row_i) == 7).all()


@pytest.mark.parametrize("stuck, other", [("o", "row_o"), ("row_o", "o")])
def test_an_untaken_result_holds_up_its_own_kind_alone(stuck, other):
    params = SHAPES[0]
    dut = Tafa(params)
    counts = {"o": 0, "row_o": 0}
    payload = tafa_payloads(some_query_tile(params, np.random.default_rng(5), 4, 2), params)

    async def testbench(ctx):
        ctx.set(dut.i.payload, payload["i"][0])
        ctx.set(dut.row_i.payload, payload["row_i"][1])
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.row_i.valid, 1)
        ctx.set(getattr(dut, other).ready, 1)
        for _ in range(120):
            *_, o, row_o = await ctx.tick().sample(dut.o.valid & dut.o.ready,
                                                   dut.row_o.valid & dut.row_o.ready)
            counts["o"] += o
            counts["row_o"] += row_o

    simulate(dut, testbench, cycles=200)
    assert counts[stuck] == 0 and counts[other] >= 10


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Tafa(8)
    with pytest.raises(ValueError, match=r"^AptParams\.lanes must be "):
        Tafa(AptParams(lanes=5))
    dut = Tafa(SHAPES[0])
    assert dut.params is SHAPES[0]
