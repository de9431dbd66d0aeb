"""Words of the engine to beats of tiles, and the bursts that write them."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.block_fifo import BlockFifo
from rtl.common.gearbox import Gearbox
from rtl.common.stream import connect_streams

from .burst_splitter import BurstSplitter, beat_range
from .panel_port import ADDRESS_BITS, BURST_BITS, COUNT_BITS


__all__ = ["StoreLane", "lane_beats", "lane_burst", "lane_tile"]


def lane_tile():
    """A tile to write."""
    return data.StructLayout({"address": ADDRESS_BITS, "words": COUNT_BITS, "beats": COUNT_BITS})


def lane_burst():
    """A burst to write; ``last`` of its tile."""
    return data.StructLayout({"address": ADDRESS_BITS, "beats": BURST_BITS, "last": 1})


class StoreLane(wiring.Component):
    """Packs the words of one kind of tile and asks for a burst once its beats are there.

    So a burst that has been granted is never held up by the engine. Two tiles are taken ahead
    of the one under way.

    Parameters
    ----------
    width, beat_bits : :class:`int`
        Bits of a word and of a beat.
    burst_beats : :class:`int`
        Beats of a burst at most, a power of two from 2 on; there is room for two bursts.
    short : :class:`int` or ``None``
        If given, words say whether they are ``short``, with so many bits, and which one is the
        ``last`` of a tile. Otherwise the tile's ``words`` are counted, and none is taken before
        its tile has been.

    Members
    -------
    tile : :py:`In(stream.Signature(lane_tile()))`
    i : :py:`In(stream.Signature(width))` or of ``{bits, last, short}``
    request : :py:`Out(stream.Signature(lane_burst()))`
    o : :py:`Out(stream.Signature(beat_bits))`
        Beats of the bursts asked for, in order.
    """

    def __init__(self, width, beat_bits, burst_beats, *, short=None):
        self._beat_bits, self._burst_beats, self._counted = beat_bits, burst_beats, short is None
        self._gearbox = lambda: Gearbox(width, beat_bits, pad=True, short_in=short)
        word = width if short is None else data.StructLayout({"bits": width, "last": 1, "short": 1})
        super().__init__({
            "tile": In(stream.Signature(lane_tile())),
            "i": In(stream.Signature(word)),
            "request": Out(stream.Signature(lane_burst())),
            "o": Out(stream.Signature(beat_bits)),
        })

    @property
    def latency(self):
        """Cycles from the transfer of the word that completes a burst to its request: gearbox,
        count, comparison."""
        return 3

    @property
    def throughput(self):
        return "a word or a beat a cycle, whichever is narrower"

    def elaborate(self, platform):
        m = Module()
        m.submodules.gearbox = gearbox = self._gearbox()
        m.submodules.beats = beats = BlockFifo(self._beat_bits, 2 * self._burst_beats)
        m.submodules.ranges = ranges = BlockFifo(beat_range(), 2)
        m.submodules.splitter = splitter = BurstSplitter(self._burst_beats)

        m.d.comb += [
            ranges.i.p.address.eq(self.tile.p.address),
            ranges.i.p.beats.eq(self.tile.p.beats),
        ]
        connect_streams(m, ranges=ranges.o, splitter=splitter.i)
        if self._counted:
            self._count(m, gearbox, ranges)
        else:
            m.d.comb += [ranges.i.valid.eq(self.tile.valid), self.tile.ready.eq(ranges.i.ready)]
            connect_streams(m, i=wiring.flipped(self.i), gearbox=gearbox.i)
        m.d.comb += [
            beats.i.valid.eq(gearbox.o.valid),
            beats.i.payload.eq(gearbox.o.p.bits),
            gearbox.o.ready.eq(beats.i.ready),
        ]
        wiring.connect(m, wiring.flipped(self.o), beats.o)

        # Beats that are stored and not asked for yet. There are only more of them until the
        # burst in question is granted, so `enough` stays; the next burst comes a cycle later.
        stored = Signal(range(2 * self._burst_beats + 2))
        enough, put, granted = Signal(), Signal(), Signal()
        m.d.comb += [
            put.eq(beats.i.valid & beats.i.ready),
            granted.eq(self.request.valid & self.request.ready),
            self.request.valid.eq(splitter.o.valid & enough),
            self.request.payload.eq(splitter.o.payload),
            splitter.o.ready.eq(self.request.ready & enough),
        ]
        taken = Signal(BURST_BITS)
        m.d.comb += taken.eq(splitter.o.p.beats & granted.replicate(BURST_BITS))
        m.d.sync += [
            stored.eq(stored + put - taken),
            enough.eq(splitter.o.valid & (stored >= splitter.o.p.beats)),
        ]
        return m

    def _count(self, m, gearbox, ranges):
        """The last word of a tile by their number."""
        m.submodules.counts = counts = BlockFifo(COUNT_BITS, 2)
        left = Signal(COUNT_BITS, reset_less=True)
        open_, last, moved = Signal(), Signal(reset_less=True), Signal()
        rest = Signal(COUNT_BITS)
        m.d.comb += [
            self.tile.ready.eq(ranges.i.ready & counts.i.ready),
            ranges.i.valid.eq(self.tile.valid & counts.i.ready),
            counts.i.valid.eq(self.tile.valid & ranges.i.ready),
            counts.i.payload.eq(self.tile.p.words),
            gearbox.i.valid.eq(self.i.valid & open_),
            gearbox.i.p.bits.eq(self.i.payload),
            gearbox.i.p.last.eq(last),
            self.i.ready.eq(gearbox.i.ready & open_),
            moved.eq(self.i.valid & self.i.ready),
            counts.o.ready.eq(~open_),
            rest.eq(Mux(open_, left - moved, counts.o.payload)),
        ]
        m.d.sync += [
            open_.eq(Mux(open_, ~(moved & last), counts.o.valid)),
            left.eq(rest),
            last.eq(rest == 1),
        ]


def lane_beats(tile_beats, burst_beats):
    """Burst length of a lane whose whole tiles have so many beats."""
    return max(2, min(burst_beats, 1 << ceil_log2(tile_beats)))
