"""Reference for :mod:`rtl.apt.dp_mac`: words, segments and dual-precision dot products.

A word ``w`` in ``-qmax..qmax`` is ``(H << segment_bits) + L`` (numerics 4.7). A high-precision dot
product is exact, ``sum(a*b)``; a low-precision one sees the MSB segments alone,
``sum(aH*bH) << 2*segment_bits``, so both are in the same unit.
"""

import numpy as np

from golden.common.arith import as_int64


__all__ = ["PASSES", "dot", "join", "passes", "split"]

#: Passes of a high-precision dot product in the order of execution: segment of a, segment of b.
#: A low-precision one has the first alone.
PASSES = ("HH", "HL", "LH", "LL")


def _require_range(name, value, low, high):
    value = as_int64(value)
    outside = value[(value < low) | (value > high)]
    if outside.size:
        raise ValueError(f"{name} must be in {low}..{high}, not {int(outside.flat[0])}")
    return value


def split(words, params):
    """MSB and LSB segments of words of any shape.

    ``truncate`` takes the two's complement digits: MSB floor, LSB unsigned. ``balanced`` rounds
    the MSB to nearest, ties up, so that both are signed.

    Raises :class:`ValueError` for a word outside ``-qmax..qmax``, :class:`TypeError` for floats.
    """
    words = _require_range("Words", words, -params.qmax, params.qmax)
    bias = 0 if params.split == "truncate" else 1 << (params.segment_bits - 1)
    msb = (words + bias) >> params.segment_bits
    return msb, words - (msb << params.segment_bits)


def join(msb, lsb, params):
    """Words of their segments; the inverse of :func:`split`.

    Raises :class:`ValueError` for a segment that :func:`split` never makes.
    """
    msb = _require_range("MSB segments", msb, *params.msb_range)
    lsb = _require_range("LSB segments", lsb, *params.lsb_range)
    return _require_range("Words", (msb << params.segment_bits) + lsb, -params.qmax, params.qmax)


def _require_terms(a, b, params):
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-1]:
        raise ValueError(f"Operands must have equally long last axes, not shapes {a.shape} and "
                         f"{b.shape}")
    if not 1 <= a.shape[-1] <= params.max_terms:
        raise ValueError(f"Terms must be in 1..{params.max_terms}, not {a.shape[-1]}")


def dot(a, b, hp, params):
    """Dot products over the last axis, which has at most ``max_terms`` words.

    ``a`` and ``b`` broadcast against each other as in NumPy, ``hp`` (bool) against the result:
    high precision where true. The result is int64 and fits ``signed(params.acc_bits)``.
    """
    a_msb, _ = split(a, params)
    b_msb, _ = split(b, params)
    a, b = as_int64(a), as_int64(b)
    _require_terms(a, b, params)
    hp = np.asarray(hp)
    if hp.dtype != np.bool_:
        raise TypeError(f"Precision must be boolean, not {hp.dtype}")
    low = _sum_of_products(a_msb, b_msb) << params.word_bits
    return np.where(hp, _sum_of_products(a, b), low) if hp.any() else low + 0 * hp


def _sum_of_products(a, b):
    return np.einsum("...i,...i->...", a, b)


def passes(a, b, hp, params):
    """What the DP-MAC is fed with for one dot product, a list with one dict a cycle.

    ``a`` and ``b`` are vectors of words; a short last group is padded with zeros. The keys are
    the fields of the input payload: ``a``, ``b`` (lists of segments), ``pass_`` (a name out of
    :data:`PASSES`), ``first`` and ``last``.
    """
    a, b = as_int64(a), as_int64(b)
    _require_terms(a, b, params)
    pad = -a.size % params.multipliers
    segments = [dict(zip("HL", (np.pad(x, (0, pad)).reshape(-1, params.multipliers).tolist()
                                for x in split(word, params)), strict=True))
                for word in (a, b)]
    cycles = [{"a": row_a, "b": row_b, "pass_": name, "first": 0, "last": 0}
              for name in (PASSES if hp else PASSES[:1])
              for row_a, row_b in zip(segments[0][name[0]], segments[1][name[1]], strict=True)]
    cycles[0]["first"] = cycles[-1]["last"] = 1
    return cycles
