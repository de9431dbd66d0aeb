"""Properties of the address translator and of the row gather in front of it."""

from functools import partial

from amaranth.hdl import Array, Cat, Mux, Signal

from gen.proofs import Fault, Proof, Spec
from golden.apt.params import AptParams


__all__ = ["PROOFS", "AddressTranslatorSpec", "MaskGatherSpec"]


def _count(m, name, transfer, limit):
    """Position of the next transfer in a run of ``limit``, and whether it ends the run."""
    count, ends = Signal(range(limit), name=name), Signal(name=f"{name}_ends")
    m.d.comb += ends.eq(count == limit - 1)
    with m.If(transfer):
        m.d.sync += count.eq(Mux(ends, 0, count + 1))
    return count, ends


def _transfer(m, name, stream):
    """Whether the stream transfers in this cycle."""
    transfer = Signal(name=name)
    m.d.comb += transfer.eq(stream.valid & stream.ready)
    return transfer


def _position(m, name, p, transfer):
    """Tile (modulo 8), row and slot of a stream's next word, and whether it ends its tile."""
    slot, row_ends = _count(m, f"{name}_slot", transfer, p.slots)
    row, rows_end = _count(m, f"{name}_row", transfer & row_ends, p.tile_q)
    tile, tile_ends = Signal(3, name=f"{name}_tile"), Signal(name=f"{name}_tile_ends")
    m.d.comb += tile_ends.eq(row_ends & rows_end)
    with m.If(transfer & tile_ends):
        m.d.sync += tile.eq(tile + 1)
    return tile, row, slot, tile_ends


class AddressTranslatorSpec(Spec):
    """Follows one element, any, from the mask to its line (``placement = modulo``).

    Its tile, row, slot and bank are the solver's choice. ``set``: it comes out only if it is set
    in the mask. ``once``: it does not come out again. ``all``: with its tile's last line it has
    come out, and the tile has been scanned. ``order``: what its bank emits comes by row, and by
    slot within a row. ``window``: while it is left, no bank of its tile is ``window`` or more rows
    ahead. ``base``: the line names the oldest row left: a row that is in the line, and no later
    one than the element's while that is left. ``holds``: a stalled line stays. ``progress``:
    while words are there and lines are taken, no more than a tile's words and the latency go by
    without a line. ``drains``: between tiles, while lines are taken, one comes within the
    latency until all tiles are through.
    """

    properties = ("set", "once", "all", "order", "window", "base", "holds", "progress", "drains")
    covers = ("second tile", "rows apart", "scanner held up", "empty tile", "partial line")

    def specify(self, m):
        dut, p, window = self.dut, self.dut.params, self.dut.window
        m.d.comb += [
            dut.i.payload.eq(self.free(Signal(p.lanes, name="word"))),
            dut.i.valid.eq(self.free(Signal(name="word_valid"))),
            dut.o.ready.eq(self.free(Signal(name="line_ready"))),
        ]
        scanned, issued = _transfer(m, "scanned", dut.i), _transfer(m, "issued", dut.o)
        tile, row = self.constant(m, "tile", 3), self.constant(m, "row", p.row_bits)
        slot, bank = self.constant(m, "slot", p.slot_bits), self.constant(m, "bank", p.bank_bits)
        self.assume(m, (row < p.tile_q) & (slot < p.slots) & (bank < p.lanes))

        # The element in the mask. Tiles are counted modulo 8: fewer fit in the proof's depth.
        in_tile, in_row, in_slot, tile_ends = _position(m, "in", p, scanned)
        complete, is_set, is_out = Signal(), Signal(), Signal()
        with m.If(scanned & (in_tile == tile)):
            with m.If((in_row == row) & (in_slot == slot)):
                # Bits beyond the tile's keys are none of its elements, whatever they hold.
                m.d.sync += is_set.eq(dut.i.payload.bit_select(bank, 1)
                                      & (slot * p.lanes + bank < p.tile_k))
            with m.If(tile_ends):
                m.d.sync += complete.eq(1)

        # The tile's lines.
        out_tile = Signal(3)
        mine, leaves, ahead, in_base = Signal(), Signal(), Signal(), Signal()
        banks = list(dut.o.p.banks)
        with m.If(issued & dut.o.p.last):
            m.d.sync += out_tile.eq(out_tile + 1)
        chosen = Array(item.as_value() for item in banks)[bank]
        chosen_valid, chosen_row = chosen[0], chosen[1:1 + p.row_bits]
        chosen_slot = chosen[1 + p.row_bits:]
        place, before, any_before = Signal(p.row_bits + p.slot_bits), Signal.like(chosen), Signal()
        m.d.comb += [
            mine.eq(issued & (out_tile == tile)),
            leaves.eq(mine & chosen_valid & (chosen_row == row) & (chosen_slot == slot)),
            ahead.eq(Cat(item.valid & (item.row >= row + window) for item in banks).any()),
            in_base.eq(Cat(item.valid & (item.row == dut.o.p.base) for item in banks).any()),
            place.eq(Cat(chosen_slot, chosen_row)),
        ]
        with m.If(leaves):
            m.d.sync += is_out.eq(1)
            self.check(m, "set", is_set)
            self.check(m, "once", ~is_out)
        with m.If(mine & chosen_valid):
            m.d.sync += [any_before.eq(1), before.eq(place)]
            self.check(m, "order", ~any_before | (place > before))
        with m.If(mine):
            with m.If(is_set & ~is_out):
                self.check(m, "window", ~ahead)
                self.check(m, "base", in_base & (dut.o.p.base <= row))
            with m.If(dut.o.p.last):
                self.check(m, "all", complete & (~is_set | is_out | leaves))

        self.check_holds(m, "holds", dut.o)

        # Progress. A tile has a line, so none is missing for longer than a tile takes to scan.
        bound = p.tile_q * p.slots + dut.latency
        quiet = Signal(range(bound + 2))
        with m.If(dut.i.valid & dut.o.ready & ~issued):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += quiet.eq(0)
        self.check(m, "progress", quiet <= bound)

        # Between tiles the lines of what has been scanned are all complete.
        calm = Signal(range(dut.latency + 2))
        with m.If((in_slot == 0) & (in_row == 0) & ~scanned & (in_tile != out_tile)
                  & dut.o.ready & ~issued):
            m.d.sync += calm.eq(calm + 1)
        with m.Else():
            m.d.sync += calm.eq(0)
        self.check(m, "drains", calm <= dut.latency)

        valid = Cat(item.valid for item in banks)
        apart = Cat(item.valid & (item.row != dut.o.p.base) for item in banks).any()
        self.cover(m, "second tile", (out_tile == 1) & leaves)
        self.cover(m, "rows apart", mine & apart)
        self.cover(m, "scanner held up", dut.i.valid & ~dut.i.ready)
        self.cover(m, "empty tile", mine & ~valid.any())
        self.cover(m, "partial line", mine & valid.any() & ~valid.all())


class MaskGatherSpec(Spec):
    """Follows one bit, any, of one word: tile, row, slot and bank are the solver's choice.

    ``placed``: it is the bit of the key that the tile's table has in that place, 0 beyond
    ``tile_k``. ``holds``: a stalled word stays. ``progress``: while words and tables are there
    and words are taken, no more than a row's words and the latency go by without a word.
    """

    properties = ("placed", "holds", "progress")
    covers = ("second table", "row waits", "last key")

    def specify(self, m):
        dut, p = self.dut, self.dut.params
        m.d.comb += [
            dut.i.payload.eq(self.free(Signal(p.lanes, name="word"))),
            dut.i.valid.eq(self.free(Signal(name="word_valid"))),
            dut.table.payload.as_value().eq(self.free(Signal(dut.table.payload.shape().size,
                                                             name="beat"))),
            dut.table.valid.eq(self.free(Signal(name="beat_valid"))),
            dut.o.ready.eq(self.free(Signal(name="word_ready"))),
        ]
        filled, loaded = _transfer(m, "filled", dut.i), _transfer(m, "loaded", dut.table)
        gone = _transfer(m, "gone", dut.o)
        tile, row = self.constant(m, "tile", 3), self.constant(m, "row", p.row_bits)
        slot, bank = self.constant(m, "slot", p.slot_bits), self.constant(m, "bank", p.bank_bits)
        word, lane = self.constant(m, "key_word", p.slot_bits), self.constant(m, "key_lane",
                                                                              p.bank_bits)
        self.assume(m, (row < p.tile_q) & (slot < p.slots) & (bank < p.lanes))
        self.assume(m, (lane < p.lanes) & (word * p.lanes + lane < p.tile_k))

        # The table has the key (word, lane) in the place that is followed; else it is free.
        load_slot, table_ends = _count(m, "load_slot", loaded, p.slots)
        load_tile = Signal(3)
        with m.If(loaded & table_ends):
            m.d.sync += load_tile.eq(load_tile + 1)
        with m.If(dut.table.valid & (load_tile == tile) & (load_slot == slot)):
            for number, place in enumerate(dut.table.p):
                self.assume(m, (bank != number) | ((place.word == word) & (place.lane == lane)))

        # The key's bit in the row, and in the place.
        in_tile, in_row, in_word, _ = _position(m, "in", p, filled)
        out_tile, out_row, out_slot, _ = _position(m, "out", p, gone)
        bit, mine = Signal(), Signal()
        with m.If(filled & (in_tile == tile) & (in_row == row) & (in_word == word)):
            m.d.sync += bit.eq(dut.i.payload.bit_select(lane, 1))
        m.d.comb += mine.eq(gone & (out_tile == tile) & (out_row == row) & (out_slot == slot))
        with m.If(mine):
            beyond = slot * p.lanes + bank >= p.tile_k
            self.check(m, "placed", dut.o.payload.bit_select(bank, 1) == (bit & ~beyond))

        self.check_holds(m, "holds", dut.o)

        bound = p.slots + dut.latency
        quiet = Signal(range(bound + 2))
        with m.If(dut.i.valid & dut.table.valid & dut.o.ready & ~gone):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += quiet.eq(0)
        self.check(m, "progress", quiet <= bound)

        self.cover(m, "second table", mine & (tile == 1) & (out_row == p.tile_q - 1))
        self.cover(m, "row waits", dut.i.valid & ~dut.i.ready)
        self.cover(m, "last key", mine & (word * p.lanes + lane == p.tile_k - 1) & bit)


_PARAMS = AptParams(lanes=2, tile_q=4, tile_k=3, window_qk=3, window_pv=1, placement="modulo",
                    block_rows=1, block_cols=1)
_ROWS = AptParams(lanes=2, tile_q=3, tile_k=2, window_qk=2, window_pv=1, placement="modulo",
                  block_rows=1, block_cols=1)
_PLACED = AptParams(lanes=2, tile_q=2, tile_k=3, window_qk=1, window_pv=1, placement="balanced",
                    block_rows=1, block_cols=1)

_stream_proof = partial(Proof, inductive=("holds",), induction_depth=3)
_translator_proof = partial(_stream_proof, spec=AddressTranslatorSpec,
                            component="rtl.apt.address_translator:AddressTranslator")

PROOFS = [
    _translator_proof(
        name="address_translator",
        build=lambda component: component(_PARAMS),
        depth=16,
        cover_depth=22,
        faults=(
            Fault("set", "words.payload.eq(self.i.payload & kept)",
                  "words.payload.eq(self.i.payload)"),
            Fault("once", "store.o.ready.eq(fetch)", "store.o.ready.eq(self.o.ready)"),
            Fault("all", "put.eq(push & words.payload[bank])",
                  "put.eq(push & words.payload[bank] & ~(busy & tile_end))"),
            Fault("order", "write.data.slot.eq(slot)", "write.data.slot.eq(slot ^ 1)"),
            Fault("window", "left.eq(after - older[-1])", "left.eq(after)"),
            Fault("base", "line_write.data.base.eq(Mux(begin, row, newest_base))",
                  "line_write.data.base.eq(row)"),
            Fault("holds", "advance.eq(~self.o.valid | self.o.ready)", "advance.eq(1)"),
        ),
    ),
    # Small tiles: several of them, FIFOs that wrap, and the bounds of `progress` and `drains`,
    # lie within the depth.
    _translator_proof(
        name="address_translator_tiles",
        build=lambda component: component(_ROWS),
        depth=14,
        cover_depth=14,
        faults=(
            Fault("progress", "room.eq(~waiting[-1])", "room.eq(~waiting.any())"),
            Fault("drains", "busy.eq(~tile_end & (busy | begin))", "busy.eq(busy | begin)"),
        ),
    ),
    _stream_proof(
        name="mask_gather",
        component="rtl.apt.mask_gather:MaskGather",
        build=lambda component: component(_PLACED),
        spec=MaskGatherSpec,
        depth=16,
        cover_depth=16,
        faults=(
            Fault("placed", "blocked.eq(pick_valid & ~gather & (pick_half == fill_half))",
                  "blocked.eq(0)"),
            Fault("holds", "gather.eq(~self.o.valid | self.o.ready)", "gather.eq(1)"),
            Fault("progress", "row_full.bit_select(fill_half, 1).eq(1), fill_half.eq(~fill_half)",
                  "row_full.bit_select(fill_half, 1).eq(1)"),
        ),
    ),
]
