"""Reference of :mod:`rtl.apt.exp2`: powers of two below one (numerics 4.8).

``pwl16`` is 16 chords of ``2**-x``, each lowered by half its largest error; ``table`` holds all
256 values of the eight fraction bits.
"""

import functools

import numpy as np

from golden.common.arith import as_int64, round_shift_half_up


__all__ = ["FINE_BITS", "FRACTION_BITS", "ONE", "chords", "exp2", "exp2_factor",
           "exp2_fine", "table"]

#: 1.0 in U1.15.
ONE = 1 << 15
#: Fraction bits of logits and of what depends on them, and those of the units of rows of O.
FRACTION_BITS, FINE_BITS = 8, 12

_SEGMENTS = 16


@functools.cache
def chords():
    """``base, slope`` of the 16 chords: in segment ``k`` at ``t / 16`` of it, ``2**-x`` is about
    ``(base[k] - slope[k] * t / 256) / 2**15``."""
    starts = 2.0 ** (-np.arange(_SEGMENTS + 1) / _SEGMENTS)
    drop = starts[:-1] - starts[1:]
    # The chord is furthest above the curve where the curve has its slope, -drop * 16.
    slope = drop * _SEGMENTS / np.log(2)
    x = -np.log2(slope)
    error = starts[:-1] - drop * (x * _SEGMENTS - np.arange(_SEGMENTS)) - slope
    base = np.rint(ONE * (starts[:-1] - error / 2))
    return tuple(base.astype(int).tolist()), tuple(np.rint(ONE * 16 * drop).astype(int).tolist())


@functools.cache
def table():
    """``2**(-f / 256)`` in U1.15 for ``f`` in 0..255."""
    values = np.rint(ONE * 2.0 ** (-np.arange(1 << FRACTION_BITS) / (1 << FRACTION_BITS)))
    return tuple(values.astype(int).tolist())


def _by_chords(fraction, bits):
    base, slope = (np.array(values) for values in chords())
    rest = bits - 4
    segment = fraction >> rest
    return base[segment] - round_shift_half_up(
        slope[segment] * (fraction & ((1 << rest) - 1)), rest + 4)


def _shifted(value, places):
    half = np.where(places == 0, 0, 1 << np.maximum(np.minimum(places, 16) - 1, 0))
    return np.where(places >= 16, 0, (value + half) >> np.minimum(places, 16))


def exp2(u, params):
    """``2**(-u / 256)`` in U1.15, int64 in ``0..ONE``, of ``u >= 0`` of any shape.

    The fraction's value is shifted by the integer part, rounding half up; from 16 on it is 0.
    """
    u = as_int64(u)
    if u.size and u.min() < 0:
        raise ValueError(f"Exponents must not be negative, not {int(u.min())}")
    fraction = u & ((1 << FRACTION_BITS) - 1)
    value = (np.array(table())[fraction] if params.exp2 == "table"
             else _by_chords(fraction, FRACTION_BITS))
    return _shifted(value, u >> FRACTION_BITS)


def exp2_fine(u):
    """``mantissa, places``: ``2**(-u / 4096)`` is about ``mantissa * 2**(-15 - places)``.

    By chords, with 12 fraction bits. ``u`` is any integer, ``places`` its integer part and the
    mantissa in ``2**14..2**15``.
    """
    u = as_int64(u)
    return _by_chords(u & ((1 << FINE_BITS) - 1), FINE_BITS), u >> FINE_BITS


def exp2_factor(u):
    """``2**(-u / 4096)`` in U1.15 by :func:`exp2_fine`, of ``u >= 0``; rounded half up."""
    mantissa, places = exp2_fine(u)
    return _shifted(mantissa, places)
