"""Heads for engine benches: the diffusion transformer's own, and made ones of any size."""

import functools

import numpy as np

from golden.apt.attend import Step, quantize_head
from golden.apt.tafa import threshold_code
from golden.apt.thresholds import BlockThresholds
from golden.dit.fixture import fixed_point
from golden.dit.tiles import load_tiles


__all__ = ["drifting_heads", "hard_steps", "tile_heads"]


def _quantized(q, k, v, params):
    (q, e_q), (k, e_k), (v, _) = map(fixed_point, (q, k, v))
    return quantize_head(q, k, v, e_q, e_k, params)


def drifting_heads(queries, keys, steps, params, rng):
    """One random head at consecutive steps: Q and K drift a little from step to step."""
    q, k, v = (rng.standard_normal((count, params.head_dim)) for count in (queries, keys, keys))
    for _ in range(steps):
        yield _quantized(q, k, v, params)
        q, k = (x + 0.1 * rng.standard_normal(x.shape) for x in (q, k))


def tile_heads(params, count):
    """Heads of one tile out of committed real ones, cropped to the design's size, at two steps."""
    for tile in load_tiles()[:count]:
        tile = tile.crop(params.tile_q, params.tile_k, params.head_dim)
        tensors = [np.ldexp(x.astype(np.float64), -e) for x, e in
                   ((tile.q, tile.e_q), (tile.k, tile.e_k), (tile.v, tile.e_v))]
        yield [_quantized(tensors[0] * gain, *tensors[1:], params) for gain in (1.0, 1.05)]


@functools.cache
def _codes(prune, quant):
    return tuple(threshold_code([min(prune, 1.0), min(quant, 1.0)]).tolist())


def hard_steps(keys):
    """Settings in turn, one a step: dense, masked, refresh, and thresholds at their ends."""
    few = BlockThresholds(k_hp=1, k_v=2)
    return [
        Step(codes=_codes(0.6 / keys, 3 / keys), dense=True, counts=few),
        Step(codes=_codes(0.6 / keys, 3 / keys), counts=few),
        Step(codes=_codes(1 / keys, 2 / keys), refresh=True, counts=BlockThresholds(0, 0)),
        Step(codes=(0, 0), counts=few),             # next to nothing is kept
        Step(codes=_codes(0.5 / keys, 1.0), counts=BlockThresholds(32, 32)),  # no flag at all
        Step(codes=_codes(0.5 / keys, 1 / keys)),   # nothing is computed
        Step(codes=(0xffff, 0xffff), refresh=True), # everything is kept, in high precision
    ]
