"""Attention tiles cut out of a capture: fixed-point codes, P' and rescaled thresholds."""

import numpy as np

from .capture import capture
from .heads import CATEGORY, SEED, STYLE, calibrate, probabilities
from .tiles import KEYS, QUERIES, THRESHOLD_NEVER, Tile


__all__ = ["PICKS", "fixed_point", "fixture_tiles", "layers_needed", "steps_needed", "tile_of",
           "tile_probabilities"]

#: The committed tiles: step, layer, head, first query, first key. Three steps, three layers, all
#: heads; dense and sparse ones, one with empty and with full rows.
PICKS = (
    (4, 0, 0, 448, 256),
    (4, 4, 1, 448, 384),
    (14, 9, 2, 704, 896),
    (14, 0, 1, 704, 640),
    (24, 4, 2, 192, 640),
    (24, 9, 0, 704, 256),
)

_ONE = 1 << 15  # 1.0 in U1.15
_LARGEST = (1 << 15) - 1  # -32768 is not a code (numerics 4.6)


def fixed_point(x):
    """``codes, e``: int16 codes of a whole tensor with the largest ``e`` that fits them.

    ``x`` is about ``codes * 2**-e``, rounded to nearest even, and |code| <= 32767.
    """
    peak = np.float64(np.abs(x).max())
    exponent = 0 if peak == 0 else 15 - int(np.frexp(peak)[1])
    if np.rint(np.ldexp(peak, exponent)) > _LARGEST:
        exponent -= 1
    return np.rint(np.ldexp(np.float64(x), exponent)).astype(np.int16), exponent


def tile_probabilities(q, k, e_q, e_k):
    """P' [queries, keys] of a tile in float64, from the codes: exp(S - max of S in the row)."""
    scores = np.ldexp(np.float64(q.astype(np.int64) @ k.astype(np.int64).T), -(e_q + e_k))
    scores /= np.sqrt(q.shape[1])
    return np.exp(scores - scores.max(axis=1, keepdims=True))


def tile_of(taken, step, layer, head, query0, key0):
    """Cut one :class:`~golden.dit.tiles.Tile` out of a capture that also holds the step before.

    Thresholds are the head's calibrated ones times ``l~(t) / rho``, rho being the mass of the row
    in this tile at the previous step (APT 4.2), to nearest and clamped to 1..2**15 + 1.
    """
    (q, k, v), (old_q, old_k, _) = (taken.at(when, layer, head) for when in (step, step - 1))
    theta = calibrate(probabilities(q, k))
    rows, keys = slice(query0, query0 + QUERIES), slice(key0, key0 + KEYS)
    rho = probabilities(old_q[rows], old_k)[:, keys].sum(axis=1, dtype=np.float64)

    (q, e_q), (k, e_k), (v, e_v) = fixed_point(q), fixed_point(k), fixed_point(v)
    q, k, v = q[rows], k[keys], v[keys]
    p = tile_probabilities(q, k, e_q, e_k)
    thresholds = np.rint(_ONE * np.outer(p.sum(axis=1) / rho, theta))
    return Tile(step=step, layer=layer, head=head, query0=query0, key0=key0,
                q=q, k=k, v=v, e_q=e_q, e_k=e_k, e_v=e_v,
                p=np.rint(_ONE * p).astype(np.uint16),
                thresholds=thresholds.clip(1, THRESHOLD_NEVER).astype(np.int32))


def steps_needed(picks=PICKS):
    """Steps that a capture must hold for these tiles: each tile's own and the one before."""
    return sorted({step - before for step, *_ in picks for before in (0, 1)})


def layers_needed(picks=PICKS):
    """Layers that a capture must hold for these tiles."""
    return sorted({layer for _, layer, *_ in picks})


def fixture_tiles(picks=PICKS, *, category=CATEGORY, style=STYLE, seed=SEED, on_step=None):
    """Sample, and cut the tiles out; the default is the committed file."""
    taken = capture(category=category, style=style, seed=seed, steps=steps_needed(picks),
                    layers=layers_needed(picks), on_step=on_step)
    return [tile_of(taken, *pick) for pick in picks]
