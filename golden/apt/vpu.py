"""Reference of :mod:`rtl.apt.vpu`: logits and softmax of attention tiles (numerics 4.6, 4.8)."""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64, round_shift_half_up, saturate

from .exp2 import ONE, exp2


__all__ = ["LOGIT_BITS", "LogitScale", "NO_LOGIT", "Softmax", "dequantize", "logit_scale",
           "probability_words", "softmax", "tile_scale"]

#: Bits of a logit, Q7.8.
LOGIT_BITS = 16
#: What the maximum of a row without a computed element reads as: the smallest logit.
NO_LOGIT = -(1 << (LOGIT_BITS - 1))
#: Bits of a mantissa.
_MANTISSA_BITS = 16
#: Shifts at and beyond this make every logit 0.
_LARGEST_SHIFT = 63
#: Smallest shift of a head's constant; with it a tile's shift is at least 1.
_SMALLEST_SHIFT = 31


class LogitScale(NamedTuple):
    """A factor ``mantissa * 2**-shift``; the mantissa is in ``2**15..2**16 - 1``, or 0."""

    mantissa: int
    shift: int


def logit_scale(head_dim, e_q, e_k, params):
    """The constant of a head, ``256 * log2(e) / (sqrt(head_dim) * qmax**2 * 2**(e_q + e_k))``.

    ``e_q`` and ``e_k`` are the exponents of the 16-bit codes of Q and K. The host computes it,
    once a head; the mantissa is rounded to nearest.

    Raises :class:`ValueError` where logits would be too large for it.
    """
    value = 256 * np.log2(np.e) / (np.sqrt(head_dim) * params.qmax ** 2)
    fraction, exponent = np.frexp(value)
    mantissa = int(np.rint(np.ldexp(fraction, _MANTISSA_BITS)))
    if mantissa == 1 << _MANTISSA_BITS:
        mantissa, exponent = mantissa >> 1, exponent + 1
    shift = _MANTISSA_BITS - int(exponent) + e_q + e_k
    if shift < _SMALLEST_SHIFT:
        raise ValueError(f"Exponents of Q and K must be at least "
                         f"{_SMALLEST_SHIFT - shift + e_q + e_k} together, not {e_q + e_k}")
    return LogitScale(mantissa, min(shift, 127))


def tile_scale(scale, a_q, a_k):
    """Scale of the logits of a tile from the head's and the scale words of Q and K.

    The product of the three is cut off to its 16 leading bits. Arrays of ``a_q`` and ``a_k``
    broadcast; returns arrays ``mantissa, shift``. The mantissa is 0 where a scale word is, and
    shifts end at 63.
    """
    product = as_int64(a_q) * as_int64(a_k) * scale.mantissa
    places = np.maximum(_bit_length(product) - _MANTISSA_BITS, 0)
    shift = np.minimum(scale.shift - places, _LARGEST_SHIFT)
    return product >> places, np.where(product == 0, _LARGEST_SHIFT, shift)


def _bit_length(value):
    return np.frexp(value.astype(np.float64))[1].astype(np.int64)


def dequantize(acc, mantissa, shift):
    """Logits Q7.8 of accumulators: ``sat16((acc * mantissa + half) >> shift)``."""
    acc, mantissa, shift = as_int64(acc), as_int64(mantissa), as_int64(shift)
    half = np.int64(1) << (shift - 1)
    return saturate((acc * mantissa + half) >> shift, LOGIT_BITS)


class Softmax(NamedTuple):
    """What softmax makes of a tile; arrays of int64."""

    maximum: np.ndarray  #: m~ of each row, Q7.8; ``NO_LOGIT`` for a row without elements
    p: np.ndarray        #: P' in U1.15; 0 for what was not computed
    total: np.ndarray    #: l~, the sum of the row's P'; 0 for a row without elements


def softmax(z, computed, params):
    """Row maximum, ``P' = 2**(z - m~)`` and row sum of logits ``[..., rows, keys]``.

    ``computed`` (bool) says which elements there are; the others count nowhere.
    """
    z = np.where(computed, as_int64(z), NO_LOGIT)
    maximum = z.max(axis=-1)
    p = np.where(computed, exp2(maximum[..., None] - z, params), 0)
    return Softmax(maximum, p, p.sum(axis=-1))


def probability_words(p, params):
    """P' as words: ``(P' * qmax + 2**14) >> 15``; the largest P' makes the scale a constant."""
    return round_shift_half_up(as_int64(p) * params.qmax, ONE.bit_length() - 1)
