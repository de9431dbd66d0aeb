"""Tile sums of a few columns (quad dataflow)."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .pv_words import sums_address


__all__ = ["SumColumns", "sum_step"]


def sum_step(params):
    """What becomes of a word of sums: where it is added, to zeros if it is the row's ``first``, and
    by how many segments it is shifted."""
    return data.StructLayout({"valid": 1, "address": sums_address(params), "first": 1, "shift": 2})


class SumColumns(AptComponent):
    """Adds words to the sums in a memory: read and shift, add, write.

    ``step`` and ``read`` are registered here: each group of columns has registers of its own for
    what all of them do. A sum that is added to is written by the time that it can be read for
    another, three words later.

    Throughput: a word a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.
    columns : :class:`int`
        How many.

    Members
    -------
    step : :py:`In(sum_step(params))`
        What to do, with the words ``values``.
    values : :py:`In(data.ArrayLayout(signed(params.run_bits), columns))`
    read : :py:`In(sums_address(params))`
    sums : :py:`Out(data.ArrayLayout(signed(params.sum_bits), columns))`
        What ``read`` said two cycles before.
    """

    def __init__(self, params, columns):
        self._columns = columns
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "step": In(sum_step(params)),
            "values": In(data.ArrayLayout(signed(params.run_bits), self._columns)),
            "read": In(sums_address(params)),
            "sums": Out(data.ArrayLayout(signed(params.sum_bits), self._columns)),
        }

    @property
    def latency(self):
        """Cycles from a word to the write of its sum, which can be read in the cycle after."""
        return 3

    @property
    def throughput(self):
        return "a word a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        layout = self.sums.shape()

        step = Signal(sum_step(p), reset_less=True)
        values = Signal.like(self.values, reset_less=True)
        wanted = Signal(sums_address(p), reset_less=True)
        m.d.sync += [step.eq(self.step), values.eq(self.values), wanted.eq(self.read)]

        # Distributed memory: a write, a read to add to and one for who wants the sums.
        m.submodules.memory = memory = Memory(
            shape=layout, depth=1 << len(self.read.as_value()), init=[])
        write, own, other = (memory.write_port(), memory.read_port(domain="comb"),
                             memory.read_port(domain="comb"))
        sums = Signal(layout, reset_less=True)
        m.d.comb += [other.addr.eq(wanted), own.addr.eq(step.address), self.sums.eq(sums)]
        m.d.sync += sums.eq(other.data)

        before, shifted = Signal(layout, reset_less=True), Signal(layout, reset_less=True)
        for old, more, stored, value in zip(before, shifted, own.data, values, strict=True):
            low, middle, high = (Signal(signed(p.sum_bits), name=f"level_{level}")
                                 for level in range(3))
            m.d.comb += [signal.eq(value << level * p.segment_bits)
                         for level, signal in enumerate((low, middle, high))]
            m.d.sync += [
                old.eq(Mux(step.first, 0, stored)),
                more.eq(Mux(step.shift[1], high, Mux(step.shift[0], middle, low))),
            ]

        added = Signal(layout, reset_less=True)
        for new, old, more in zip(added, before, shifted, strict=True):
            m.d.sync += new.eq(old + more)
        valid, address = [Signal(name=f"valid_{k}") for k in range(3)], [step.address]
        m.d.sync += [valid[0].eq(self.step.valid), valid[1].eq(valid[0]), valid[2].eq(valid[1])]
        for stage in range(2):
            then = Signal(sums_address(p), name=f"address_{stage}", reset_less=True)
            m.d.sync += then.eq(address[-1])
            address.append(then)
        m.d.comb += [write.en.eq(valid[2]), write.addr.eq(address[2]), write.data.eq(added)]
        return m
