"""Tiles to bursts."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .panel_port import ADDRESS_BITS, BURST_BITS, COUNT_BITS, check_burst_beats


__all__ = ["BurstSplitter", "beat_range"]


def beat_range():
    """The beats of a tile."""
    return data.StructLayout({"address": ADDRESS_BITS, "beats": COUNT_BITS})


class BurstSplitter(wiring.Component):
    """Splits a tile's beats into bursts.

    A burst ends where its tile does or where the next address is a multiple of ``burst_beats``,
    so that with beats of up to 16 bytes and bursts of up to 256 beats none crosses a 4 KiB page.

    Parameters
    ----------
    burst_beats : :class:`int`
        Beats of a burst at most, a power of two up to 256.

    Members
    -------
    i : :py:`In(stream.Signature(beat_range()))`
        Tiles; at least one beat each.
    o : :py:`Out(stream.Signature({address, beats, last}))`
        Bursts; ``last`` marks a tile's final one.
    """

    def __init__(self, burst_beats):
        check_burst_beats(burst_beats)
        self._burst_beats = burst_beats
        super().__init__({
            "i": In(stream.Signature(beat_range())),
            "o": Out(stream.Signature(data.StructLayout({
                "address": ADDRESS_BITS, "beats": BURST_BITS, "last": 1}))),
        })

    @property
    def latency(self):
        """Cycles from the transfer of a tile to its first burst on ``o``."""
        return 2

    @property
    def throughput(self):
        return "a burst every two cycles, a tile's first one after three"

    def elaborate(self, platform):
        m = Module()
        most = self._burst_beats
        low = most.bit_length() - 1

        # Two cycles a burst: how long it is, then what is left. From the second burst on the
        # address is a multiple.
        address = Signal(ADDRESS_BITS, reset_less=True)
        left = Signal(COUNT_BITS, reset_less=True)
        room = Signal(low + 1, reset_less=True)
        busy = Signal()
        send = Signal()
        rest = Signal(COUNT_BITS)
        m.d.comb += [
            self.i.ready.eq(~busy),
            send.eq(self.o.valid & self.o.ready),
            rest.eq(left - self.o.p.beats),
        ]
        with m.If(~busy):
            m.d.sync += [
                busy.eq(self.i.valid),
                address.eq(self.i.p.address),
                left.eq(self.i.p.beats),
                room.eq(most - self.i.p.address[:low]),
            ]
        with m.Elif(~self.o.valid):
            ends = Signal()
            m.d.comb += ends.eq(left <= room)
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.p.address.eq(address),
                self.o.p.beats.eq(Mux(ends, left, room)),
                self.o.p.last.eq(ends),
            ]
        with m.Elif(send):
            m.d.sync += [
                self.o.valid.eq(0),
                busy.eq(~self.o.p.last),
                address.eq(Cat(Const(0, low), address[low:] + 1)),
                left.eq(rest),
                room.eq(most),
            ]
        return m
