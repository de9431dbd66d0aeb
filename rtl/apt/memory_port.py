"""The memory port that loader and storer share."""

from amaranth import *
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .panel_port import BURST_BITS, LARGEST_BURST, burst, memory_request


__all__ = ["MemoryPort"]


class MemoryPort(AptComponent):
    """Bursts of the loader and of the storer on one port to memory.

    Where both want the port they take turns, burst by burst. A write burst's beats follow its
    request and come before the next write request; read requests need not wait for them. Data
    of read bursts come back in the order of the requests. A read request is sent while fewer than
    ``AHEAD`` beats are outstanding.

    While ``drain`` is high no request is taken, what comes back is dropped, and a write burst
    whose request was taken is completed. So to abort: raise ``drain``, wait until ``busy`` is low,
    reset loader and storer, lower ``drain``. ``busy`` counts requests on offer, beats to be
    written and beats to come back.

    Parameters
    ----------
    params : :class:`AptParams`
        ``beat_bytes`` matters.

    Members
    -------
    read_request, write_request : :py:`In(stream.Signature(burst()))`
        From the loader and the storer.
    write_data : :py:`In(stream.Signature(params.beat_bits))`
        Beats of write bursts.
    read_data : :py:`Out(stream.Signature(params.beat_bits))`
        Beats of read bursts.
    request : :py:`Out(stream.Signature(memory_request()))`
    write : :py:`Out(stream.Signature(params.beat_bits))`
    read : :py:`In(stream.Signature(params.beat_bits))`
        The port to memory.
    drain : :py:`In(1)`
    busy : :py:`Out(1)`
    """

    #: Beats outstanding at which the next read request waits.
    AHEAD = 2 * LARGEST_BURST

    def _ports(self, params):
        beat = params.beat_bits
        return {
            "read_request": In(stream.Signature(burst())),
            "write_request": In(stream.Signature(burst())),
            "write_data": In(stream.Signature(beat)),
            "read_data": Out(stream.Signature(beat)),
            "request": Out(stream.Signature(memory_request())),
            "write": Out(stream.Signature(beat)),
            "read": In(stream.Signature(beat)),
            "drain": In(1),
            "busy": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a request to ``request.valid``; beats pass in the same
        cycle."""
        return 1

    @property
    def throughput(self):
        return "a request a cycle, and a beat a cycle each way"

    def elaborate(self, platform):
        m = Module()

        # Beats that are to come back. Those of the request on offer are not among them yet.
        outstanding = Signal(range(self.AHEAD + 2 * LARGEST_BURST))
        sent, arrived = Signal(), Signal()
        more = Signal(BURST_BITS)
        m.d.comb += [
            sent.eq(self.request.valid & self.request.ready & ~self.request.p.write),
            arrived.eq(self.read.valid & self.read.ready),
            more.eq(self.request.p.beats & sent.replicate(BURST_BITS)),
        ]
        m.d.sync += outstanding.eq(outstanding + more - arrived)

        # A write burst: its request is on offer, or its beats are under way.
        writing = Signal()
        left = Signal(BURST_BITS, reset_less=True)
        requested = Signal()
        m.d.comb += requested.eq(self.request.valid & self.request.p.write)

        # Turns. The last one to have sent a request gives way.
        free, can_read, can_write, turn = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq((~self.request.valid | self.request.ready) & ~self.drain),
            can_read.eq(self.read_request.valid & (outstanding < self.AHEAD)),
            can_write.eq(self.write_request.valid & ~writing & ~requested),
            self.read_request.ready.eq(free & can_read & ~(can_write & turn)),
            self.write_request.ready.eq(free & can_write & ~(can_read & ~turn)),
        ]
        with m.If(self.read_request.ready):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.p.write.eq(0),
                self.request.p.address.eq(self.read_request.p.address),
                self.request.p.beats.eq(self.read_request.p.beats),
                turn.eq(1),
            ]
        with m.Elif(self.write_request.ready):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.p.write.eq(1),
                self.request.p.address.eq(self.write_request.p.address),
                self.request.p.beats.eq(self.write_request.p.beats),
                turn.eq(0),
            ]
        with m.Elif(self.request.ready):
            m.d.sync += self.request.valid.eq(0)

        m.d.comb += [
            self.write.valid.eq(writing & self.write_data.valid),
            self.write.payload.eq(self.write_data.payload),
            self.write_data.ready.eq(writing & self.write.ready),
        ]
        with m.If(requested & self.request.ready):
            m.d.sync += [writing.eq(1), left.eq(self.request.p.beats)]
        with m.Elif(self.write.valid & self.write.ready):
            m.d.sync += [writing.eq(left != 1), left.eq(left - 1)]

        m.d.comb += [
            self.read_data.valid.eq(self.read.valid & ~self.drain),
            self.read_data.payload.eq(self.read.payload),
            self.read.ready.eq(self.read_data.ready | self.drain),
            self.busy.eq(self.request.valid | writing | (outstanding != 0)),
        ]
        return m
