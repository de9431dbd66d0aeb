"""The algorithm of :mod:`golden.apt.attend` in float64: one attention head at one denoising step.

APDT, TAFA and FlashAttention tile by tile (APT 2.3, 3.1, 3.2), with real numbers for the integers
and ``exp`` for the powers of two. Of the integer model it shares the mask codec alone, so it tells
the error of the arithmetic from that of the algorithm. Operands are exact, or words of 12 and of
6 bits made here.
"""

from typing import NamedTuple

import numpy as np

from golden.common.checks import ceil_div

from . import mask_decoder, mask_encoder
from .thresholds import BlockThresholds


__all__ = ["FloatAttention", "FloatState", "FloatStep", "Masks", "attend_float"]


class FloatStep(NamedTuple):
    """Settings of a head at a step."""

    thetas: tuple = (0.0, 0.0)  #: prune and quant threshold, of probabilities
    dense: bool = False         #: everything in high precision, whatever the masks say
    refresh: bool = False       #: what is not in high precision is in low precision
    counts: tuple = BlockThresholds()  #: count thresholds of the mask encoder


class FloatState(NamedTuple):
    """What a step leaves to the next."""

    code: np.ndarray  #: flag pairs ``[query tiles, key tiles, flags]``
    rho: np.ndarray   #: mass of a row in a key tile, ``[queries, key tiles]``; 0: no element


class Masks(NamedTuple):
    """Element masks of a whole head, bool ``[queries, keys]``."""

    qk_hp: np.ndarray  #: dot products of Q and K in high precision
    qk_lp: np.ndarray  #: and in low precision
    pv_hp: np.ndarray  #: probabilities that are multiplied with V in high precision
    pv_lp: np.ndarray  #: and in low precision

    @classmethod
    def empty(cls, queries, keys):
        """Masks without an element, to be filled."""
        return cls(*(np.zeros((queries, keys), bool) for _ in cls._fields))


class FloatAttention(NamedTuple):
    """What a head's step gives; masks are those of the step, new ones before they are encoded."""

    o: np.ndarray      #: output ``[queries, head_dim]``
    state: FloatState
    masks: Masks       #: what was computed: with ``dense``, PV's are all in high precision
    new_hp: np.ndarray  #: masks for the next step
    new_lp: np.ndarray


def _digits(words, params):
    """The high segments of words, as numbers in the words' unit."""
    radix = 1 << params.segment_bits
    bias = 0 if params.split == "truncate" else 0.5
    return np.floor(words / radix + bias) * radix


def _operands(x, rows, params):
    """High- and low-precision values of an operand whose tiles have so many rows."""
    if params is None:
        return x, x
    high, low = np.zeros_like(x), np.zeros_like(x)
    for first in range(0, len(x), rows):
        tile = x[first:first + rows]
        unit = np.abs(tile).max() / params.qmax
        if unit > 0:
            words = np.rint(tile / unit)
            high[first:first + rows] = words * unit
            low[first:first + rows] = _digits(words, params) * unit
    return high, low


def _probabilities(p, params):
    if params is None:
        return p, p
    words = np.floor(p * params.qmax + 0.5)
    return words / params.qmax, _digits(words, params) / params.qmax


def _tile_softmax(s, computed):
    """``m~, P', l~``; minus infinity, zeros and 0 for a row without elements."""
    s = np.where(computed, s, -np.inf)
    maximum = s.max(axis=1)
    p = np.exp(s - np.where(np.isfinite(maximum), maximum, 0)[:, None])
    return maximum, p, p.sum(axis=1)


def _weight(maximum, reference):
    """``exp(maximum - reference)``, 0 where there is no maximum."""
    there = np.isfinite(maximum)
    return np.where(there, np.exp(np.where(there, maximum, 0) - np.where(there, reference, 0)), 0)


def _ratio(numerator, denominator):
    """The quotient; 0 where the denominator is."""
    return np.divide(numerator, denominator, where=denominator > 0,
                     out=np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape)))


def attend_float(q, k, v, step, state, params, *, masks=None, words=False):
    """Attention of a head at one denoising step: a :class:`FloatAttention`.

    Parameters
    ----------
    q, k, v : arrays ``[queries, head_dim]``, and twice ``[keys, head_dim]``
        Real operands.
    step : :class:`FloatStep`
        Settings of the head at this step.
    state : :class:`FloatState` or ``None``
        What the step before left; without it nothing that was computed is pruned.
    masks : :class:`Masks` or ``None``
        Masks to use in place of those that the codec and the thresholds give.
    words : :class:`bool`
        Whether operands are rounded to words of 12 bits, and to 6 bits in low precision.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    (queries, dim), tokens = q.shape, len(k)
    query_tiles, key_tiles = ceil_div(queries, params.tile_q), ceil_div(tokens, params.tile_k)
    precision = params if words else None
    q, q_low = _operands(q, params.tile_q, precision)
    k, k_low = _operands(k, params.tile_k, precision)
    v, v_low = _operands(v, params.tile_k, precision)

    o = np.zeros((queries, dim))
    used, new = Masks.empty(queries, tokens), np.zeros((2, queries, tokens), bool)
    code = np.zeros((query_tiles, key_tiles, params.flags), np.uint8)
    rho = np.zeros((queries, key_tiles))
    for i in range(query_tiles):
        rows = slice(i * params.tile_q, min((i + 1) * params.tile_q, queries))
        count = rows.stop - rows.start
        maximum, total = np.full(count, -np.inf), np.zeros(count)
        tile_maxima, tile_totals = np.full((2, count, key_tiles), -np.inf)
        for j in range(key_tiles):
            keys = slice(j * params.tile_k, min((j + 1) * params.tile_k, tokens))
            here = rows, keys
            shape = count, keys.stop - keys.start
            if masks is not None:
                hp, lp = masks.qk_hp[here], masks.qk_lp[here]
            elif step.dense:
                hp, lp = np.ones(shape, bool), np.zeros(shape, bool)
            else:
                hp, lp = (mask[:count, :shape[1]] for mask in mask_decoder.decode(
                    state.code[i, j], step.refresh, *shape, params))
            s = np.where(hp, q[rows] @ k[keys].T, q_low[rows] @ k_low[keys].T) / np.sqrt(dim)
            m, p, l = _tile_softmax(s, hp | lp)  # noqa: E741 (the paper's letter)

            kept, high = hp | lp, hp | lp
            if state is not None:
                # P > theta where P' > theta * l / rho; rho = 0 lets nothing through.
                factor = np.where(state.rho[rows, j] > 0, _ratio(l, state.rho[rows, j]), np.inf)
                kept, high = ((hp | lp) & (p >= (max(theta, 1e-300) * factor)[:, None])
                              for theta in step.thetas)
            new[0][here], new[1][here] = kept & high, kept & ~high
            if masks is not None:
                pv_hp, pv_lp = masks.pv_hp[here], masks.pv_lp[here]
            else:
                pv_hp, pv_lp = (hp, lp) if step.dense else (kept & high, kept & ~high)
            whole = np.zeros((2, params.tile_q, params.tile_k), bool)
            whole[:, :count, :shape[1]] = new[0][here], new[1][here]
            code[i, j] = mask_encoder.encode(*whole, step.counts, params)

            p_high, p_low = _probabilities(p, precision)
            sums = np.where(pv_hp, p_high, 0) @ v[keys] + np.where(pv_lp, p_low, 0) @ v_low[keys]
            merged = np.maximum(maximum, m)
            old, fresh = _weight(maximum, merged), _weight(m, merged)
            o[rows] = o[rows] * old[:, None] + sums * fresh[:, None]
            total, maximum = total * old + l * fresh, merged
            tile_maxima[:, j], tile_totals[:, j] = m, l
            for mask, part in zip(used, (hp, lp, pv_hp, pv_lp), strict=True):
                mask[here] = part
        o[rows] = _ratio(o[rows], total[:, None])
        rho[rows] = _ratio(tile_totals * _weight(tile_maxima, maximum[:, None]), total[:, None])
    return FloatAttention(o, FloatState(code, rho), used, *new)
