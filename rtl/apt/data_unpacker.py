"""Memory images to quantized tiles."""

from amaranth import *
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS

from .component import AptComponent
from .tile_image import (
    LSB,
    MSB,
    SCALE,
    ImageUnits,
    RowPosition,
    beat,
    image_throughput,
    put_behind,
    segment_word,
)


__all__ = ["DataUnpacker"]


class DataUnpacker(AptComponent):
    """Unpacks the memory image of a tile: the inverse of :class:`DataPacker` (numerics 4.6).

    For each tile it takes the number of rows from ``tile`` and ``params.image_bytes(rows)`` bytes
    from ``i``, and gives the scale word on ``scale``, then the words of the MSB plane on ``o``,
    then those of the LSB plane. A row is ``params.dim_words`` words; its last word is padded with
    zeros, whatever the image holds there. Beats are never taken from the next image's part too
    early: what a section's last beat holds beyond its end is dropped.

    A beat is taken or a word given every cycle, whichever is narrower; the scale word costs one
    cycle, and ``params.image_words - params.dim_words`` cycles a row drop padding. While ``o`` is
    stalled, beats are taken until a word is there. The next tile's number of rows is taken once
    the MSB plane is through.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, ``segment_bits``, ``head_dim``, ``beat_bytes``, ``tile_q`` and ``tile_k``
        matter.

    Members
    -------
    tile : :py:`In(stream.Signature(params.rows_bits))`
        Rows of the next tile, 1 to ``params.max_rows``.
    i : :py:`In(stream.Signature(beat(params)))`
        Beats of images.
    scale : :py:`Out(stream.Signature(16))`
        Scale words, one a tile.
    o : :py:`Out(stream.Signature(segment_word(params)))`
        Segments, row by row; ``last`` in the final word of each plane.
    """

    def _ports(self, params):
        return {
            "tile": In(stream.Signature(params.rows_bits)),
            "i": In(stream.Signature(beat(params))),
            "scale": Out(stream.Signature(SCALE_BITS)),
            "o": Out(stream.Signature(segment_word(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a beat that completes a word to ``o.valid``."""
        return 2

    @property
    def throughput(self):
        return image_throughput(self._params)

    def elaborate(self, platform):
        m = Module()
        params = self._params
        unit = params.image_unit
        full_units, tail_units, beat_units, scale_units = ImageUnits.of(params)
        max_level = max(full_units - 1 + beat_units, scale_units)

        # The tile at hand, and where in it the next word is.
        held = Signal()
        rows = Signal(params.rows_bits, reset_less=True)
        rows_left = Signal(params.rows_bits, reset_less=True)
        section = Signal(2)
        pop = Signal()
        in_plane = Signal()
        m.d.comb += in_plane.eq(section != SCALE)
        position = RowPosition(m, params, pop & in_plane)
        row_end = Signal()
        end = Signal()
        m.d.comb += [
            row_end.eq(in_plane & position.tail),
            end.eq(~in_plane | (position.tail & (rows_left == 1))),
            self.tile.ready.eq(~held),
        ]
        with m.If(~held):
            m.d.sync += [held.eq(self.tile.valid), rows.eq(self.tile.payload)]
        with m.If(pop & end):
            m.d.sync += [section.eq(Mux(section == LSB, SCALE, section + 1)), rows_left.eq(rows)]
            with m.If(section == MSB):
                m.d.sync += held.eq(0)
        with m.Elif(pop & row_end):
            m.d.sync += rows_left.eq(rows_left - 1)

        # Bits that wait, the next word first. A word leaves once it is complete and has somewhere
        # to go. A beat is taken when the word that will then be next is not complete, so never
        # one that belongs to the next section; it goes to `place`, behind what is left. If none
        # comes there is nothing of value above `level`.
        waiting = Signal(max_level * unit, reset_less=True)
        level = Signal(range(max_level + 1))
        complete = Signal()
        place = Signal(max(full_units, scale_units - beat_units + 1), init=1)

        first_need = tail_units if params.image_words == 1 else full_units
        need = Signal(range(max(full_units, scale_units) + 1))
        next_need = Signal.like(need)
        room = Signal()
        rest = Signal.like(level)
        accept = Signal()
        m.d.comb += [
            need.eq(Mux(in_plane, Mux(position.tail, tail_units, full_units), scale_units)),
            next_need.eq(Mux(position.before_tail, tail_units, full_units)),
            room.eq(Mux(in_plane, position.pad | ~self.o.valid | self.o.ready,
                        held & (~self.scale.valid | self.scale.ready))),
            pop.eq(complete & room),
            rest.eq(level - need),
            self.i.ready.eq(~complete | (room & (end | (rest < next_need)))),
            accept.eq(self.i.valid & self.i.ready),
        ]
        with m.If(end):
            m.d.comb += next_need.eq(Mux(section == LSB, scale_units, first_need))
        with m.If(~pop):
            m.d.comb += next_need.eq(need)
        next_level = Signal.like(level)
        next_complete = Signal()
        next_place = Signal.like(level)
        m.d.comb += [
            next_level.eq(Mux(pop, Mux(end, 0, rest), level) + Mux(accept, beat_units, 0)),
            next_complete.eq(next_level >= next_need),
            next_place.eq(Mux(next_complete, next_level - next_need, next_level)),
        ]
        m.d.sync += [
            level.eq(next_level),
            complete.eq(next_complete),
            place.eq(Cat(next_place == index for index in range(len(place)))),
        ]
        # The last word of a section takes what is behind it along.
        restart = Signal()
        where = Signal.like(place)
        kept = Signal.like(waiting)
        m.d.comb += [
            restart.eq(complete & end),
            where.eq(Mux(restart, 1, place)),
            kept.eq(Mux(complete, Mux(position.tail, waiting >> (tail_units * unit),
                                      waiting >> (full_units * unit)), waiting)),
        ]
        with m.If(~complete | room):
            m.d.sync += waiting.eq(put_behind(kept, self.i.payload.as_value(), where, unit))

        # Outputs.
        with m.If(~self.scale.valid | self.scale.ready):
            m.d.sync += [
                self.scale.valid.eq(pop & ~in_plane),
                self.scale.payload.eq(waiting),
            ]
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(pop & in_plane & ~position.pad),
                self.o.p.last.eq(end if params.image_words == params.dim_words
                                 else (rows_left == 1) & position.real_last),
            ]
            mask = position.mask(params)
            for index, segment in enumerate(self.o.p.segments):
                start = index * params.segment_bits
                m.d.sync += segment.eq(waiting[start:start + params.segment_bits]
                                       & mask[index].replicate(params.segment_bits))

        return m
