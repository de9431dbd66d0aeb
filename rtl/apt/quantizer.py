"""Symmetric uniform quantizer with one scale word a tile (APT 4.1)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from rtl.common.stream import connect_streams

from .absmax import AbsMax, absmax_latency, element_word
from .component import AptComponent
from .reciprocal import Reciprocal, reciprocal_latency
from .scale_lane import ScaleLane


__all__ = ["Quantizer", "quantized_word"]


def quantized_word(params):
    """One word of a quantized tile; ``last`` marks the tile's final word."""
    return data.StructLayout({
        "q": data.ArrayLayout(signed(params.word_bits), params.vpu_lanes),
        "last": 1,
    })


class Quantizer(AptComponent):
    """Quantizes tiles of 16-bit VPU elements to words of two segments (numerics 4.6).

    ``A = max |x|`` of the tile, ``inverse = floor(qmax * 2**16 / A)`` and ``q = sign(x) *
    ((|x| * inverse + 2**15) >> 16)``, which is in ``-qmax..qmax``; all ``q`` are 0 where ``A`` is.
    -32768 is saturated to -32767 first. A word stands for ``q * A / qmax``.

    A tile's elements come twice: on ``measure`` while they are made or written, say, and on ``i``
    when they are read back. The passes of different tiles overlap: while one tile is quantized
    the next is measured and its reciprocal computed, a bit a cycle. Each pass takes ``vpu_lanes``
    elements a cycle, and tiles of ``params.inverse_bits + 2`` words and more follow each other
    without a gap; shorter ones take that many cycles. ``i`` waits for its tile's reciprocal.
    Tiles may differ in size. An element beyond the ``A`` that was measured is outside the
    contract.

    ``scale`` gives one ``A`` a tile. Up to four tiles are measured ahead of ``i``, and a scale
    word that nobody takes holds up the tile after the next. While ``o`` is stalled ``i`` is too.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, ``segment_bits``, ``split`` and ``multiplier_style`` matter.

    Members
    -------
    measure : :py:`In(stream.Signature(element_word(params)))`
        First pass: words of a tile. Elements that pad a word must be 0, here and on ``i``.
    scale : :py:`Out(stream.Signature(SCALE_BITS))`
        Scale words.
    i : :py:`In(stream.Signature(element_word(params)))`
        Second pass: the same words.
    o : :py:`Out(stream.Signature(quantized_word(params)))`
        Quantized words.
    """

    def _ports(self, params):
        return {
            "measure": In(stream.Signature(element_word(params))),
            "scale": Out(stream.Signature(SCALE_BITS)),
            "i": In(stream.Signature(element_word(params))),
            "o": Out(stream.Signature(quantized_word(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a word on ``i`` to ``o.valid``."""
        return ScaleLane.STAGES

    @property
    def scale_latency(self):
        """Cycles from the transfer of a tile's last word on ``measure`` to ``scale.valid``."""
        return absmax_latency(self._params)

    @property
    def turnaround(self):
        """Cycles from the transfer of a tile's last word on ``measure`` to ``i.ready`` for its
        first, if the tile before has gone in by then."""
        return absmax_latency(self._params) + reciprocal_latency(self._params)

    @property
    def throughput(self):
        return f"{self._params.vpu_lanes} elements a cycle in each pass"

    def elaborate(self, platform):
        m = Module()
        params = self._params

        # First pass: A, to whoever wants it and to the divider; each may take it first.
        m.submodules.absmax = absmax = AbsMax(params)
        m.submodules.reciprocal = reciprocal = Reciprocal(params)
        connect_streams(m, measure=wiring.flipped(self.measure), absmax=absmax.i)
        given = Signal()
        divided = Signal()
        m.d.comb += [
            self.scale.payload.eq(absmax.o.payload),
            self.scale.valid.eq(absmax.o.valid & ~given),
            reciprocal.i.payload.eq(absmax.o.payload),
            reciprocal.i.valid.eq(absmax.o.valid & ~divided),
            absmax.o.ready.eq((given | self.scale.ready) & (divided | reciprocal.i.ready)),
        ]
        with m.If(absmax.o.valid):
            m.d.sync += [
                given.eq((given | self.scale.ready) & ~absmax.o.ready),
                divided.eq((divided | reciprocal.i.ready) & ~absmax.o.ready),
            ]

        # The reciprocal in use. It leaves when the tile's last word moves on from the first stage
        # of the lanes, and the next may come in that very cycle, with the next tile's first word.
        advance = Signal()
        loaded = Signal()
        entered = Signal()
        entered_last = Signal(reset_less=True)
        take = Signal()
        inverse = Signal(params.inverse_bits, reset_less=True)
        triple = Signal(params.inverse_bits, reset_less=True)
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            take.eq(advance & (~loaded | (entered & entered_last))),
            reciprocal.o.ready.eq(take),
            self.i.ready.eq(advance & (~take | reciprocal.o.valid)),
        ]
        with m.If(take):
            m.d.sync += [
                loaded.eq(reciprocal.o.valid),
                inverse.eq(reciprocal.o.payload),
                triple.eq(reciprocal.o.payload + (reciprocal.o.payload << 1)),
            ]

        # Second pass.
        for index in range(params.vpu_lanes):
            m.submodules[f"lane_{index}"] = lane = ScaleLane(params)
            m.d.comb += [
                lane.advance.eq(advance),
                lane.x.eq(self.i.p.x[index]),
                lane.inverse.eq(inverse),
                lane.triple.eq(triple),
                self.o.p.q[index].eq(lane.q),
            ]
        summed = Signal()
        summed_last = Signal(reset_less=True)
        with m.If(advance):
            m.d.sync += [
                entered.eq(self.i.valid & self.i.ready), entered_last.eq(self.i.p.last),
                summed.eq(entered), summed_last.eq(entered_last),
                self.o.valid.eq(summed), self.o.p.last.eq(summed_last),
            ]

        return m
