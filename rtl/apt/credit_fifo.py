"""Queue whose room is reserved long before the payload comes."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.block_fifo import BlockFifo


__all__ = ["CreditFifo"]


class CreditFifo(wiring.Component):
    """Between a pipeline that cannot stop and a stream that may be stalled.

    Whatever enters the pipeline first takes a place of the ``depth`` in the queue; the place is
    free again once the payload has left. So the pipeline is held at its beginning, and its end
    never waits.

    Parameters
    ----------
    shape : shape-like
        Shape of the payload.
    depth : :class:`int`
        Places, a power of two from 2 on.

    Members
    -------
    room : :py:`Out(1)`
        There is a place.
    reserve : :py:`In(1)`
        Take one; only with ``room``.
    valid : :py:`In(1)`
        A payload for which a place was taken.
    payload : :py:`In(shape)`
    o : :py:`Out(stream.Signature(shape))`
        The payloads in order.
    """

    def __init__(self, shape, depth):
        self._fifo = BlockFifo(shape, depth)
        super().__init__({
            "room": Out(1), "reserve": In(1), "valid": In(1), "payload": In(shape),
            "o": Out(stream.Signature(shape)),
        })

    @property
    def latency(self):
        """Cycles from ``valid`` to the offer on ``o``, through an empty queue."""
        return self._fifo.latency

    @property
    def throughput(self):
        return "one payload a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = self._fifo

        taken = Signal(range(fifo.depth + 1))
        left = Signal()
        m.d.comb += [
            self.room.eq(~taken[-1]),  # the depth is a power of two
            fifo.i.valid.eq(self.valid),
            fifo.i.payload.eq(self.payload),
            left.eq(fifo.o.valid & fifo.o.ready),
        ]
        wiring.connect(m, fifo.o, wiring.flipped(self.o))
        with m.If(self.reserve & ~left):
            m.d.sync += taken.eq(taken + 1)
        with m.Elif(left & ~self.reserve):
            m.d.sync += taken.eq(taken - 1)

        return m
