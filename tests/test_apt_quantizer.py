"""Quantizer: model against fractions, RTL against the model, latencies, rates, errors."""

import time
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from golden.apt.params import AptParams
from golden.apt.quantizer import LARGEST, absmax, inverse, quantize, quantize_with
from rtl.apt.absmax import AbsMax
from rtl.apt.quantizer import Quantizer
from rtl.apt.reciprocal import Reciprocal
from rtl.apt.scale_lane import ScaleLane
from tests.sim import FLOWS, collect, drive, run_streams, simulate
from verif.apt.tensors import hard_tensors, row_words


SHAPES = [
    AptParams(head_dim=8, vpu_lanes=4),
    AptParams(head_dim=7, vpu_lanes=5, segment_bits=3, split="truncate"),
    AptParams(head_dim=3, vpu_lanes=3, segment_bits=8, split="truncate"),
    AptParams(head_dim=4, vpu_lanes=2, segment_bits=5, multiplier_style="dsp"),
]


def ids(params):
    return (f"{params.split}{params.segment_bits}x{params.vpu_lanes}{params.multiplier_style}")


def exact(x, scale, params):
    """The formula of the specification in exact arithmetic, one element at a time."""
    x = max(x, -LARGEST)
    if scale == 0:
        return 0
    reciprocal = floor(Fraction(params.qmax * 2**16, scale))
    magnitude = floor(Fraction(abs(x) * reciprocal, 2**16) + Fraction(1, 2))
    return magnitude if x >= 0 else -magnitude


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_model_matches_exact_arithmetic(params):
    rng = np.random.default_rng(0)
    tiles = hard_tensors(params, rng, 4)
    assert len(tiles) > 40
    for tile in tiles:
        q, scale = quantize(tile, params)
        assert scale == max(min(abs(x), LARGEST) for x in tile.ravel().tolist())
        assert q.ravel().tolist() == [exact(x, int(scale), params) for x in tile.ravel().tolist()]


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_words_are_within_one_of_the_nearest(params):
    rng = np.random.default_rng(1)
    for scale in [1, 2, 3, *rng.integers(4, LARGEST + 1, 30).tolist(), LARGEST]:
        for x in rng.integers(0, scale + 1, 20).tolist():
            for signed in (x, -x):
                q = int(quantize_with(signed, scale, params))
                assert abs(q - Fraction(signed * params.qmax, scale)) <= 1


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_every_scale_maps_to_qmax_and_no_further(params):
    scales = np.arange(1, LARGEST + 1)
    assert (quantize_with(scales, scales, params) == params.qmax).all()
    assert (quantize_with(-scales, scales, params) == -params.qmax).all()
    assert int(inverse(1, params)).bit_length() == params.inverse_bits


def test_model_of_a_batch_is_the_model_of_its_tiles():
    rng = np.random.default_rng(2)
    params = AptParams()
    tiles = rng.integers(-LARGEST - 1, LARGEST + 1, (3, 2, 5, 64))
    tiles >>= rng.integers(0, 15, (3, 2, 1, 1))
    q, scale = quantize(tiles, params)
    for index in np.ndindex(3, 2):
        one, its_scale = quantize(tiles[index], params)
        assert np.array_equal(one, q[index]) and its_scale == scale[index]


@pytest.mark.parametrize("segment_bits, decibels", [(6, 65.45), (3, 29.04)])
def test_quality_of_gaussian_tiles(segment_bits, decibels):
    # Reference figures of a 64 x 64 gaussian tile in 12 and in 6 bits; float only here.
    params = AptParams(segment_bits=segment_bits, split="truncate")
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 64, 64))
    codes = np.rint(x * (LARGEST / np.abs(x).max(axis=(1, 2), keepdims=True))).astype(np.int64)
    q, scale = quantize(codes, params)
    error = q * scale[:, None, None] / params.qmax - codes
    qsnr = 10 * np.log10((codes.astype(float) ** 2).sum((1, 2)) / (error ** 2).sum((1, 2)))
    assert abs(qsnr.mean() - decibels) < 0.1


def test_model_speed():
    params = AptParams()
    tile = np.random.default_rng(4).integers(-LARGEST, LARGEST + 1, (64, 64))

    def run():
        start = time.perf_counter()
        quantize(tile, params)
        return time.perf_counter() - start

    assert min(run() for _ in range(20)) < 1e-3


def test_model_errors():
    params = AptParams()
    with pytest.raises(TypeError, match=r"^Value must have an integer dtype, not float64$"):
        quantize(np.zeros((2, 2)), params)
    with pytest.raises(ValueError, match=r"^Elements must be in -32768\.\.32767, not 32768$"):
        absmax([[32768]])
    with pytest.raises(ValueError, match=r"^Scales must be in 0\.\.32767, not -1$"):
        inverse(-1, params)
    with pytest.raises(ValueError, match=r"^Elements must not exceed their scale$"):
        quantize_with(6, 5, params)


def element_words(tiles, params):
    payloads = []
    for tile in tiles:
        words = row_words(tile, params.vpu_lanes)
        payloads += [{"x": word, "last": int(index == len(words) - 1)}
                     for index, word in enumerate(words)]
    return payloads


def flat(word, last, params):
    mask = (1 << params.word_bits) - 1
    return (sum((value & mask) << (index * params.word_bits) for index, value in enumerate(word))
            | last << (params.word_bits * params.vpu_lanes))


def expected(tiles, params):
    scales, words = [], []
    for tile in tiles:
        q, scale = quantize(tile, params)
        scales.append(int(scale))
        rows = row_words(q, params.vpu_lanes)
        words += [flat(word, int(index == len(rows) - 1), params)
                  for index, word in enumerate(rows)]
    return scales, words


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_rtl_matches_the_model(params, flow):
    rng = np.random.default_rng(5)
    tiles = hard_tensors(params, rng, 2)
    tiles = tiles[::2 if flow == "full_speed" else 5]
    tiles = [tiles[index][:int(rng.integers(1, 3))] for index in rng.permutation(len(tiles))]
    scales, words = expected(tiles, params)
    payloads = element_words(tiles, params)
    received, _ = run_streams(Quantizer(params), {"measure": payloads, "i": payloads},
                              {"scale": len(scales), "o": len(words)}, flow=flow)
    assert received["scale"] == scales and len(set(scales)) > 5
    assert received["o"] == words


def test_a_scale_is_taken_by_a_sink_that_waits_for_it():
    """The divider is still busy when the sink takes the scale, and the sink is not ready again."""
    params = SHAPES[0]
    rng = np.random.default_rng(12)
    tiles = [rng.integers(-scale, scale + 1, (1, params.head_dim)) for scale in (9, 999, 5, 20, 7)]
    scales, words = expected(tiles, params)
    payloads = element_words(tiles, params)
    dut = Quantizer(params)
    taken, received = [], []

    async def scale_sink(ctx):
        while len(taken) < len(scales):
            await ctx.tick().until(dut.scale.valid)
            ctx.set(dut.scale.ready, 1)
            _, _, valid, payload = await ctx.tick().sample(dut.scale.valid, dut.scale.payload)
            assert valid
            taken.append(payload)
            ctx.set(dut.scale.ready, 0)

    async def measure(ctx):
        await drive(ctx, dut.measure, payloads)

    async def elements(ctx):
        await drive(ctx, dut.i, payloads)

    async def sink(ctx):
        received.extend(await collect(ctx, dut.o, len(words)))

    simulate(dut, scale_sink, measure, elements, sink, cycles=2_000)
    assert taken == scales and received == words


def test_inputs_mean_nothing_without_valid():
    params = SHAPES[0]
    rng = np.random.default_rng(10)
    tiles = [rng.integers(-scale, scale + 1, (3, params.head_dim)) for scale in (9, 999, 5, 20)]
    payloads = element_words(tiles, params)
    dut = Quantizer(params)
    received = []

    def source(stream):
        async def testbench(ctx):
            for payload in payloads:
                for _ in range(int(rng.integers(3))):
                    ctx.set(stream.payload, {"x": [30_000] * params.vpu_lanes, "last": 1})
                    ctx.set(stream.valid, 0)
                    await ctx.tick()
                ctx.set(stream.payload, payload)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)
        return testbench

    async def sink(ctx):
        ctx.set(dut.scale.ready, 1)
        received.extend(await collect(ctx, dut.o, len(payloads)))

    simulate(dut, source(dut.measure), source(dut.i), sink, cycles=2_000)
    assert received == expected(tiles, params)[1]


@pytest.mark.parametrize("params", SHAPES[:2], ids=ids)
@pytest.mark.parametrize("extra", [-9, 0, 5])
def test_latencies_and_rates(params, extra):
    dut = Quantizer(params)
    shortest = params.inverse_bits + 2
    words = shortest + extra
    count = 5
    tiles = [np.random.default_rng(6).integers(-99, 100, (words, params.vpu_lanes))
             for _ in range(count)]
    payloads = element_words(tiles, params)
    _, times = run_streams(dut, {"measure": payloads, "i": payloads},
                           {"scale": count, "o": len(payloads)})
    measure, scale, i, o = (np.array(times[name]) for name in ("measure", "scale", "i", "o"))
    assert dut.latency == 3 and (o - i == dut.latency).all()
    assert scale[0] - measure[words - 1] == dut.scale_latency
    assert i[0] - measure[words - 1] == dut.turnaround
    assert dut.scale_latency == 4
    assert dut.turnaround == dut.scale_latency + params.inverse_bits + 1
    # Within a tile a word a cycle; from tile to tile no gap, or the divider's period.
    assert (np.diff(i).reshape(-1)[[k for k in range(len(i) - 1) if (k + 1) % words]] == 1).all()
    assert np.diff(i[::words]).tolist() == [max(words, shortest)] * (count - 1)
    assert dut.throughput == f"{params.vpu_lanes} elements a cycle in each pass"


@pytest.mark.parametrize("lanes, latency", [(2, 3), (4, 4), (5, 4), (16, 5), (64, 6)])
def test_absmax_of_any_width(lanes, latency):
    params = AptParams(vpu_lanes=lanes, head_dim=lanes)
    rng = np.random.default_rng(7)
    tiles = [rng.integers(-LARGEST - 1, LARGEST + 1, (3, lanes)) >> shift for shift in range(15)]
    for lane in range(lanes):   # the largest in each lane once, next to its own negative less one
        tile = np.full((2, lanes), -500)
        tile[lane % 2, lane] = 501
        tiles.append(tile)
    payloads = element_words(tiles, params)
    dut = AbsMax(params)
    received, times = run_streams(dut, {"i": payloads}, {"o": len(tiles)})
    assert received["o"] == [int(absmax(tile)) for tile in tiles]
    assert times["o"][0] - times["i"][2] == dut.latency == latency
    assert dut.throughput == f"{lanes} elements a cycle"


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_reciprocal(params):
    rng = np.random.default_rng(8)
    scales = [1, 2, 3, 5, LARGEST - 1, LARGEST, params.qmax,
              *rng.integers(1, LARGEST + 1, 10).tolist()]
    dut = Reciprocal(params)
    received, times = run_streams(dut, {"i": scales}, {"o": len(scales)})
    assert received["o"] == [(params.qmax << 16) // scale for scale in scales]
    assert times["o"][0] - times["i"][0] == dut.latency == params.inverse_bits + 1
    assert np.diff(times["o"]).tolist() == [dut.latency + 1] * (len(scales) - 1)
    assert dut.throughput == f"one reciprocal every {dut.latency + 1} cycles"


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_lane_over_elements_of_every_digit(params):
    rng = np.random.default_rng(9)
    cases = [(x, scale) for scale in (LARGEST, 1 << 14, 3 * params.qmax % LARGEST, 4030, 181)
             for x in [-scale, scale, *rng.integers(-scale, scale + 1, 150).tolist()]]
    cases.append((-LARGEST - 1, LARGEST))
    dut = ScaleLane(params)
    got = []

    async def testbench(ctx):
        ctx.set(dut.advance, 1)
        for x, scale in [*cases, *[(0, 1)] * (dut.STAGES - 1)]:
            ctx.set(dut.x, x)
            await ctx.tick()
            # The lane reads the reciprocal one move after the element.
            reciprocal = int(inverse(scale, params))
            ctx.set(dut.inverse, reciprocal)
            ctx.set(dut.triple, 3 * reciprocal)
            got.append(ctx.get(dut.q))

    simulate(dut, testbench, cycles=5_000)
    assert got[dut.STAGES - 1:] == [exact(x, scale, params) for x, scale in cases]


def test_an_untaken_scale_holds_up_the_tile_after_the_next():
    params = SHAPES[0]
    dut = Quantizer(params)
    taken = []

    async def testbench(ctx):
        ctx.set(dut.measure.p.x, [1, 2, 3, 4])
        ctx.set(dut.measure.p.last, 1)
        ctx.set(dut.measure.valid, 1)
        for _ in range(100):
            *_, ready = await ctx.tick().sample(dut.measure.ready)
            taken.append(ready)
        assert ctx.get(dut.scale.valid)

    simulate(dut, testbench, cycles=200)
    # One tile's scale is offered, the next is complete, and the tree holds the words behind it.
    assert sum(taken) == dut.scale_latency and not taken[-1]


def test_params_are_required():
    for block in (Quantizer, AbsMax, Reciprocal, ScaleLane):
        with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
            block(8)
    assert Quantizer(SHAPES[0]).params is SHAPES[0]
