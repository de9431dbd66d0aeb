"""Table of what makes output of rows of O (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .row_words import final_word


__all__ = ["OFinals"]


class OFinals(AptComponent):
    """Table of final words, two query tiles of them.

    Members
    -------
    i : :py:`In(stream.Signature(final_word(params)))`
        Each row of a query tile, row 0 first; that one waits for a free half.
    half : :py:`In(1)`
    have : :py:`Out(params.row_count_bits)`
        How many words of a half there are.
    read_en, read_row, read_half : :py:`In`
    mantissa, places : :py:`Out`
        Two cycles later; the mantissa of ``zero`` is 0.
    release, release_half : :py:`In(1)`
        A half has been read for the last time.
    """

    def _ports(self, params):
        return {
            "i": In(stream.Signature(final_word(params))),
            "half": In(1), "have": Out(params.row_count_bits),
            "read_en": In(1), "read_row": In(params.row_bits), "read_half": In(1),
            "mantissa": Out(16), "places": Out(6),
            "release": In(1), "release_half": In(1),
        }

    @property
    def latency(self):
        """Cycles from ``read_en`` to ``mantissa``: memory, output register."""
        return 2

    @property
    def throughput(self):
        return "one word a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        kept = data.StructLayout({"mantissa": 16, "places": 6})
        m.submodules.memory = memory = Memory(shape=kept, depth=2 << p.row_bits, init=[])
        write, read = memory.write_port(), memory.read_port()

        filling, used = Signal(init=1), Signal(2)
        have = Array([Signal(p.row_count_bits, name=f"have_{k}") for k in range(2)])
        start, target, take = Signal(), Signal(), Signal()
        m.d.comb += [
            start.eq(self.i.p.row == 0),
            target.eq(filling ^ start),
            self.i.ready.eq(~start | ~used.bit_select(~filling, 1)),
            take.eq(self.i.valid & self.i.ready),
            write.en.eq(take),
            write.addr.eq(Cat(self.i.p.row, target)),
            write.data.mantissa.eq(Mux(self.i.p.zero, 0, self.i.p.mantissa)),
            write.data.places.eq(self.i.p.places),
            self.have.eq(have[self.half]),
            read.en.eq(self.read_en),
            read.addr.eq(Cat(self.read_row, self.read_half)),
        ]
        m.d.sync += [self.mantissa.eq(read.data.mantissa), self.places.eq(read.data.places)]
        with m.If(take):
            m.d.sync += [filling.eq(target), have[target].eq(have[target] + 1),
                         used.bit_select(target, 1).eq(1)]
        with m.If(self.release):
            m.d.sync += [have[self.release_half].eq(0),
                         used.bit_select(self.release_half, 1).eq(0)]
        return m
