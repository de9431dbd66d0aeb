"""Sums of P times V of rows in a tile, out of the sums of their runs (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .flush_bus import FlushBus
from .pv_words import OWNERS, RING_SLOTS, row_done, run_sums, sums_address


__all__ = ["TileSums"]


class TileSums(AptComponent):
    """Adds up the runs of rows, ``multipliers`` columns a cycle.

    Each owner has a ring of ``RING_SLOTS`` rows. A row is offered on its owner's stream when its
    last run is in the memory. Its slot is used again once ``PvSequencer`` lets the run of a
    further row come, so credits say when, not this component: one a slot, given back when the
    slot has been read. :attr:`latency` cycles from a row's last run to the row's offer if the bus
    is idle. See :class:`FlushBus` for how runs may follow each other.

    Members
    -------
    run : 4 x :py:`In(run_sums(params))`
        Runs of each owner as they end.
    flush_done : :py:`Out(4)`
        An owner's oldest run is on its way out: credit for one more.
    row : 4 x :py:`Out(stream.Signature(row_done(params)))`
        Rows of each owner in order, one stream an owner: the others may go on while a row waits.
    read : :py:`In(sums_address(params))`
    sums : :py:`Out(data.ArrayLayout(signed(params.sum_bits), params.multipliers))`
        What ``read`` said the cycle before; columns beyond ``head_dim`` are of no use.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "run": In(run_sums(params)).array(OWNERS),
            "flush_done": Out(OWNERS),
            "row": Out(stream.Signature(row_done(params))).array(OWNERS),
            "read": In(sums_address(params)),
            "sums": Out(data.ArrayLayout(signed(params.sum_bits), params.multipliers)),
        }

    @property
    def latency(self):
        """Cycles from ``run.valid`` of a row's last run to ``row.valid``: bus, its other lanes,
        read and shift, add, write."""
        return 4 + (self._params.owner_lanes - 1) + 3

    @property
    def throughput(self):
        return f"{self._params.multipliers} sums a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        layout = self.sums.shape()

        m.submodules.bus = bus = FlushBus(p)
        for outer, inner in zip(self.run, bus.run, strict=True):
            m.d.comb += inner.eq(outer)
        m.d.comb += self.flush_done.eq(bus.flush_done)

        # Distributed memory: a write, a read to add to and one for who wants the sums.
        m.submodules.memory = memory = Memory(
            shape=layout, depth=1 << len(self.read.as_value()), init=[])
        write, own, other = (memory.write_port(), memory.read_port(domain="comb"),
                             memory.read_port(domain="comb"))
        sums = Signal(layout, reset_less=True)
        m.d.comb += [other.addr.eq(self.read), self.sums.eq(sums)]
        m.d.sync += sums.eq(other.data)

        # Read and shift.
        address = Signal(sums_address(p))
        word, ends = bus.o, Signal()
        lane_bits = ceil_log2(p.owner_lanes)
        m.d.comb += [
            address.word.eq(Cat(word.lane[:lane_bits], word.tag.pass_)),
            address.slot.eq(word.slot),
            address.owner.eq(word.owner),
            own.addr.eq(address),
            ends.eq(word.valid & word.end & word.tag.row_last),
        ]
        before, shifted = Signal(layout, reset_less=True), Signal(layout, reset_less=True)
        for old, more, stored, value in zip(before, shifted, own.data, word.values, strict=True):
            low, middle, high = (Signal(signed(p.sum_bits), name=f"level_{level}")
                                 for level in range(3))
            m.d.comb += [signal.eq(value << level * p.segment_bits)
                         for level, signal in enumerate((low, middle, high))]
            m.d.sync += [
                old.eq(Mux(word.tag.row_first, 0, stored)),
                more.eq(Mux(word.tag.shift[1], high, Mux(word.tag.shift[0], middle, low))),
            ]

        # Add, and write.
        added = Signal(layout, reset_less=True)
        for new, old, more in zip(added, before, shifted, strict=True):
            m.d.sync += new.eq(old + more)
        place = data.StructLayout({"ends": 1, "address": sums_address(p),
                                   "buffer": 1, "row_block": word.tag.row_block.shape()})
        places, valid = Signal(place), word.valid
        m.d.comb += [places.ends.eq(ends), places.address.eq(address),
                     places.buffer.eq(word.tag.buffer), places.row_block.eq(word.tag.row_block)]
        for stage in range(2):
            valid_then = Signal(name=f"valid_{stage}")
            then = Signal(place, name=f"place_{stage}", reset_less=True)
            m.d.sync += [valid_then.eq(valid), then.eq(places)]
            valid, places = valid_then, then
        m.d.comb += [write.en.eq(valid), write.addr.eq(places.address), write.data.eq(added)]

        # Rows that are complete.
        for owner, row in enumerate(self.row):
            tags = [Signal(row_done(p), name=f"row_{owner}_{slot}", reset_less=True)
                    for slot in range(RING_SLOTS)]
            full = Signal(RING_SLOTS, name=f"complete_{owner}")
            oldest = Signal(ceil_log2(RING_SLOTS), name=f"oldest_{owner}")
            m.d.comb += [
                row.valid.eq(full.bit_select(oldest, 1)),
                row.p.eq(Array(tag.as_value() for tag in tags)[oldest]),
                row.p.slot.eq(oldest),
            ]
            with m.If(row.valid & row.ready):
                m.d.sync += [oldest.eq(oldest + 1), full.bit_select(oldest, 1).eq(0)]
            for slot, tag in enumerate(tags):
                with m.If(valid & places.ends & (places.address.owner == owner)
                          & (places.address.slot == slot)):
                    m.d.sync += [full[slot].eq(1), tag.buffer.eq(places.buffer),
                                 tag.row_block.eq(places.row_block)]
        return m
