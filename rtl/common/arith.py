"""Rounding and saturation with exact widths. The rule is in the name.

Each helper has a NumPy twin of the same name in :mod:`golden.common.arith`; the two are compared
over every input of small widths in ``tests/test_common_arith.py``. An operand that a helper reads
more than once should be a signal: an expression is built anew at each use.
"""

from amaranth import *


__all__ = ["round_shift_half_even", "round_shift_half_up", "saturate", "saturate_symmetric",
           "saturate_unsigned", "tree_sum"]


def _signed_operand(value):
    value = Value.cast(value)
    if not value.shape().signed:
        raise TypeError(f"Value must be signed, not {value.shape()!r}")
    return value


def _check_shift(shift):
    if not isinstance(shift, int) or isinstance(shift, bool) or shift < 0:
        raise TypeError(f"Shift must be a non-negative integer, not {shift!r}")


def _check_width(width, low):
    if not isinstance(width, int) or isinstance(width, bool) or width < low:
        raise TypeError(f"Width must be an integer of at least {low}, not {width!r}")


def round_shift_half_even(value, shift):
    """Divide a signed value by ``2**shift``, rounding to nearest, ties to even.

    One bit wider than ``value >> shift``: rounding the most positive input up needs it.
    """
    value = _signed_operand(value)
    _check_shift(shift)
    if shift == 0:
        return value
    floor = value >> shift
    half = value[shift - 1] if shift <= len(value) else value[-1]
    sticky = value[:shift - 1].any() if shift > 1 else Const(0)
    return floor + (half & (sticky | floor[0]))


def round_shift_half_up(value, shift):
    """Divide a signed value by ``2**shift``, rounding to nearest, ties towards plus infinity.

    One bit wider than ``value >> shift``. The bit below the cut is the rounding carry, so there
    is one incrementer and no adder.
    """
    value = _signed_operand(value)
    _check_shift(shift)
    if shift == 0:
        return value
    return (value >> shift) + (value[shift - 1] if shift <= len(value) else value[-1])


def saturate(value, width):
    """Clamp a signed value to ``signed(width)``."""
    value = _signed_operand(value)
    _check_width(width, 1)
    if len(value) <= width:
        return value
    sign = value[-1]
    # In range exactly when every dropped bit equals the sign bit of what is kept.
    dropped = value[width - 1:]
    overflow = ~(dropped.all() | ~dropped.any())
    limit = Cat((~sign).replicate(width - 1), sign)
    return Mux(overflow, limit, value[:width]).as_signed()


def saturate_symmetric(value, width):
    """Clamp a signed value to ``-(2**(width-1) - 1) .. 2**(width-1) - 1``."""
    value = _signed_operand(value)
    _check_width(width, 2)
    if len(value) < width:
        return value
    clamped = saturate(value, width)
    # Only the most negative code is left to move: its bits are 100...0, so set bit 0.
    lowest = clamped[-1] & ~clamped[:-1].any()
    return Cat(clamped[0] | lowest, clamped[1:]).as_signed()


def saturate_unsigned(value, width):
    """Clamp a signed value to ``unsigned(width)``; negative values become 0."""
    value = _signed_operand(value)
    _check_width(width, 1)
    sign, magnitude = value[-1], value[:-1]
    if len(magnitude) <= width:
        return Mux(sign, 0, magnitude)
    overflow = magnitude[width:].any()
    return Mux(sign, 0, magnitude[:width] | overflow.replicate(width))


def tree_sum(values):
    """Sum as a balanced tree: depth ``ceil(log2(n))``, one bit of growth a level."""
    values = list(values)
    if not values:
        raise ValueError("Values must not be empty")
    while len(values) > 1:
        pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(values) - len(values) % 2:]
    return values[0]
