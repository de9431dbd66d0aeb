"""What the host tells the engine about a head at a step: a job of ``JOB_WORDS`` 32-bit words.

======== ===========================================================================
word     bits
======== ===========================================================================
0        0 dense, 1 refresh, 2 state of the step before is there, 8..11 ``o_shift``
1        0..15 query tiles, 16..31 key tiles
2        0..15 rows of the last query tile, 16..31 keys of the last key tile
3        0..15 and 16..31 codes of the prune and of the quant threshold, Q5.11
4        0..15 mantissa and 16..22 shift of the head's logit scale
5        0..15 and 16..31 count thresholds ``k_hp`` and ``k_v`` of the mask encoder
8 + 4k   of region ``k``: address of its first tile, in beats
9 + 4k   beats from one tile to the next
10 + 4k  0..15 words and 16..31 beats of its last tile
11 + 4k  the engine's own
======== ===========================================================================

Regions are those of :class:`Region`. Everything that would need a division is in the job, so the
engine walks any sequence without one.
"""

import enum
from typing import NamedTuple

from .layout import Layout


__all__ = ["JOB_WORDS", "MOST_TOKENS", "Place", "REGIONS_AT", "Region", "job_words", "moved_beats",
           "panel", "place", "whole_tile"]

#: Words of a job.
JOB_WORDS = 64
#: Where the first region's words are; each has four.
REGIONS_AT = 8
#: Longest sequence.
MOST_TOKENS = 1 << 16


class Region(enum.IntEnum):
    """Tensors of a head in external memory. Tiles of K and V are walked anew for each query tile,
    those of masks and state of tiles go on, the others have one a query tile."""

    Q = 0
    K = 1
    V = 2
    CODE_IN = 3
    STATE_IN = 4
    ROWS_IN = 5
    CODE_OUT = 6
    STATE_OUT = 7
    ROWS_OUT = 8
    O = 9  # noqa: E741


class Place(NamedTuple):
    """Where a region lies, in beats."""

    base: int    #: address of the first tile
    stride: int  #: from one tile to the next
    words: int   #: memory words of the last tile
    beats: int   #: beats of the last tile


_PANELS = {Region.Q: "q", Region.K: "k", Region.V: "v",
           Region.CODE_IN: "code", Region.STATE_IN: "state", Region.ROWS_IN: "rows",
           Region.CODE_OUT: "code", Region.STATE_OUT: "state", Region.ROWS_OUT: "rows",
           Region.O: "o"}


def panel(region, layout):
    """The :class:`~golden.apt.layout.Panel` of a region."""
    return getattr(layout, _PANELS[region])


def whole_tile(region, params):
    """Memory words and beats of a tile that is not at an end."""
    one = panel(region, Layout(params, max(params.tile_q, params.tile_k)))
    return one.words[0], one.beats[0]


def moved_beats(layout, *, dense, has_state):
    """Beats that a job moves, by :class:`Region`: those below ``CODE_OUT`` are read.

    K and V are read anew for each query tile; old masks are not read for a dense step, nor is
    state that is not there.
    """
    times = {Region.K: layout.query_tiles, Region.V: layout.query_tiles,
             Region.CODE_IN: int(not dense), Region.STATE_IN: int(has_state),
             Region.ROWS_IN: int(has_state)}
    return {region: times.get(region, 1) * sum(panel(region, layout).beats) for region in Region}


def place(region, base, layout):
    """The :class:`Place` of a region whose image begins at beat ``base``."""
    one = panel(region, layout)
    return Place(base, one.stride, one.words[-1], one.beats[-1])


def job_words(step, scale, has_state, places, layout):
    """The words of a job.

    Parameters
    ----------
    step : :class:`~golden.apt.attend.Step`
        Settings.
    scale : :class:`~golden.apt.vpu.LogitScale`
        The head's constant.
    has_state : :class:`bool`
        Whether masks and state of the step before are there; without, the step must be dense.
    places : mapping of :class:`Region` to :class:`Place`
        All regions.
    layout : :class:`~golden.apt.layout.Layout`
        Queries and keys, 1 to ``MOST_TOKENS`` of either.

    Raises :class:`ValueError` for what the engine cannot do.
    """
    for name, count in (("Tokens", layout.tokens), ("Queries", layout.queries)):
        if count > MOST_TOKENS:
            raise ValueError(f"{name} must be in 1..{MOST_TOKENS}, not {count}")
    if not (step.dense or has_state):
        raise ValueError("The first step must be dense: there are no masks yet")
    words = [0] * JOB_WORDS
    words[0] = (bool(step.dense) | bool(step.refresh) << 1 | bool(has_state) << 2
                | layout.params.o_shift(layout.key_tiles) << 8)
    words[1] = layout.query_tiles | layout.key_tiles << 16
    words[2] = layout.tile_rows[-1] | layout.tile_keys[-1] << 16
    words[3] = step.codes[0] | step.codes[1] << 16
    words[4] = scale.mantissa | scale.shift << 16
    words[5] = step.counts.k_hp | step.counts.k_v << 16
    for region in Region:
        place = places[region]
        for name, value, bits in (("base", place.base, 32), ("stride", place.stride, 32),
                                  ("words", place.words, 16), ("beats", place.beats, 16)):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{region.name}.{name} must be in 0..{(1 << bits) - 1}, "
                                 f"not {value}")
        at = REGIONS_AT + 4 * region
        words[at:at + 3] = place.base, place.stride, place.words | place.beats << 16
    return words
