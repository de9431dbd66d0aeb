"""Sums of P times V of rows in a tile, out of the sums of their runs (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.stream import travel_along

from .component import AptComponent
from .flush_bus import FlushBus
from .pv_words import OWNERS, RING_SLOTS, row_done, run_sums, sums_address
from .sum_columns import SumColumns


__all__ = ["TileSums"]

#: Columns that share the registers of what they do.
_GROUP = 4


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
        What ``read`` said two cycles before; columns beyond ``head_dim`` are of no use.
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
        :class:`SumColumns` and its write."""
        return 3 + (self._params.owner_lanes - 1) + 4

    @property
    def throughput(self):
        return f"{self._params.multipliers} sums a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params

        m.submodules.bus = bus = FlushBus(p)
        for outer, inner in zip(self.run, bus.run, strict=True):
            m.d.comb += inner.eq(outer)
        m.d.comb += self.flush_done.eq(bus.flush_done)

        # What becomes of a word of the bus; each group of columns registers it.
        word, address = bus.o, Signal(sums_address(p))
        lane_bits = ceil_log2(p.owner_lanes)
        m.d.comb += [
            address.word.eq(Cat(word.lane[:lane_bits], word.tag.pass_)),
            address.slot.eq(word.slot),
            address.owner.eq(word.owner),
        ]
        for first in range(0, p.multipliers, _GROUP):
            columns = min(_GROUP, p.multipliers - first)
            m.submodules[f"columns_{first // _GROUP}"] = group = SumColumns(p, columns)
            m.d.comb += [
                group.step.valid.eq(word.valid),
                group.step.address.eq(address),
                group.step.first.eq(word.tag.row_first),
                group.step.shift.eq(word.tag.shift),
                group.read.eq(self.read),
            ]
            for k in range(columns):
                m.d.comb += [group.values[k].eq(word.values[first + k]),
                             self.sums[first + k].eq(group.sums[k])]

        # What goes along until the sum is written.
        place = data.StructLayout({"address": sums_address(p), "buffer": 1,
                                   "row_block": word.tag.row_block.shape()})
        places = Signal(place)
        m.d.comb += [places.address.eq(address), places.buffer.eq(word.tag.buffer),
                     places.row_block.eq(word.tag.row_block)]
        ends, places = travel_along(m, 1, group.latency,
                                    word.valid & word.end & word.tag.row_last,
                                    places=places.as_value())
        places = data.View(place, places)

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
                with m.If(ends & (places.address.owner == owner)
                          & (places.address.slot == slot)):
                    m.d.sync += [full[slot].eq(1), tag.buffer.eq(places.buffer),
                                 tag.row_block.eq(places.row_block)]
        return m
