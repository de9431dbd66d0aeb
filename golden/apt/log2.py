"""Reference of :mod:`rtl.apt.log2`: binary logarithms of positive integers (numerics 4.8)."""

import functools

import numpy as np

from golden.common.arith import as_int64

from .exp2 import FINE_BITS, FRACTION_BITS


__all__ = ["log2", "log2_fine", "table"]

_MANTISSA_BITS = 16


@functools.cache
def table():
    """``log2(1 + j / 256)`` with eight fraction bits for ``j`` in 0..255; all are below 1.0."""
    values = np.rint((1 << FRACTION_BITS) * np.log2(1 + np.arange(1 << FRACTION_BITS) / 256))
    return tuple(values.astype(int).tolist())


def _normalized(value, bits):
    """Exponent, and the ``bits`` bits from the leading one on; lower bits are cut off."""
    value = as_int64(value)
    if value.size and value.min() < 1:
        raise ValueError(f"Logarithms are of positive numbers, not {int(value.min())}")
    exponent = np.frexp(value.astype(np.float64))[1].astype(np.int64) - 1
    exponent -= value < (1 << exponent)  # float64 rounds numbers of more than 53 bits
    places = exponent - (bits - 1)
    return exponent, np.where(places >= 0, value >> np.maximum(places, 0),
                              value << np.maximum(-places, 0))


def log2(value):
    """``log2(value)`` with eight fraction bits, of positive integers below 2**62.

    The eight bits below the leading one look up the fraction; what is below them is cut off.
    """
    exponent, mantissa = _normalized(value, FRACTION_BITS + 1)
    return (exponent << FRACTION_BITS) + np.array(table())[mantissa & ((1 << FRACTION_BITS) - 1)]


def log2_fine(value):
    """``log2(value)`` with twelve fraction bits, of positive integers below 2**62.

    Of the sixteen bits from the leading one on, the square is taken twelve times; each time it
    says one more bit of the fraction. Squares are cut off to sixteen bits, so the result is
    the logarithm rounded down, or one less.
    """
    exponent, x = _normalized(value, _MANTISSA_BITS)
    result = exponent
    for _ in range(FINE_BITS):
        square = x * x
        bit = square >> (2 * _MANTISSA_BITS - 1)
        x = square >> (_MANTISSA_BITS - 1 + bit)
        result = (result << 1) + bit
    return result
