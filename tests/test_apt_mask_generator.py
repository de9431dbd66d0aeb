"""Mask generator: model against the equations, RTL against the model, latency, errors."""

import re
import time

import numpy as np
import pytest

from golden.apt.mask_generator import NEVER, P_ONE, generate
from golden.apt.params import AptParams
from rtl.apt.mask_generator import MaskGenerator
from tests.sim import FLOWS, run_streams, simulate
from verif.apt.masks import mask_payloads


PARAMS = [
    AptParams(tile_q=4, tile_k=16, vpu_lanes=16),
    AptParams(lanes=2, tile_q=4, tile_k=32, vpu_lanes=8),
    AptParams(lanes=3, tile_q=6, tile_k=10, vpu_lanes=5),
    AptParams(lanes=3, tile_q=5, tile_k=11, vpu_lanes=3),
]


def ids(params):
    return f"{params.tile_q}x{params.tile_k}by{params.vpu_lanes}"


def tiles(params, count, seed):
    """P' and thresholds, with ties, neighbours of ties, and the ends of both ranges."""
    rng = np.random.default_rng(seed)
    p = rng.integers(0, P_ONE + 1, (count, params.tile_q, params.tile_k))
    thresholds = rng.integers(1, NEVER + 1, (count, params.tile_q, 2))
    special = rng.random(thresholds.shape)
    thresholds[special < 0.15], thresholds[special > 0.85] = NEVER, 1
    pick = rng.integers(0, 8, p.shape)
    for which in (0, 1):
        near = np.clip(thresholds[..., which, None] + rng.integers(-1, 2, p.shape), 0, P_ONE)
        p = np.where(pick == which, near, p)
    return np.where(pick == 2, 0, np.where(pick == 3, P_ONE, p)), thresholds


def reference(p, thresholds):
    """The equations, one element at a time."""
    hp, lp = [], []
    for row, (prune, quant) in zip(p.tolist(), thresholds.tolist(), strict=True):
        hp.append([value >= prune and value >= quant for value in row])
        lp.append([value >= prune and not value >= quant for value in row])
    return hp, lp


@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_model_matches_the_equations(params):
    p, thresholds = tiles(params, 20, 1)
    hp, lp = generate(p, thresholds)
    assert hp.any() and lp.any() and not (hp | lp).all() and not (hp & lp).any()
    for tile in range(len(p)):
        want_hp, want_lp = reference(p[tile], thresholds[tile])
        assert hp[tile].tolist() == want_hp and lp[tile].tolist() == want_lp


def test_model_at_the_thresholds():
    p = np.array([[0, 99, 100, 199, 200, P_ONE]], np.uint16)
    hp, lp = generate(p, [[100, 200]])
    assert hp.tolist() == [[False, False, False, False, True, True]]
    assert lp.tolist() == [[False, False, True, True, False, False]]
    # HP needs both bits: a quantization threshold below the pruning threshold makes no LP.
    hp, lp = generate(p, [[200, 100]])
    assert hp.tolist() == [[False, False, False, False, True, True]] and not lp.any()
    hp, lp = generate(p, [[1, NEVER]])
    assert not hp.any() and lp.tolist() == [[False, True, True, True, True, True]]
    hp, lp = generate(p, [[NEVER, 1]])
    assert not hp.any() and not lp.any()


def run(params, p, thresholds, flow="full_speed"):
    words = params.vpu_words
    # What pads a row's last word is not to be looked at: the largest P' must give 0.
    padded = np.full((*p.shape[:-1], words * params.vpu_lanes), P_ONE)
    padded[..., :params.tile_k] = p
    hp, lp = generate(p, thresholds)
    want = [word["hp"] | word["lp"] << params.vpu_lanes
            for word in mask_payloads(hp, lp, params.vpu_lanes)]
    received, times = run_streams(
        MaskGenerator(params),
        {"thresholds": [{"prune": prune, "quant": quant}
                        for prune, quant in thresholds.reshape(-1, 2).tolist()],
         "i": padded.reshape(-1, params.vpu_lanes).tolist()},
        {"o": len(want)}, flow=flow)
    assert received["o"] == want
    return times


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_rtl_matches_model(params, flow):
    run(params, *tiles(params, 4, 2), flow=flow)


@pytest.mark.parametrize("params", PARAMS, ids=ids)
def test_latency_and_throughput(params):
    times = run(params, *tiles(params, 3, 3))
    dut = MaskGenerator(params)
    assert dut.params is params
    assert dut.throughput == f"{params.vpu_lanes} elements a cycle"
    count = 3 * params.tile_q * params.vpu_words
    assert len(times["i"]) == count
    # No gap between words, rows or tiles, and each word comes out `latency` cycles later.
    assert times["i"] == list(range(times["i"][0], times["i"][0] + count))
    assert times["o"] == [cycle + dut.latency for cycle in times["i"]]
    assert times["i"][0] == times["thresholds"][0] + 1


def test_offers_before_it_is_asked():
    params = PARAMS[2]
    dut = MaskGenerator(params)

    async def testbench(ctx):
        ctx.set(dut.thresholds.valid, 1)
        ctx.set(dut.i.valid, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.o.valid) and not ctx.get(dut.i.ready)

    simulate(dut, testbench)


def test_beyond_the_contract():
    """P' above 1.0 is compared like any other; a threshold of 2**16 and more is never reached."""
    params = PARAMS[2]
    row = [P_ONE + 1, 0xffff, P_ONE, 0, 1]
    pairs = [(NEVER, 0x1ffff), (0x10000, 1), (1, 0x10001), (0xffff, 0xffff)]
    received, _ = run_streams(
        MaskGenerator(params),
        {"thresholds": [{"prune": prune, "quant": quant} for prune, quant in pairs],
         "i": [row] * params.vpu_words * len(pairs)},
        {"o": params.vpu_words * len(pairs)})
    want = []
    for prune, quant in pairs:
        hp = sum((value >= prune and value >= quant) << lane for lane, value in enumerate(row))
        lp = sum((value >= prune and value < quant) << lane for lane, value in enumerate(row))
        want += [hp | lp << params.vpu_lanes] * params.vpu_words
    assert received["o"] == want


def test_model_is_fast():
    rng = np.random.default_rng(4)
    p = rng.integers(0, P_ONE + 1, (64, 64)).astype(np.uint16)
    thresholds = rng.integers(1, NEVER + 1, (64, 2))
    best = min(_timed(generate, p, thresholds) for _ in range(20))
    assert best < 1e-3, f"{best * 1e3:.2f} ms for a 64 x 64 tile"


def _timed(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


@pytest.mark.parametrize("p, thresholds, error, message", [
    ([[0.5]], [[1, 1]], TypeError, "P' must have an integer dtype, not float64"),
    ([[1]], [[1.0, 1.0]], TypeError, "Thresholds must have an integer dtype, not float64"),
    ([[32769]], [[1, 1]], ValueError, "P' must be in 0..32768, not 32769"),
    ([[-1]], [[1, 1]], ValueError, "P' must be in 0..32768, not -1"),
    ([[1]], [[0, 1]], ValueError, "Thresholds must be in 1..32769, not 0"),
    ([[1]], [[1, 32770]], ValueError, "Thresholds must be in 1..32769, not 32770"),
    ([[1, 1]], [[1]], ValueError, "Thresholds must have the shape (1, 2), not (1, 1)"),
])
def test_model_refuses(p, thresholds, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        generate(np.array(p), np.array(thresholds))


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 16$"):
        MaskGenerator(16)
