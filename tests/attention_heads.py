"""Heads for the tests of attention: small ones, and real ones out of the transformer."""

import functools

import numpy as np

from golden.apt.attend import Step, quantize_head
from golden.apt.params import AptParams
from golden.dit.capture import capture
from golden.dit.fixture import fixed_point
from golden.studies.attention import Energy


__all__ = ["DENSE", "SMALL", "codes_of", "head_of", "operands", "qsnr", "real_heads"]

DENSE = Step(dense=True)
SMALL = AptParams(lanes=4, multipliers=4, head_dim=20, tile_q=12, tile_k=16, window_qk=1,
                  window_pv=1)


def qsnr(value, reference):
    return Energy.of(value, reference).qsnr


def codes_of(real):
    """16-bit codes and exponents of Q, K and V."""
    return zip(*map(fixed_point, real), strict=True)


def operands(tokens, dim, seed=0):
    """Q, K and V whose size changes from row to row, so that every tile has another scale."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, tokens, dim))
    size = 1 + np.sin(np.arange(tokens) / 7 + np.arange(3)[:, None]) * 0.8
    return q * size[0][:, None], 2 * k * size[1][:, None], v * size[2][:, None] + 0.3


def head_of(real, params):
    codes, exponents = codes_of(real)
    return quantize_head(*codes, *exponents[:2], params), 2.0 ** -exponents[2]


@functools.cache
def real_heads():
    """Q, K and V of the transformer's second layer, 1024 tokens, at its first step."""
    taken = capture(category=2, style=2, seed=3, steps=(0,), layers=(1,))
    return [tuple(x.astype(np.float64) for x in taken.at(0, 1, head)) for head in range(3)]
