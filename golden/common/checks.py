"""Validation of parameter objects: one wording for every field of every engine."""

__all__ = ["ceil_div", "ceil_log2", "check_choice", "check_int"]


def check_int(params, field, *, low, high, multiple_of=1):
    """Require ``params.<field>`` to be an integer in ``low..high`` and a multiple.

    Raises :class:`TypeError` for the kind and :class:`ValueError` for the range.
    """
    value, name = getattr(params, field), f"{type(params).__name__}.{field}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in {low}..{high}, not {value}")
    if value % multiple_of:
        raise ValueError(f"{name} must be a multiple of {multiple_of}, not {value}")


def check_choice(params, field, choices):
    """Require ``params.<field>`` to be one of ``choices``."""
    value, name = getattr(params, field), f"{type(params).__name__}.{field}"
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(str, choices))}, not {value!r}")


def ceil_log2(value):
    """Bits that tell ``value`` different things apart: 0 for one thing."""
    return (value - 1).bit_length()


def ceil_div(numerator, denominator):
    """Quotient rounded up, for non-negative integers."""
    return -(-numerator // denominator)
