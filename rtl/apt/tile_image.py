"""What packer and unpacker of tile images share: payloads, row position, shifter."""

import functools
import operator
from typing import NamedTuple

from amaranth import *
from amaranth.lib import data


__all__ = ["LSB", "MSB", "SCALE", "ImageUnits", "RowPosition", "beat", "image_throughput",
           "put_behind", "segment_word"]

#: Sections of an image, in order; each begins with a beat of its own.
SCALE, MSB, LSB = range(3)


def segment_word(params):
    """One word of a plane of segments; ``last`` marks the plane's final word."""
    return data.StructLayout({
        "segments": data.ArrayLayout(params.segment_bits, params.vpu_lanes),
        "last": 1,
    })


def beat(params):
    """One beat of the memory port: byte 0 has the lowest address."""
    return data.ArrayLayout(8, params.beat_bytes)


class ImageUnits(NamedTuple):
    """Sizes in units of ``params.image_unit`` bits, in which images are packed and unpacked."""

    full: int   #: a word of a row, but for the last
    tail: int   #: the last word of a row
    beat: int   #: a beat
    scale: int  #: the beats of the scale word

    @classmethod
    def of(cls, params):
        unit = params.image_unit
        beat_units = params.beat_bits // unit
        return cls(params.image_chunk * params.segment_bits // unit,
                   params.image_tail * params.segment_bits // unit,
                   beat_units, params.scale_beats * beat_units)


def image_throughput(params):
    """What packer and unpacker move: a word or a beat, whichever is narrower."""
    if params.image_chunk * params.segment_bits <= params.beat_bits:
        return f"{params.image_chunk} segments a cycle"
    return f"{params.beat_bytes} bytes a cycle"


def put_behind(kept, value, place, unit):
    """The next contents of a register: ``value`` at ``place`` units, in front of it ``kept``.

    ``place`` is a one-hot signal; without any bit set all of ``kept`` stays. Above ``value`` are
    zeros. One AND gate a bit and place that can reach it: places are known before the cycle
    begins, whether or not a value comes then, so they come straight from registers.
    """
    def part(bits, index):
        return bits[index * unit:(index + 1) * unit]

    units = []
    for index in range(len(kept) // unit):
        keep = place[index + 1:].any() | ~place.any()
        terms = [part(kept, index) & keep.replicate(unit)]
        for at in range(max(0, index + 1 - len(value) // unit), min(index + 1, len(place))):
            terms.append(part(value, index - at) & place[at].replicate(unit))
        units.append(functools.reduce(operator.or_, terms))
    return Cat(*units)


class RowPosition:
    """Where in its image row a word is.

    Attributes, 1-bit values: ``real_last``, the last word that has elements of ``head_dim``;
    ``pad``, a word after it; ``tail``, the row's last word; ``before_tail``, the one before.

    Parameters
    ----------
    m : :class:`Module`
        Where the counter goes; synthesis drops it where nothing depends on it.
    params : :class:`AptParams`
        Shape of a row.
    step : :class:`Value`
        The word is done with.
    """

    def __init__(self, m, params, step):
        words = params.image_words
        column = Signal(range(max(2, words)), name="column")
        self.real_last = Signal(name="real_last")
        self.pad = Signal(name="pad")
        self.tail = Signal(name="tail")
        self.before_tail = Signal(name="before_tail")
        m.d.comb += [
            self.real_last.eq(column == params.dim_words - 1),
            self.pad.eq(column >= params.dim_words),
            self.tail.eq(column == words - 1),
            self.before_tail.eq(column == words - 2 if words > 1 else 1),
        ]
        with m.If(step):
            m.d.sync += column.eq(Mux(self.tail, 0, column + 1))

    def mask(self, params):
        """A bit for each element of the word: it is one of ``head_dim``."""
        beyond = params.vpu_lanes - params.dim_tail
        return Cat((~self.pad).replicate(params.dim_tail),
                   (~self.pad & ~self.real_last).replicate(beyond))
