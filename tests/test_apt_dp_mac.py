"""DP-MAC: golden against exact arithmetic, the component and its baseline against golden."""

import dataclasses
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from amaranth import Signal
from amaranth.hdl import ResetInserter

from golden.apt.dp_mac import PASSES, dot, join, passes, split
from golden.apt.params import SPLITS, AptParams
from rtl.apt.dp_mac import DpMac, Pass
from rtl.apt.dp_mac_baseline import DpMacBaseline
from rtl.apt.product_sum import ProductSum
from rtl.apt.product_tree import ProductTree
from tests.sim import FLOWS, run_streams, simulate


SMALL = AptParams(multipliers=3, head_dim=7, lanes=3, tile_k=10, tile_q=6, segment_bits=3,
                  block_rows=3, block_cols=5)

#: Parameter sets of the component's tests, off the default in every field that shapes it.
MATRIX = [
    AptParams(multipliers=1, head_dim=1, lanes=2, tile_k=2, block_cols=2, segment_bits=3),
    SMALL,
    dataclasses.replace(SMALL, segment_bits=5, multipliers=6, multiplier_style="dsp"),
    dataclasses.replace(SMALL, segment_bits=8, multipliers=2, head_dim=9),
    dataclasses.replace(SMALL, segment_bits=6, multipliers=5, head_dim=3),
    AptParams(head_dim=72, tile_k=64),
]
MATRIX = [dataclasses.replace(params, split=split) for params in MATRIX for split in SPLITS]


def name(params):
    return (f"{params.split}-m{params.multipliers}-s{params.segment_bits}-n{params.max_terms}-"
            f"{params.multiplier_style}")


def all_words(params):
    return np.arange(-params.qmax, params.qmax + 1)


def msb_exact(word, params):
    """MSB of a word out of exact rationals: floor, or nearest with ties up."""
    bias = Fraction(1, 2) if params.split == "balanced" else 0
    return math.floor(Fraction(int(word), 1 << params.segment_bits) + bias)


def dot_exact(a, b, hp, params):
    if hp:
        return sum(int(x) * int(y) for x, y in zip(a, b, strict=True))
    return sum(msb_exact(x, params) * msb_exact(y, params)
               for x, y in zip(a, b, strict=True)) * 4 ** params.segment_bits


# Golden

@pytest.mark.parametrize("split_name", SPLITS)
@pytest.mark.parametrize("segment_bits", [3, 4, 6, 8])
def test_split_every_word(split_name, segment_bits):
    params = AptParams(segment_bits=segment_bits, split=split_name)
    words = all_words(params)
    msb, lsb = split(words, params)
    assert msb.tolist() == [msb_exact(word, params) for word in words]
    assert (msb * 2 ** segment_bits + lsb == words).all()
    assert (join(msb, lsb, params) == words).all()
    # The ranges are those of the parameters, and reached.
    assert (msb.min(), msb.max()) == params.msb_range
    assert (lsb.min(), lsb.max()) == params.lsb_range


def test_published_ranges():
    assert AptParams(split="truncate").qmax == 2047 and AptParams(split="balanced").qmax == 2015
    assert split(np.array([-2015, -33, -32, 31, 32, 2015]), AptParams())[0].tolist() == [
        -31, -1, 0, 0, 1, 31]
    assert split(np.array([-2047, -1, 63, 64]), AptParams(split="truncate"))[1].tolist() == [
        1, 63, 63, 0]


@pytest.mark.parametrize("split_name", SPLITS)
def test_dot_every_pair_of_small_words(split_name):
    params = AptParams(segment_bits=3, split=split_name)
    words = all_words(params)
    a, b = (x.reshape(-1, 1) for x in np.meshgrid(words, words))
    high, low = dot(a, b, True, params), dot(a, b, False, params)
    assert high.tolist() == [dot_exact(x, y, True, params) for x, y in zip(a, b, strict=True)]
    assert low.tolist() == [dot_exact(x, y, False, params) for x, y in zip(a, b, strict=True)]
    assert (high != low).any()


@pytest.mark.parametrize("params", MATRIX, ids=name)
def test_dot_of_tiles(params):
    rng = np.random.default_rng(1)
    n = params.max_terms
    q = rng.integers(-params.qmax, params.qmax + 1, (5, 1, n))
    k = rng.integers(-params.qmax, params.qmax + 1, (1, 6, n))
    hp = rng.integers(0, 2, (5, 6)).astype(bool)
    out = dot(q, k, hp, params)
    assert out.shape == (5, 6) and out.dtype == np.int64
    for row in range(5):
        for key in range(6):
            assert out[row, key] == dot_exact(q[row, 0], k[0, key], hp[row, key], params)


@pytest.mark.parametrize("params", MATRIX, ids=name)
def test_passes_make_the_dot_product(params):
    rng = np.random.default_rng(2)
    for n in {1, params.max_terms - params.max_terms // 3, params.max_terms}:
        a, b = rng.integers(-params.qmax, params.qmax + 1, (2, n))
        for hp in (False, True):
            cycles = passes(a, b, hp, params)
            assert len(cycles) == math.ceil(n / params.multipliers) * (4 if hp else 1)
            assert [c["first"] for c in cycles] == [1] + [0] * (len(cycles) - 1)
            assert [c["last"] for c in cycles] == [0] * (len(cycles) - 1) + [1]
            order = list(dict.fromkeys(c["pass_"] for c in cycles))
            assert order == (list(PASSES) if hp else ["HH"])
            weights = {"HH": 4 ** params.segment_bits, "HL": 2 ** params.segment_bits,
                       "LH": 2 ** params.segment_bits, "LL": 1}
            assert dot_exact(a, b, hp, params) == sum(
                weights[c["pass_"]] * x * y
                for c in cycles for x, y in zip(c["a"], c["b"], strict=True))


def extremes(params):
    """Words whose dot products are the longest in each precision, with either sign."""
    low = params.msb_range[0] << params.segment_bits
    lowest = max(low, -params.qmax)
    return [(x, y) for x in (-params.qmax, params.qmax, lowest)
            for y in (-params.qmax, params.qmax, lowest)]


@pytest.mark.parametrize("params", MATRIX, ids=name)
def test_accumulator_is_exactly_wide_enough(params):
    worst = [int(dot(np.full(params.max_terms, x), np.full(params.max_terms, y), hp, params))
             for x, y in extremes(params) for hp in (False, True)]
    low, high = -(1 << (params.acc_bits - 1)), (1 << (params.acc_bits - 1)) - 1
    assert low <= min(worst) and max(worst) <= high
    assert max(worst) > high >> 1  # a bit less would not do


def test_published_accumulators():
    for name_, d, bits in (("truncate", 128, 31), ("balanced", 128, 30)):
        assert AptParams(split=name_, head_dim=d, tile_k=64).acc_bits == bits
    assert int(dot(np.full(128, -2047), np.full(128, -2047), False,
                   AptParams(split="truncate", head_dim=128))) == 2 ** 29


@pytest.mark.parametrize("params", MATRIX, ids=name)
def test_pass_sum_is_exactly_wide_enough(params):
    half = 1 << (params.segment_bits - 1)
    msb, lsb = (-half, half - 1), params.lsb_range
    sums = [-params.multipliers * x * y for a in (msb, lsb) for b in (msb, lsb)
            for x in a for y in b]
    low, high = -(1 << (params.pass_bits - 1)), (1 << (params.pass_bits - 1)) - 1
    assert low <= min(sums) and max(sums) <= high
    assert min(sums) < low // 2 or max(sums) > high // 2


@pytest.mark.parametrize("call, error, message", [
    (lambda p: split(np.array([0, 2016]), p), ValueError,
     r"^Words must be in -2015\.\.2015, not 2016$"),
    (lambda p: split(np.array([-2016]), p), ValueError,
     r"^Words must be in -2015\.\.2015, not -2016$"),
    (lambda p: dot(np.array([-2048]), np.array([0]), True, p), ValueError,
     r"^Words must be in -2015\.\.2015, not -2048$"),
    (lambda p: passes(np.array([0]), np.array([4000]), True, p), ValueError,
     r"^Words must be in -2015\.\.2015, not 4000$"),
    (lambda p: join(np.array([-32]), np.array([0]), p), ValueError,
     r"^MSB segments must be in -31\.\.31, not -32$"),
    (lambda p: join(np.array([0]), np.array([32]), p), ValueError,
     r"^LSB segments must be in -32\.\.31, not 32$"),
    (lambda p: join(np.array([-31]), np.array([-32]), p), ValueError,
     r"^Words must be in -2015\.\.2015, not -2016$"),
    (lambda p: dot(np.zeros((2, 3), int), np.zeros(4, int), True, p), ValueError,
     r"^Operands must have equally long last axes, not shapes \(2, 3\) and \(4,\)$"),
    (lambda p: dot(np.zeros(129, int), np.zeros(129, int), True, p), ValueError,
     r"^Terms must be in 1\.\.128, not 129$"),
    (lambda p: dot(np.zeros(4, int), np.zeros(4, int), 1, p), TypeError,
     r"^Precision must be boolean, not int64$"),
    (lambda p: split(np.array([1.0]), p), TypeError,
     r"^Value must have an integer dtype, not float64$"),
    (lambda p: dot(np.array([1.0]), np.array([1]), True, p), TypeError,
     r"^Value must have an integer dtype, not float64$"),
])
def test_golden_errors(call, error, message):
    params = AptParams(split="balanced", head_dim=64, tile_k=128)
    with pytest.raises(error, match=message):
        call(params)


# Component

def payloads(cycles, params):
    """The cycles of :func:`passes` as a testbench sets them: segments as bit patterns."""
    mask = (1 << params.segment_bits) - 1
    return [{**cycle, "pass_": Pass[cycle["pass_"]],
             "a": [x & mask for x in cycle["a"]], "b": [x & mask for x in cycle["b"]]}
            for cycle in cycles]


def cases(params, count, seed=3):
    """Corners in both precisions, then random vectors of random length: (a, b, hp)."""
    rng = np.random.default_rng(seed)
    n = params.max_terms
    corners = [(np.full(n, x), np.full(n, y), hp) for x, y in extremes(params)[:5]
               for hp in (True, False)]
    signs = np.where(np.arange(n) % 2, 1, -1)
    corners += [(params.qmax * signs, params.qmax * signs[::-1], hp) for hp in (False, True)]
    lsb = np.full(n, params.lsb_range[0] or params.lsb_range[1])
    corners += [(lsb, lsb, True)]
    random_ = []
    for _ in range(count):
        length = int(rng.integers(1, n + 1))
        a, b = rng.integers(-params.qmax, params.qmax + 1, (2, length))
        random_.append((a, b, bool(rng.integers(2))))
    return corners + random_


def run(params, vectors, flow="full_speed", cls=DpMac):
    cycles = [cycle for a, b, hp in vectors for cycle in payloads(passes(a, b, hp, params),
                                                                  params)]
    received, times = run_streams(cls(params), {"i": cycles}, {"o": len(vectors)}, flow=flow)
    return received["o"], times


@pytest.mark.parametrize("params, flow", [
    # The built-in simulator is slow on many adders: the benches run those at every flow.
    (params, flow) for params in MATRIX for flow in FLOWS
    if params.multipliers < 4 or flow == "both"
], ids=lambda value: value if isinstance(value, str) else name(value))
def test_matches_golden(params, flow):
    vectors = cases(params, 4 if params.multipliers == 16 else 16)
    expected = [int(dot(a, b, hp, params)) for a, b, hp in vectors]
    assert len(set(expected)) > 3
    received, _ = run(params, vectors, flow)
    assert received == expected


@pytest.mark.parametrize("params", [
    params for params in MATRIX if params.multipliers <= 6], ids=name)
def test_latency_and_throughput(params):
    # Low and high precision back to back: one cycle each without a bubble, results in step.
    vectors = cases(params, 12)
    received, times = run(params, vectors)
    dut = DpMac(params)
    assert dut.throughput == f"{params.multipliers} products a cycle"
    assert received == [int(dot(a, b, hp, params)) for a, b, hp in vectors]
    assert times["i"] == list(range(1, len(times["i"]) + 1))
    lasts = np.cumsum([len(passes(a, b, hp, params)) for a, b, hp in vectors])
    assert times["o"] == (lasts + dut.latency).tolist()


def test_latency_by_size():
    assert [DpMac(AptParams(multipliers=m, segment_bits=s)).latency
            for m, s in ((1, 3), (3, 6), (16, 6), (64, 8))] == [2, 3, 4, 5]


@pytest.mark.parametrize("style", ["lut", "dsp"])
@pytest.mark.parametrize("split_name", SPLITS)
def test_every_pair_of_segments_in_every_pass(split_name, style):
    params = AptParams(segment_bits=3, multipliers=1, split=split_name, multiplier_style=style)
    cycles, expected = [], []
    for pass_, weight in (("HH", 64), ("HL", 8), ("LH", 8), ("LL", 1)):
        for a in range(8):
            for b in range(8):
                cycles.append({"a": [a], "b": [b], "pass_": Pass[pass_], "first": 1, "last": 1})
                value = weight
                for bits, segment in zip((a, b), pass_, strict=True):
                    is_signed = segment == "H" or split_name == "balanced"
                    value *= bits - 8 if is_signed and bits >= 4 else bits
                expected.append(value)
    received, _ = run_streams(DpMac(params), {"i": cycles}, {"o": len(cycles)})
    assert received["o"] == expected


def test_multiplier_styles_agree():
    rng = np.random.default_rng(5)
    params = dataclasses.replace(SMALL, segment_bits=6, multipliers=7)
    vectors = [(*rng.integers(-params.qmax, params.qmax + 1, (2, 9)), hp) for hp in
               (True, False, True, True)]
    lut = run(params, vectors)
    dsp = run(dataclasses.replace(params, multiplier_style="dsp"), vectors)
    assert lut == dsp


def test_passes_in_another_order_and_idle_payload():
    params = SMALL
    a, b = np.array([[-20, 3, 27, 11], [5, -27, 9, 13]])
    cycles = payloads(passes(a, b, True, params), params)
    shuffled = random.Random(6).sample(cycles, len(cycles))
    for position, cycle in enumerate(shuffled):
        cycle["first"], cycle["last"] = int(position == 0), int(position == len(cycles) - 1)
    received, _ = run_streams(DpMac(params), {"i": shuffled}, {"o": 1}, flow="starved")
    assert received["o"] == [dot_exact(a, b, True, params)]


def test_reset_in_mid_operation():
    params = SMALL
    reset = Signal()
    dut = DpMac(params)
    a, b = np.array([[27, -27, 13, 5], [27, 27, -1, 2]])
    cycles = payloads(passes(a, b, True, params), params)

    async def testbench(ctx):
        for stop in range(1, len(cycles) + 1):
            ctx.set(dut.o.ready, 0)
            ctx.set(dut.i.valid, 1)
            for cycle in cycles[:stop]:
                ctx.set(dut.i.payload, cycle)
                await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.o.ready, 1)
            for _ in range(dut.latency + 1):
                assert not ctx.get(dut.o.valid)
                await ctx.tick()
            ctx.set(dut.i.valid, 1)
            for cycle in cycles:
                ctx.set(dut.i.payload, cycle)
                await ctx.tick()
            ctx.set(dut.i.valid, 0)
            result, = await ctx.tick().sample(dut.o.payload).until(dut.o.valid)
            assert result == dot_exact(a, b, True, params)

    simulate(ResetInserter(reset)(dut), testbench)


@pytest.mark.parametrize("params", [
    dataclasses.replace(SMALL, split=split) for split in SPLITS], ids=name)
@pytest.mark.parametrize("flow", FLOWS)
def test_baseline(params, flow):
    dut = DpMacBaseline(params)
    assert dut.latency == DpMac(params).latency and dut.throughput == "3 products a cycle"
    vectors = cases(params, 20)
    mask = (1 << params.word_bits) - 1
    cycles = []
    for a, b, _ in vectors:
        groups = [np.pad(x, (0, -x.size % params.multipliers)).reshape(-1, params.multipliers)
                  for x in (a, b)]
        for k, (row_a, row_b) in enumerate(zip(*groups, strict=True)):
            cycles.append({"a": (row_a & mask).tolist(), "b": (row_b & mask).tolist(),
                           "first": int(k == 0), "last": int(k == len(groups[0]) - 1)})
    received, times = run_streams(dut, {"i": cycles}, {"o": len(vectors)}, flow=flow)
    assert received["o"] == [dot_exact(a, b, True, params) for a, b, _ in vectors]
    if flow == "full_speed":
        assert times["i"] == list(range(1, len(cycles) + 1))
        assert times["o"][-1] == len(cycles) + dut.latency


@pytest.mark.parametrize("component", [DpMac, DpMacBaseline, ProductSum])
def test_params_are_required(component):
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 16$"):
        component(16)


@pytest.mark.parametrize("arguments, message", [
    ((0, 1, 1), r"^Width must be a positive integer, not 0$"),
    ((4, "2", 1), r"^Count must be a positive integer, not '2'$"),
    ((4, 2, True), r"^Stages must be a positive integer, not True$"),
])
def test_product_tree_errors(arguments, message):
    with pytest.raises(TypeError, match=message):
        ProductTree(*arguments)
