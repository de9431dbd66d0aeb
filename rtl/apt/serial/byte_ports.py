"""Bytes of the memory port: words of one to three that are read, of one or two written."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


__all__ = ["ByteReader", "ByteWriter"]


class ByteReader(wiring.Component):
    """Puts bytes together, the lowest first.

    Members
    -------
    enable : :py:`In(1)`
        Take bytes; until ``last`` it must be high and ``more`` must hold.
    more : :py:`In(2)`
        Bytes of the word beyond the first: 0 to 2.
    i : :py:`In(stream.Signature(8))`
    word : :py:`Out(24)`
        The word, with ``last``.
    last : :py:`Out(1)`
        Its last byte is taken.
    """

    enable: In(1)
    more: In(2)
    i: In(stream.Signature(8))
    word: Out(24)
    last: Out(1)

    @property
    def latency(self):
        """Cycles from a word's last byte to the word."""
        return 0

    @property
    def throughput(self):
        return "a byte a cycle"

    def elaborate(self, platform):
        m = Module()
        number, before = Signal(2), Signal(16, reset_less=True)
        taken = Signal()
        three = self.more[1].replicate(8)
        m.d.comb += [
            self.i.ready.eq(self.enable),
            taken.eq(self.i.valid & self.enable),
            self.last.eq(taken & (number == self.more)),
            self.word.eq(Cat(Mux(self.more == 0, self.i.p, before[:8]),
                             Mux(self.more == 1, self.i.p, before[8:] & three),
                             self.i.p & three)),
        ]
        with m.If(taken):
            m.d.sync += number.eq(Mux(self.last, 0, number + 1))
            with m.If(number == 0):
                m.d.sync += before[:8].eq(self.i.p)
            with m.Else():
                m.d.sync += before[8:].eq(self.i.p)
        return m


class ByteWriter(wiring.Component):
    """Takes words apart, the lowest byte first.

    Members
    -------
    start : :py:`In(1)`
        Take ``word``; only while not ``busy``.
    more : :py:`In(1)`
        The word has two bytes.
    word : :py:`In(16)`
    busy : :py:`Out(1)`
        Bytes are left.
    o : :py:`Out(stream.Signature(8))`
    """

    start: In(1)
    more: In(1)
    word: In(16)
    busy: Out(1)
    o: Out(stream.Signature(8))

    @property
    def latency(self):
        """Cycles from a word to its first byte."""
        return 1

    @property
    def throughput(self):
        return "a byte a cycle, and a cycle more a word"

    def elaborate(self, platform):
        m = Module()
        left, word = Signal(2), Signal(16, reset_less=True)
        m.d.comb += [self.busy.eq(left != 0), self.o.valid.eq(self.busy), self.o.p.eq(word[:8])]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [left.eq(left - 1), word.eq(word[8:])]
        with m.If(self.start):
            m.d.sync += [left.eq(1 + self.more), word.eq(self.word)]
        return m
