"""Rounding and saturation on integers. The rule is in the name; ``rtl.common.arith`` has twins.

Everything works on NumPy arrays or Python integers, computes in int64 and refuses floats.
"""

import numpy as np


__all__ = ["as_int64", "round_shift_half_even", "round_shift_half_up", "saturate",
           "saturate_symmetric", "saturate_unsigned"]


def as_int64(value):
    """The value as an int64 array; :class:`TypeError` for any other kind than integers."""
    value = np.asarray(value)
    if value.dtype.kind not in "iu":
        raise TypeError(f"Value must have an integer dtype, not {value.dtype}")
    if value.dtype == np.uint64 and value.size and int(value.max()) >> 63:
        raise ValueError(f"Value must be below 2**63, not {int(value.max())}")
    return value.astype(np.int64, copy=False)


def _check_shift(shift):
    if not isinstance(shift, (int, np.integer)) or isinstance(shift, bool) or shift < 0:
        raise TypeError(f"Shift must be a non-negative integer, not {shift!r}")


def round_shift_half_even(value, shift):
    """Divide by ``2**shift``, rounding to nearest, ties to even; exact below ``2**62``."""
    value = as_int64(value)
    _check_shift(shift)
    if shift == 0:
        return value
    quotient, remainder = value >> shift, value & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    up = (remainder > half) | ((remainder == half) & (quotient & 1 == 1))
    return quotient + up


def round_shift_half_up(value, shift):
    """Divide by ``2**shift``, rounding to nearest, ties towards plus infinity."""
    value = as_int64(value)
    _check_shift(shift)
    return value if shift == 0 else (value + (1 << (shift - 1))) >> shift


def saturate(value, width):
    """Clamp to a ``width``-bit two's complement number."""
    return np.clip(as_int64(value), -(1 << (width - 1)), (1 << (width - 1)) - 1)


def saturate_symmetric(value, width):
    """Clamp to ``-(2**(width-1) - 1) .. 2**(width-1) - 1``: the most negative code is unused."""
    return np.clip(as_int64(value), -(1 << (width - 1)) + 1, (1 << (width - 1)) - 1)


def saturate_unsigned(value, width):
    """Clamp to a ``width``-bit unsigned number; negative values become 0."""
    return np.clip(as_int64(value), 0, (1 << width) - 1)
