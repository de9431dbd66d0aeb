"""Tables of the serial dataflow, and powers of two of logits."""

from amaranth import *
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out

from ..component import AptComponent
from .program import tables


__all__ = ["PowerUnit"]


class PowerUnit(AptComponent):
    """P' of a logit, ``2**(z - maximum)``, and the sum of them; entries of tables.

    A power takes three cycles: a word comes with ``look``, its P' is there one cycle later.

    Parameters
    ----------
    params : :class:`AptParams`
        ``exp2`` matters.

    Members
    -------
    clear : :py:`In(1)`
        The sum begins anew.
    maximum : :py:`In(signed(16))`
    word : :py:`In(16)`
        A logit not above it.
    look : :py:`In(1)`
        Look up the word's P'.
    add : :py:`In(1)`
        Add it, in the cycle after.
    p : :py:`Out(16)`
        P', U1.15.
    sum : :py:`Out(params.total_bits)`
        Sum with this P'.
    table : :py:`In(2)`
    at : :py:`In(8)`
    read : :py:`In(1)`
        Read an entry of a table, see :class:`.isa.Table`.
    entry : :py:`Out(16)`
        The entry, in the next cycle.
    """

    def _ports(self, params):
        return {
            "clear": In(1), "maximum": In(signed(16)), "word": In(signed(16)), "look": In(1),
            "add": In(1), "p": Out(16), "sum": Out(params.total_bits),
            "table": In(2), "at": In(8), "read": In(1), "entry": Out(16),
        }

    @property
    def latency(self):
        """Cycles from a word or an address to its power or entry."""
        return 1

    @property
    def throughput(self):
        return "a word a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(shape=16, depth=768,
                                                   init=tables(self._params))
        port = words.read_port()
        u = Signal(16)
        m.d.comb += [
            u.eq(self.maximum - self.word),
            port.addr.eq(Mux(self.look, u[:8], Cat(self.at, self.table))),
            port.en.eq(self.look | self.read),
            self.entry.eq(port.data),
        ]
        places, zero = Signal(4, reset_less=True), Signal(reset_less=True)
        with m.If(self.look):
            m.d.sync += [places.eq(u[8:12]), zero.eq(u[12:].any())]

        # One bit more, to round half up.
        shifted = Signal(17)
        total = Signal.like(self.sum, reset_less=True)
        m.d.comb += [
            shifted.eq(Cat(0, port.data) >> places),
            self.p.eq((shifted[1:] + shifted[0]) & (~zero).replicate(16)),
            self.sum.eq(total + self.p),
        ]
        with m.If(self.clear):
            m.d.sync += total.eq(0)
        with m.Elif(self.add):
            m.d.sync += total.eq(self.sum)
        return m
