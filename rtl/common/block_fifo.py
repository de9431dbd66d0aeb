"""Queue in block memory."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


__all__ = ["BlockFifo"]


class BlockFifo(wiring.Component):
    """First in, first out, through a memory that is read in a clock cycle of its own.

    One payload in and one out a cycle; :attr:`latency` cycles through an empty queue. It holds
    ``depth`` payloads in the memory and one in the memory's output register, which is ``o``.

    The memory is never read where it is written in the same cycle, and says so
    (``no_rw_check``): where block memory leaves that case open, Yosys would otherwise put a
    comparison and a multiplexer behind every bit. That is why this is not Amaranth's
    ``SyncFIFOBuffered``, which it is equal to in all else.

    Parameters
    ----------
    shape : shape-like
        Shape of the payload.
    depth : :class:`int`
        Words of the memory, a power of two from 2 on.

    Members
    -------
    i : :py:`In(stream.Signature(shape))`
    o : :py:`Out(stream.Signature(shape))`
    """

    def __init__(self, shape, depth):
        if not isinstance(depth, int) or isinstance(depth, bool):
            raise TypeError(f"Depth must be an integer, not {depth!r}")
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"Depth must be a power of two from 2 on, not {depth}")
        self._shape, self._depth = shape, depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def depth(self):
        return self._depth

    @property
    def latency(self):
        """Cycles from a transfer of ``i`` to its offer on ``o``: written, read."""
        return 2

    @property
    def throughput(self):
        return "one payload a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self._shape, depth=self._depth, init=[],
                                              attrs={"no_rw_check": 1})
        write, read = memory.write_port(), memory.read_port()

        level = Signal(range(self._depth + 1))
        put, get = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~level[-1]),  # `depth` is a power of two
            put.eq(self.i.valid & self.i.ready),
            get.eq((level != 0) & (~self.o.valid | self.o.ready)),
        ]
        with m.If(put & ~get):
            m.d.sync += level.eq(level + 1)
        with m.Elif(get & ~put):
            m.d.sync += level.eq(level - 1)

        m.d.comb += [
            write.data.eq(self.i.payload),
            write.en.eq(put),
            read.en.eq(get),
            self.o.payload.eq(read.data),
        ]
        with m.If(put):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(get):
            m.d.sync += [read.addr.eq(read.addr + 1), self.o.valid.eq(1)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        return m
