"""Reference of :mod:`rtl.apt.tafa`: state of a denoising step and rescaled thresholds (APT 3.2).

For each row and key tile a step stores ``s = m~ + log2 l~``, and for each row
``c = M + log2 L``, both signed with eight fraction bits. At the next step ``c - s`` is
``-log2 rho`` of the tile, and the row's thresholds in the tile are ``theta * l~ / rho``
(numerics 4.2).
"""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64, round_shift_half_up

from .exp2 import FRACTION_BITS, exp2
from .log2 import log2
from .mask_generator import NEVER


__all__ = ["NONE", "NONE_8", "RowWord", "mass", "recall", "store", "threshold_code", "thresholds"]

#: State word of a row without a computed element: minus infinity.
NONE = -(1 << 15)
#: The same in 8-bit state.
NONE_8 = -(1 << 7)

_LARGEST = (1 << 15) - 1
_LARGEST_8 = (1 << 7) - 1
#: Fraction bits that 8-bit state has less.
_COARSE = 5
#: Fraction bits of a threshold's code.
_THETA_BITS = 11


def threshold_code(theta):
    """``-log2 theta`` as Q5.11, 16 bits unsigned, to nearest; thresholds are in ``2**-32..1``."""
    theta = np.asarray(theta, np.float64)
    if theta.size and not (theta.min() > 0 and theta.max() <= 1):
        raise ValueError("Thresholds must be above 0 and at most 1")
    code = np.rint(-np.log2(theta) * (1 << _THETA_BITS))
    return np.minimum(code, (1 << 16) - 1).astype(np.int64)


def _log2_sum(total):
    """``log2`` of a row sum in U.15, eight fraction bits; any value where the sum is 0."""
    return log2(np.maximum(as_int64(total), 1)) - (15 << FRACTION_BITS)


def mass(maximum, total):
    """``m + log2 l`` with eight fraction bits, saturating at 16 bits; ``NONE`` where l is 0.

    Serves a row in a tile (``s``) and a whole row (``c``).
    """
    word = np.clip(as_int64(maximum) + _log2_sum(total), NONE + 1, _LARGEST)
    return np.where(as_int64(total) == 0, NONE, word)


class RowWord(NamedTuple):
    """What is stored once a row."""

    c: np.ndarray          #: ``M + log2 L``, or ``NONE``
    reference: np.ndarray  #: ``s`` of the first tile that has one, or ``NONE``; for 8-bit state


def store(s, params):
    """State of rows ``[..., rows, tiles]`` as it is kept: the words, and the rows' reference.

    With ``state_bits = 8`` a word is ``s - reference`` with three fraction bits, rounded half up
    and saturating; the reference is the row's first ``s`` that is not ``NONE``.
    """
    s = as_int64(s)
    first = np.argmax(s != NONE, axis=-1)[..., None]
    reference = np.take_along_axis(s, first, -1)
    if params.state_bits == 8:
        words = np.clip(round_shift_half_up(s - reference, _COARSE), NONE_8 + 1, _LARGEST_8)
        words = np.where(s == NONE, NONE_8, words)
    else:
        words = s
    return words, reference[..., 0]


def recall(words, reference, params):
    """``s`` of stored words, with ``reference`` broadcast against them."""
    words = as_int64(words)
    if params.state_bits == 16:
        return words
    s = np.clip((words << _COARSE) + as_int64(reference), NONE + 1, _LARGEST)
    return np.where(words == NONE_8, NONE, s)


def thresholds(codes, total, c, s, params):
    """theta' in U1.15, ``1..NEVER``, of rows of a tile: ``2**-(codes - log2 l~ - (c - s))``.

    Parameters
    ----------
    codes : integers ``[2]``
        ``-log2`` of the prune and of the quant threshold, Q5.11.
    total : integers ``[...]``
        l~ of this step, U.15.
    c, s : integers ``[...]``
        Row and tile word of the step before.

    Returns int64 ``[..., 2]``. A code is rounded half up to eight fraction bits. Where l~ is 0
    or a state word is ``NONE`` no P' reaches the threshold, nor where it would be above 1.0.
    """
    codes = round_shift_half_up(as_int64(codes), _THETA_BITS - FRACTION_BITS)
    total, c, s = as_int64(total), as_int64(c), as_int64(s)
    u = codes - (_log2_sum(total) + c - s)[..., None]
    never = (u < 0) | ((total == 0) | (c == NONE) | (s == NONE))[..., None]
    return np.where(never, NEVER, np.maximum(exp2(np.maximum(u, 0), params), 1))
