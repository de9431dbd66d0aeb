"""Bench of ``dp_mac``: QK and PV of real tiles, worst cases, random words, precisions mixed."""

import cocotb
import numpy as np

from golden.apt.dp_mac import PASSES, dot, passes
from golden.apt.quantizer import quantize
from golden.dit.tiles import load_tiles
from verif.common.bench import FLOWS, Bench


#: Dot products of each kind that are taken of a real tile; of a single tile, QK is taken whole.
QK_PER_TILE, PV_PER_TILE = 16, 3


def real_vectors(params, rng):
    """Elements of QK and rows of PV of the committed tiles, in the precision of their masks.

    Elements that are pruned are left out of QK and are zeros in PV; a row of PV is summed in one
    precision here, and has the words of the other precision's elements too.
    """
    vectors, tiles = [], load_tiles()
    for tile in tiles:
        tile = tile.crop(params.tile_q, params.tile_k, params.head_dim)
        (q, k, v), high, low = ((quantize(x.astype(np.int64), params)[0]
                                 for x in (tile.q, tile.k, tile.v)), *tile.masks)
        kept = np.argwhere(high | low)
        for row, key in rng.permutation(kept)[:QK_PER_TILE if len(tiles) > 1 else None]:
            vectors.append((q[row], k[key], bool(high[row, key])))
        # The tile's largest P' is 1, so its scale is a constant (numerics 4.6).
        p = np.where(high | low, (tile.p.astype(np.int64) * params.qmax + (1 << 14)) >> 15, 0)
        for row, column in zip(rng.integers(0, params.tile_q, PV_PER_TILE),
                               rng.integers(0, params.head_dim, PV_PER_TILE), strict=True):
            vectors.append((p[row], v[:, column], bool(rng.integers(2))))
    return vectors


def worst_vectors(params):
    """All words at an end of their range, and signs that alternate, in both precisions."""
    n = params.max_terms
    low = max(params.msb_range[0] << params.segment_bits, -params.qmax)
    ends = [np.full(n, x) for x in (-params.qmax, params.qmax, low)]
    alternating = np.where(np.arange(n) % 2, params.qmax, -params.qmax)
    lsb = np.full(n, params.lsb_range[0] or params.lsb_range[1])
    pairs = [(a, b) for a in ends for b in ends] + [(alternating, alternating),
                                                    (alternating, -alternating), (lsb, lsb),
                                                    (lsb, ends[0])]
    return [(a, b, hp) for a, b in pairs for hp in (True, False)]


def random_vectors(params, rng, count):
    """Random words, lengths and precisions; the shortest make runs of results without a gap."""
    vectors = []
    for _ in range(count):
        n = int(rng.choice([1, params.multipliers, rng.integers(1, params.max_terms + 1)]))
        n = min(n, params.max_terms)
        a, b = rng.integers(-params.qmax, params.qmax + 1, (2, n))
        vectors.append((a, b, bool(rng.integers(2))))
    return vectors


def send(bench, vectors):
    """Queue dot products; returns how many cycles they are and the results to expect."""
    mask = (1 << bench.params.segment_bits) - 1
    cycles = [{**cycle, "a": [x & mask for x in cycle["a"]], "b": [x & mask for x in cycle["b"]]}
              for a, b, hp in vectors for cycle in passes(a, b, hp, bench.params)]
    assert {cycle["pass_"] for cycle in cycles} == set(PASSES)
    bench.send("i", cycles)
    return len(cycles), [int(dot(a, b, hp, bench.params)) for a, b, hp in vectors]


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    params = bench.params
    vectors = (real_vectors(params, bench.rng) + worst_vectors(params)
               + random_vectors(params, bench.rng, 60))
    order = bench.rng.permutation(len(vectors))
    vectors = [vectors[k] for k in order]
    count, expected = send(bench, vectors)
    await bench.check("o", expected, limit=10 * count, distinct=len(expected) // 4)
    if flow == "full_speed":
        times = bench.agents["i"].times
        assert times[-1] - times[0] == count - 1, "a pass had to wait"
        # The sink sees a result in the cycle of its transfer, like the source: latency apart.
        latency = bench.agents["o"].times[-1] - times[-1]
        assert latency == bench.manifest["latency"], f"latency is {latency}"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    for cycles in (1, 3, 6, 40):
        send(bench, random_vectors(bench.params, bench.rng, 40))
        await bench.cycles(cycles)
        await bench.reset()
    count, expected = send(bench, random_vectors(bench.params, bench.rng, 40))
    await bench.check("o", expected, limit=10 * count, distinct=10)
