"""Flush register of a lane (quad dataflow)."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from .component import AptComponent


__all__ = ["FlushLane"]


class FlushLane(AptComponent):
    """Holds a lane's sums of a run until it is the owner's turn, then shifts to the lane before.

    What is to be done comes a cycle ahead and is registered here: so much hangs on it that every
    lane has a register of its own.

    Latency: sums are held in the cycle after the one in which they are taken, and are out in the
    next, or with ``first`` another one later. Throughput: a word a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.
    first : :class:`bool`
        It is the lane whose sums leave: ``o`` is registered, and 0 when it is not the owner's turn.

    Members
    -------
    load, turn : :py:`In(1)`
        In the next cycle ``sums`` are taken; or all lanes of the owner move on by one.
    sums, next : :py:`In(data.ArrayLayout(signed(params.run_bits), params.multipliers))`
        From the lane, and what the next lane holds.
    o : :py:`Out(...)`
        What is held.
    """

    def __init__(self, params, *, first):
        self._first = first
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        values = data.ArrayLayout(signed(params.run_bits), params.multipliers)
        return {"load": In(1), "turn": In(1), "sums": In(values), "next": In(values),
                "o": Out(values)}

    @property
    def latency(self):
        """Cycles from ``sums`` to ``o``, its turn following at once."""
        return 1 + self._first

    @property
    def throughput(self):
        return "a word a cycle"

    def elaborate(self, platform):
        m = Module()
        load, turn = Signal(), Signal()
        held = Signal(self.sums.shape(), reset_less=True)
        m.d.sync += [load.eq(self.load), turn.eq(self.turn)]
        with m.If(load):
            m.d.sync += held.eq(self.sums)
        with m.Elif(turn):
            m.d.sync += held.eq(self.next)
        if not self._first:
            m.d.comb += self.o.eq(held)
            return m
        # Zero by the register's synchronous reset.
        leaving = Signal.like(held, reset_less=True)
        m.d.sync += leaving.eq(0)
        with m.If(turn):
            m.d.sync += leaving.eq(held)
        m.d.comb += self.o.eq(leaving)
        return m
