"""A register between two streams, small enough to prove in a second."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Toy(wiring.Component):
    i: In(stream.Signature(2))
    o: Out(stream.Signature(2))

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m
