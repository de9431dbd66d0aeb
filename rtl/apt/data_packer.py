"""Quantized tiles to memory images."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from golden.common.checks import ceil_div

from .component import AptComponent
from .tile_image import (
    LSB,
    SCALE,
    ImageUnits,
    RowPosition,
    beat,
    image_throughput,
    put_behind,
    segment_word,
)


__all__ = ["DataPacker", "packed_beat"]


def packed_beat(params):
    """One beat of an image; ``last`` marks the image's final beat."""
    return data.StructLayout({"bytes": beat(params), "last": 1})


class DataPacker(AptComponent):
    """Packs a tile's scale word and segment planes into its memory image (numerics 4.6).

    For each tile: one word of ``scale``, then the words of its MSB plane from ``i``, then those
    of its LSB plane. Each of the three is padded with zeros to whole beats. A plane is row-major;
    a row comes in ``params.dim_words`` words and is stored as ``params.image_dim`` fields of
    ``segment_bits``, packed from bit 0 of byte 0 on, without gaps between rows. What a row's last
    word holds beyond ``head_dim`` is ignored.

    A word is taken or a beat given every cycle, whichever is narrower, with no gap at the end of
    a plane; ``params.image_words - params.dim_words`` cycles a row make padding. While ``o`` is
    stalled, words are taken until a beat is full.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, ``segment_bits``, ``head_dim`` and ``beat_bytes`` matter.

    Members
    -------
    scale : :py:`In(stream.Signature(16))`
        Scale words, one a tile.
    i : :py:`In(stream.Signature(segment_word(params)))`
        Segments, row by row; ``last`` in the final word of each plane.
    o : :py:`Out(stream.Signature(packed_beat(params)))`
        Beats of the image.
    """

    def _ports(self, params):
        return {
            "scale": In(stream.Signature(SCALE_BITS)),
            "i": In(stream.Signature(segment_word(params))),
            "o": Out(stream.Signature(packed_beat(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a word that fills a beat, or ends a plane, to
        ``o.valid``."""
        return 1

    @property
    def throughput(self):
        return image_throughput(self._params)

    def elaborate(self, platform):
        m = Module()
        params = self._params
        unit = params.image_unit
        full_units, tail_units, beat_units, scale_units = ImageUnits.of(params)
        max_level = max(beat_units - 1 + full_units, scale_units)

        # What comes next: the scale word, a word of a plane, or a word of padding.
        section = Signal(2)
        accept = Signal()
        source_valid = Signal()
        chunk = Signal(max(full_units, ceil_div(SCALE_BITS, unit)) * unit)
        units = Signal(range(max_level + 1))
        end = Signal()
        in_plane = Signal()
        m.d.comb += in_plane.eq(section != SCALE)
        position = RowPosition(m, params, accept & in_plane)
        kept = position.mask(params)
        fields = Cat(segment & kept[index].replicate(params.segment_bits)
                     for index, segment in enumerate(self.i.p.segments))
        plane_last = Signal()
        if params.image_words > params.dim_words:
            held_last = Signal()
            with m.If(accept & ~position.pad):
                m.d.sync += held_last.eq(self.i.p.last)
            m.d.comb += plane_last.eq(Mux(position.pad, held_last, self.i.p.last) & position.tail)
        else:
            m.d.comb += plane_last.eq(self.i.p.last)
        with m.If(in_plane):
            m.d.comb += [
                source_valid.eq(position.pad | self.i.valid),
                chunk.eq(fields[:full_units * unit]),
                units.eq(Mux(position.tail, tail_units, full_units)),
                end.eq(plane_last),
            ]
        with m.Else():
            m.d.comb += [
                source_valid.eq(self.scale.valid),
                chunk.eq(self.scale.payload),
                units.eq(scale_units),
                end.eq(1),
            ]
        next_section = Signal(2)
        m.d.comb += next_section.eq(section)
        with m.If(accept & end):
            m.d.comb += next_section.eq(Mux(section == LSB, SCALE, section + 1))
        m.d.sync += section.eq(next_section)

        # Bits that wait, the first beat of which is the output. A chunk goes to `place`, behind
        # what is left once the output has gone; if none comes there is nothing of value above
        # `level`. After the end of a section the rest goes out first, with the zeros above it:
        # `final` is its last beat, and until then there is no place.
        waiting = Signal(max_level * unit, reset_less=True)
        level = Signal(range(max_level + 1))
        place = Signal(beat_units, init=1)
        closing = Signal()
        final = Signal()

        emit = Signal()
        advance = Signal()
        room = Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            emit.eq(self.o.valid & self.o.ready),
            room.eq(advance & (final | (~closing & (level < 2 * beat_units)))),
            accept.eq(room & source_valid),
            self.scale.ready.eq(room & ~in_plane),
            self.i.ready.eq(room & in_plane & ~position.pad),
        ]
        next_level = Signal.like(level)
        next_place = Signal.like(level)
        next_closing = Signal()
        next_final = Signal()
        next_full = Signal()
        m.d.comb += [
            next_level.eq(Mux(emit, Mux(final, 0, level - beat_units), level)
                          + Mux(accept, units, 0)),
            next_closing.eq(Mux(accept, end, closing & ~(emit & final))),
            next_final.eq(next_closing & (next_level <= beat_units)),
            next_full.eq(next_level >= beat_units),
            next_place.eq(Mux(next_final, 0, Mux(next_full, next_level - beat_units,
                                                 next_level))),
        ]
        m.d.sync += [
            level.eq(next_level),
            place.eq(Cat((next_place == index) & (next_final | ~next_closing)
                         for index in range(beat_units))),
            closing.eq(next_closing),
            final.eq(next_final),
            self.o.valid.eq(next_closing | next_full),
            self.o.p.last.eq(next_final & (next_section == SCALE)),
        ]
        kept = Signal.like(waiting)
        m.d.comb += kept.eq(Mux(self.o.valid, waiting >> params.beat_bits, waiting))
        with m.If(advance):
            m.d.sync += waiting.eq(put_behind(kept, chunk, place, unit))
        m.d.comb += self.o.p.bytes.as_value().eq(waiting)

        return m
