"""Sums, comparisons and logic of the serial dataflow's processor."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .isa import Op


__all__ = ["Alu"]

_LOGIC = {Op.AND: lambda x, y: x & y, Op.OR: lambda x, y: x | y, Op.XOR: lambda x, y: x ^ y}


class Alu(wiring.Component):
    """One operation on two words, of those without a memory or a multiplier. No registers.

    Members
    -------
    op : :py:`In(6)`
        :class:`.isa.Op`; whatever is no such operation is an addition.
    subtract : :py:`In(1)`
        ``total`` is the difference.
    x, y : :py:`In(32)`
        Operands.
    total : :py:`Out(32)`
        Their sum or difference.
    less, equal : :py:`Out(1)`
        Signed comparison, with ``subtract``.
    result : :py:`Out(32)`
        The operation's.
    """

    op: In(6)
    subtract: In(1)
    x: In(32)
    y: In(32)
    total: Out(32)
    less: Out(1)
    equal: Out(1)
    result: Out(32)

    @property
    def latency(self):
        """Cycles from operands to the result."""
        return 0

    @property
    def throughput(self):
        return "an operation a cycle"

    def elaborate(self, platform):
        m = Module()
        inverted, total = Signal(33), Signal(33)
        m.d.comb += [
            inverted.eq(self.y.as_signed() ^ self.subtract.replicate(33)),
            total.eq(self.x.as_signed() + inverted + self.subtract),
            self.total.eq(total),
            self.less.eq(total[-1]),
            self.equal.eq(total[:32] == 0),
        ]
        with m.Switch(self.op):
            for op, function in _LOGIC.items():
                with m.Case(op):
                    m.d.comb += self.result.eq(function(self.x, self.y))
            with m.Case(Op.MAX):
                m.d.comb += self.result.eq(Mux(self.less, self.y, self.x))
            with m.Case(Op.MIN):
                m.d.comb += self.result.eq(Mux(self.less, self.x, self.y))
            with m.Default():
                m.d.comb += self.result.eq(self.total)
        return m
