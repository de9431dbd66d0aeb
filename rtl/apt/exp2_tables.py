"""Constants of powers of two between a half and one, as they are built into logic."""

import functools
import itertools
import math


__all__ = ["GUARD_BITS", "chords", "halves", "table"]

_ONE = 1 << 15
_CHORDS = 16
#: Fraction bits of the entries of :func:`halves`.
GUARD_BITS = 2


@functools.cache
def chords():
    """``base, slope`` of the 16 chords: in chord ``k`` at ``t / 16`` of it, ``2**-x`` is about
    ``(base[k] - slope[k] * t / 256) / 2**15``. Chords are lowered by half their largest error."""
    bases, slopes = [], []
    for k in range(_CHORDS):
        start = 2 ** (-k / _CHORDS)
        drop = start - 2 ** (-(k + 1) / _CHORDS)
        # The chord is furthest above the curve where the curve has its slope, -drop * 16.
        slope = drop * _CHORDS / math.log(2)
        error = start - drop * (-math.log2(slope) * _CHORDS - k) - slope
        bases.append(round(_ONE * (start - error / 2)))
        slopes.append(round(_ONE * _CHORDS * drop))
    return tuple(bases), tuple(slopes)


@functools.cache
def table():
    """``2**(-f / 256)`` in U1.15 for ``f`` in 0..255."""
    return tuple(round(_ONE * 2 ** (-f / 256)) for f in range(256))


def _exact(base, slope, t):
    return base - ((slope * t + 128) >> 8)


def _distances(base, slope, half, centre):
    """Per ``j``, the range of distances that serve around this centre, or ``None``."""
    ranges = []
    for j in range(4):
        above = _exact(base, slope, 8 * half + 3 - j) << GUARD_BITS
        below = _exact(base, slope, 8 * half + 4 + j) << GUARD_BITS
        last = (1 << GUARD_BITS) - 1
        low = max(above - centre, centre - 1 - below - last)
        high = min(above - centre + last, centre - 1 - below)
        if low > high:
            return None
        ranges.append((low, high))
    return ranges


@functools.cache
def halves():
    """``centres, distances`` that give the chords' 256 values by one addition.

    Each half of a chord has a centre, and ``distances[k][j]`` are the same in both halves of
    chord ``k``: the point ``j`` steps above the middle is ``centre + distance``, and the one
    ``j`` steps below is ``centre + ~distance``, without the lowest ``GUARD_BITS`` bits. There is a
    solution for every chord with two of these, and none with one.

    Returns ``centres[32]``, by ``2 * k + half``, and ``distances[64]``, by ``4 * k + j``.
    """
    centres, distances = [], []
    for base, slope in zip(*chords(), strict=True):
        candidates = []
        for half in range(2):
            lowest = _exact(base, slope, 8 * half + 4) << GUARD_BITS
            highest = _exact(base, slope, 8 * half + 3) + 1 << GUARD_BITS
            ranges = ((centre, _distances(base, slope, half, centre))
                      for centre in range(lowest, highest + 1))
            candidates.append([found for found in ranges if found[1] is not None])
        for first, second in itertools.product(*candidates):
            common = [(max(x[0], y[0]), min(x[1], y[1]))
                      for x, y in zip(first[1], second[1], strict=True)]
            if all(low <= high for low, high in common):
                break
        centres += [first[0], second[0]]
        distances += [low for low, _ in common]
    return tuple(centres), tuple(distances)
