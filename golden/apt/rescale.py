"""Reference of :mod:`rtl.apt.rescale`: running maximum, sum and output of rows (APT 2.3).

M and L of a row are the maximum and the sum over the key tiles so far. O is kept in a unit of its
own, ``2**unit`` with twelve fraction bits: a tile's sums of ``P * V`` have the unit
``m~ + log2 A_v``, the larger of the two units becomes the row's, and only the other side is
multiplied, by ``2**-difference`` in U1.15. So one multiplier a value is enough, and a tile that
prunes a whole row changes neither O nor its unit.
"""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64, round_shift_half_up, saturate_symmetric

from .exp2 import FINE_BITS, FRACTION_BITS, exp2_factor, exp2_fine
from .log2 import log2_fine
from .vpu import NO_LOGIT


__all__ = ["Rows", "add_output", "merge", "normalize", "tile_unit"]

_ONE_BITS = 15
_TO_FINE = FINE_BITS - FRACTION_BITS


class Rows(NamedTuple):
    """State of rows between key tiles; arrays of int64."""

    maximum: np.ndarray  #: M, Q7.8; ``NO_LOGIT`` before the first element
    total: np.ndarray    #: L, U17.15; 0 before the first element
    unit: np.ndarray     #: unit of O, log2 with twelve fraction bits
    begun: np.ndarray    #: bool: O has something
    o: np.ndarray        #: O ``[..., head_dim]``, 32 bits signed

    @classmethod
    def fresh(cls, rows, head_dim):
        return cls(np.full(rows, NO_LOGIT), np.zeros(rows, np.int64), np.zeros(rows, np.int64),
                   np.zeros(rows, bool), np.zeros((rows, head_dim), np.int64))


def merge(maximum, total, tile_maximum, tile_total):
    """M and L of rows with one more tile.

    The sum with the smaller maximum is scaled by ``2**-difference`` in U1.15, rounding half up.
    """
    maximum, total = as_int64(maximum), as_int64(total)
    tile_maximum, tile_total = as_int64(tile_maximum), as_int64(tile_total)
    difference = tile_maximum - maximum
    factor = exp2_factor(np.abs(difference) << _TO_FINE)
    scaled = round_shift_half_up(np.where(difference > 0, total, tile_total) * factor, _ONE_BITS)
    merged = np.where(difference > 0, tile_total, total) + scaled
    empty, first = tile_total == 0, total == 0
    return (np.where(empty, maximum, np.where(first, tile_maximum,
                                              np.maximum(maximum, tile_maximum))),
            np.where(empty, total, np.where(first, tile_total, merged)))


def tile_unit(tile_maximum, a_v):
    """Unit of a tile's sums in rows: ``m~ + log2 A_v``, twelve fraction bits."""
    return (as_int64(tile_maximum) << _TO_FINE) + log2_fine(np.maximum(as_int64(a_v), 1))


def add_output(rows, sums, tile_maximum, contributes, a_v, shift):
    """O and units of rows with one more tile's sums of ``P * V`` ``[..., head_dim]``.

    ``contributes`` (bool) says which rows have an element in the tile's PV; the others stay as
    they are. ``shift`` is :meth:`~golden.apt.quad_shape.QuadShape.o_shift` of the head.
    Returns ``unit, begun, o``.
    """
    sums = round_shift_half_up(sums, shift)
    unit = tile_unit(tile_maximum, a_v)
    difference = unit - rows.unit
    factor = exp2_factor(np.abs(difference))[..., None]
    larger = (difference > 0)[..., None]
    scaled = round_shift_half_up(np.where(larger, rows.o, sums) * factor, _ONE_BITS)
    added = np.where(rows.begun[..., None], np.where(larger, sums, rows.o) + scaled, sums)
    contributes = np.asarray(contributes)
    return (np.where(contributes & (~rows.begun | (difference > 0)), unit, rows.unit),
            rows.begun | contributes, np.where(contributes[..., None], added, rows.o))


def normalize(rows, shift, params):
    """Output of rows whose last key tile is in: 16-bit codes in the exponent of V.

    ``O * 2**(unit - M) * 2**shift / (L * qmax**2)``, by one factor of 16 bits a row, rounding half
    up and saturating. Rows without an element give 0. The factor comes from logarithms with twelve
    fraction bits: that is the row's one reciprocal.
    """
    log2_total = log2_fine(np.maximum(rows.total, 1)) - (_ONE_BITS << FINE_BITS)
    u = (rows.maximum << _TO_FINE) + log2_total - rows.unit
    u += params.log2_qmax_squared - (shift << FINE_BITS)
    mantissa, places = exp2_fine(u)
    places = np.clip(places + _ONE_BITS, 1, 62)
    half = (np.int64(1) << (places - 1))[..., None]
    scaled = (rows.o * mantissa[..., None] + half) >> places[..., None]
    return np.where((rows.begun & (rows.total > 0))[..., None], saturate_symmetric(scaled, 16), 0)
