"""Mask rows from key order into the order of a placement (APT 4.4)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent


__all__ = ["MaskGather", "table_beat"]


def table_beat(params):
    """One slot of a placement table: for each bank the word of the row and the lane in it."""
    return data.ArrayLayout(data.StructLayout({
        "word": params.slot_bits, "lane": params.bank_bits,
    }), params.lanes)


class MaskGather(AptComponent):
    """Permutes the bits of mask rows: bit ``bank`` of output word ``slot`` is key ``table[slot]
    [bank]``, that is ``lanes * word + lane`` of what the table's beat holds for the bank.

    A tile is ``tile_q`` rows of ``slots`` words and takes one table of ``slots`` beats. Rows and
    tables are double-buffered: a row is gathered while the next is filled, and the next tile's
    table is loaded at any time. One word a cycle in and out; the first word of a row comes out
    :attr:`latency` cycles after its last went in. While ``o`` is stalled, what the buffers hold
    stays. Bits of positions from ``tile_k`` on come out 0; bits of the last input word beyond
    ``tile_k`` are not looked at by a table that is a permutation.

    Every bank has a copy of the two rows, so that each can read a word of its own: 16-deep
    distributed memory takes less than half the area of ``lanes`` multiplexers over a whole row.

    Parameters
    ----------
    params : :class:`AptParams`
        ``lanes``, ``tile_q`` and ``tile_k`` matter.

    Members
    -------
    i : :py:`In(stream.Signature(params.lanes))`
        Mask words of a row in key order.
    table : :py:`In(stream.Signature(table_beat(params)))`
        Placement of a tile, slot by slot; every key of the tile once.
    o : :py:`Out(stream.Signature(params.lanes))`
        Mask words by slot.
    """

    def _ports(self, params):
        return {
            "i": In(stream.Signature(params.lanes)),
            "table": In(stream.Signature(table_beat(params))),
            "o": Out(stream.Signature(params.lanes)),
        }

    @property
    def latency(self):
        """Cycles from the last word of a row to its first output word: row memory written, table
        read, row read."""
        return 3

    @property
    def throughput(self):
        return f"{self._params.lanes} elements a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        last_slot = p.slots - 1

        def counter(name, limit, enable):
            """A counter that wraps after ``limit`` and whether it stands there."""
            count, at_end = Signal(range(limit + 1), name=name), Signal(name=f"{name}_at_end")
            m.d.comb += at_end.eq(count == limit)
            with m.If(enable):
                m.d.sync += count.eq(Mux(at_end, 0, count + 1))
            return count, at_end

        # Fill: rows and tables go alternately into the two halves of their memories.
        row_full, table_full = Signal(2), Signal(2)
        fill_half, load_half = Signal(), Signal()
        filled, loaded = Signal(), Signal()
        fill_word, fill_end = counter("fill_word", last_slot, filled)
        load_slot, load_end = counter("load_slot", last_slot, loaded)
        m.d.comb += [
            filled.eq(self.i.valid & self.i.ready),
            loaded.eq(self.table.valid & self.table.ready),
            self.table.ready.eq(~table_full.bit_select(load_half, 1)),
        ]
        with m.If(filled & fill_end):
            m.d.sync += [row_full.bit_select(fill_half, 1).eq(1), fill_half.eq(~fill_half)]
        with m.If(loaded & load_end):
            m.d.sync += [table_full.bit_select(load_half, 1).eq(1), load_half.eq(~load_half)]

        # Stage 1: read the table's next slot.
        read_half, use_half = Signal(), Signal()
        issue, gather = Signal(), Signal()
        read_slot, slot_end = counter("read_slot", last_slot, issue)
        _, row_end = counter("read_row", p.tile_q - 1, issue & slot_end)
        pick_valid = Signal()
        pick = Signal(table_beat(p), reset_less=True)
        pick_half = Signal(reset_less=True)
        pick_end = Signal(reset_less=True)
        m.submodules.table_memory = tables = Memory(shape=table_beat(p), init=[],
                                                    depth=2 << p.slot_bits)
        load, use = tables.write_port(), tables.read_port(domain="comb")
        m.d.comb += [
            load.addr.eq(Cat((load_slot | C(0, p.slot_bits))[:p.slot_bits], load_half)),
            load.data.eq(self.table.payload),
            load.en.eq(loaded),
            use.addr.eq(Cat((read_slot | C(0, p.slot_bits))[:p.slot_bits], use_half)),
            issue.eq((~pick_valid | gather) & row_full.bit_select(read_half, 1)
                     & table_full.bit_select(use_half, 1)),
        ]
        with m.If(issue):
            m.d.sync += [pick_valid.eq(1), pick.eq(use.data), pick_half.eq(read_half),
                         pick_end.eq(slot_end)]
            with m.If(slot_end):
                m.d.sync += [row_full.bit_select(read_half, 1).eq(0), read_half.eq(~read_half)]
                with m.If(row_end):
                    m.d.sync += [table_full.bit_select(use_half, 1).eq(0), use_half.eq(~use_half)]
        with m.Elif(gather):
            m.d.sync += pick_valid.eq(0)

        # Stage 2: every bank reads its word and picks its bit. The row's half counts as free
        # from the issue of its last slot on, so while that is stalled here it must not be filled.
        blocked = Signal()
        m.d.comb += [
            gather.eq(~self.o.valid | self.o.ready),
            blocked.eq(pick_valid & ~gather & (pick_half == fill_half)),
            self.i.ready.eq(~row_full.bit_select(fill_half, 1) & ~blocked),
        ]
        with m.If(gather):
            m.d.sync += self.o.valid.eq(pick_valid)
        tail = p.tile_k - last_slot * p.lanes  # keys in the last slot
        for bank in range(p.lanes):
            rows = Memory(shape=p.lanes, init=[], depth=2 << p.slot_bits)
            m.submodules[f"row_memory_{bank}"] = rows
            write, read = rows.write_port(), rows.read_port(domain="comb")
            bit = read.data.bit_select(pick[bank].lane, 1)
            m.d.comb += [
                write.addr.eq(Cat((fill_word | C(0, p.slot_bits))[:p.slot_bits], fill_half)),
                write.data.eq(self.i.payload),
                write.en.eq(filled),
                read.addr.eq(Cat(pick[bank].word, pick_half)),
            ]
            with m.If(gather):
                m.d.sync += self.o.payload[bank].eq(bit & ~pick_end if bank >= tail else bit)

        return m
