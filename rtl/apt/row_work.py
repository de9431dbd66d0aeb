"""Row by row work between softmax and PV: thresholds, state, running sums, factors of O."""

from amaranth import *
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.quad_shape import OWNERS
from rtl.common.stream import connect_streams

from .component import AptComponent
from .mask_generator import threshold_pair
from .panel_port import state_word
from .rescale import Rescale
from .row_words import factor_word, final_word, row_word
from .softmax_words import list_header
from .softmax_words import row_word as row_sums
from .tafa import Tafa
from .tile_walker import SHIFT_BITS


__all__ = ["RowWork", "row_tile"]

#: Block rows that may be between their sums and their lists: those that the P' slots hold, one on
#: the way to them and one on the way out.
_AHEAD = 8


def row_tile(params):
    """What the row work must know of a tile."""
    return data.StructLayout({
        "rows": params.row_count_bits, "first": 1, "last": 1, "has_state": 1,
        "code_prune": 16, "code_quant": 16, "shift": SHIFT_BITS})


class RowWork(AptComponent):
    """Feeds :class:`Tafa` with the sums of rows and :class:`Rescale` with the lengths of lists.

    Old state lies in two buffers of tiles (``s``) and two of query tiles (``c``, reference); the
    tile at hand uses them in turn. The sums of a row wait here until its list is complete, since
    only then it is known whether the row has an element in PV.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    tile : :py:`In(stream.Signature(row_tile(params)))`
        Tiles, in order.
    old_state, old_rows : :py:`In(...)`
        Writes of recalled state: a word of a row and tile, and one of a row.
    unit_v : :py:`In(stream.Signature(16))`
        ``log2`` of each tile's scale word of V, twelve fraction bits.
    sums : :py:`In(stream.Signature(row_sums(params)))`
        Of each block row of a tile that has rows.
    thresholds : :py:`Out(stream.Signature(...))`
        Their thresholds.
    header : :py:`In(stream.Signature(list_header(params)))`
        Lengths of lists, of every block row of a tile.
    factor : :py:`Out(stream.Signature(factor_word(params)))`
        For each row of a tile how O takes its sums.
    final : :py:`Out(stream.Signature(final_word(params)))`
        For each row of a query tile, with its last key tile, how O is normalized.
    state : :py:`Out(stream.Signature(state_word(params)))`
        New state: a word of each row of a tile.
    rows : :py:`Out(stream.Signature(row_word(params)))`
        New state: ``c`` and the reference of each row of a query tile.
    listed : :py:`Out(1)`
        Pulse: the oldest tile's factors are all out.
    """

    def _ports(self, params):
        row = range(params.tile_q)
        return {
            "tile": In(stream.Signature(row_tile(params))),
            "old_state": In(data.StructLayout({
                "valid": 1, "buffer": 1, "row": row, "s": signed(params.state_bits)})),
            "old_rows": In(data.StructLayout({
                "valid": 1, "buffer": 1, "row": row, "c": signed(16), "reference": signed(16)})),
            "unit_v": In(stream.Signature(16)),
            "sums": In(stream.Signature(row_sums(params))),
            "thresholds": Out(stream.Signature(data.ArrayLayout(threshold_pair(), OWNERS))),
            "header": In(stream.Signature(list_header(params))),
            "factor": Out(stream.Signature(factor_word(params))),
            "final": Out(stream.Signature(final_word(params))),
            "state": Out(stream.Signature(state_word(params))),
            "rows": Out(stream.Signature(row_word(params))),
            "listed": Out(1),
        }

    def _old(self, m, row, query_buffer, tile_buffer):
        """Old words of a row, two cycles after ``row`` is there."""
        params = self._params
        depth = 2 << params.row_bits
        m.submodules.old_state = states = memory.Memory(
            shape=signed(params.state_bits), depth=depth, init=[])
        m.submodules.old_rows = rows = memory.Memory(shape=32, depth=depth, init=[])
        words = []
        for one, store, data_in, half in (
                (self.old_state, states, self.old_state.s, tile_buffer),
                (self.old_rows, rows, Cat(self.old_rows.c, self.old_rows.reference),
                 query_buffer)):
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.addr.eq(Cat(one.row, one.buffer)),
                write.data.eq(data_in),
                write.en.eq(one.valid),
                read.addr.eq(Cat(row, half)),
            ]
            words.append(read.data)
        return words

    def elaborate(self, platform):
        m = Module()
        params = self._params

        m.submodules.tafa = tafa = Tafa(params)
        m.submodules.rescale = rescale = Rescale(params)
        m.submodules.tiles = tiles = fifo.SyncFIFO(width=len(self.tile.p.as_value()), depth=4)
        m.submodules.waiting = waiting = fifo.SyncFIFOBuffered(
            width=len(self.sums.p.as_value()), depth=_AHEAD)
        m.submodules.units = units = fifo.SyncFIFO(width=16, depth=2)
        connect_streams(m, inner=rescale.row_o, outer=tafa.row_i)

        # A tile is announced to both sides at once.
        tafa_tile = Signal(row_tile(params), reset_less=True)
        tafa_has = Signal()
        tafa_done = Signal()
        m.d.comb += [
            self.tile.ready.eq(tiles.w_rdy & ~tafa_has),
            tiles.w_data.eq(self.tile.p),
            tiles.w_en.eq(self.tile.valid & self.tile.ready),
        ]
        with m.If(tiles.w_en):
            m.d.sync += [tafa_has.eq(1), tafa_tile.eq(self.tile.p)]
        with m.Elif(tafa_done):
            m.d.sync += tafa_has.eq(0)

        self._thresholds(m, tafa, tafa_tile, tafa_has, tafa_done, waiting)
        self._factors(m, rescale, tiles, waiting, units)

        m.d.comb += [
            units.w_data.eq(self.unit_v.p), units.w_en.eq(self.unit_v.valid),
            self.unit_v.ready.eq(units.w_rdy),
        ]
        connect_streams(m, inner=tafa.row_o, outer=wiring.flipped(self.rows))
        return m

    def _thresholds(self, m, tafa, tile, has, done, waiting):
        """Sums of rows into :class:`Tafa`, row by row, and its answers out."""
        params = self._params
        owner_bits = (OWNERS - 1).bit_length()
        query_buffer, tile_buffer = Signal(init=1), Signal()

        owner = Signal(range(OWNERS))
        row = Cat(owner, self.sums.p.row_block)[:params.row_bits]
        old_s, old_rows = self._old(m, row, query_buffer ^ tile.first, tile_buffer)
        last_block = Signal(len(self.sums.p.row_block), reset_less=True)
        m.d.sync += last_block.eq((tile.rows - 1) >> owner_bits)
        # The memories answer one cycle after the row is there: a row has two cycles at least.
        read = Signal()
        here = Signal()
        step = Signal()
        m.d.comb += [
            here.eq(self.sums.valid & has & (waiting.w_rdy | (owner != 0))),
            tafa.i.valid.eq(here & read),
            step.eq(tafa.i.valid & tafa.i.ready),
            tafa.i.p.row.eq(row),
            tafa.i.p.first.eq(tile.first),
            tafa.i.p.has_state.eq(tile.has_state),
            tafa.i.p.code_prune.eq(tile.code_prune),
            tafa.i.p.code_quant.eq(tile.code_quant),
            tafa.i.p.maximum.eq(self.sums.p.maximum[owner]),
            tafa.i.p.total.eq(self.sums.p.total[owner]),
            tafa.i.p.c.eq(old_rows[:16].as_signed()),
            tafa.i.p.reference.eq(old_rows[16:].as_signed()),
            tafa.i.p.s.eq(old_s),
            self.sums.ready.eq(step & (owner == OWNERS - 1)),
            waiting.w_data.eq(self.sums.p),
            waiting.w_en.eq(step & (owner == 0)),
            done.eq(self.sums.ready & (self.sums.p.row_block == last_block)),
        ]
        m.d.sync += read.eq(here & ~step)
        with m.If(step):
            m.d.sync += owner.eq(owner + 1)
        with m.If(done):
            # Tiles without old state were not loaded either.
            m.d.sync += [tile_buffer.eq(tile_buffer ^ tile.has_state),
                         query_buffer.eq(query_buffer ^ (tile.first & tile.has_state))]

        # Answers of four rows are one word of thresholds; a row that is inside leaves its state.
        # A tile's last answer may come when the next tile is already there: rows go along.
        m.submodules.inside = inside = fifo.SyncFIFO(width=1, depth=4)
        m.d.comb += [
            inside.w_data.eq(tafa.i.p.row < tile.rows),
            inside.w_en.eq(step),
        ]
        answered = Signal(range(OWNERS))
        pairs = Signal.like(self.thresholds.p)
        held = Signal()  # the word of thresholds is full
        stored = Signal()
        m.d.comb += [
            self.state.p.row.eq(tafa.o.p.row),
            self.state.p.s.eq(tafa.o.p.s),
            self.state.valid.eq(tafa.o.valid & inside.r_data & ~held),
            stored.eq(~inside.r_data | self.state.ready),
            tafa.o.ready.eq(~held & stored),
            inside.r_en.eq(tafa.o.valid & tafa.o.ready),
            self.thresholds.p.eq(pairs),
            self.thresholds.valid.eq(held),
        ]
        with m.If(held & self.thresholds.ready):
            m.d.sync += held.eq(0)
        with m.If(inside.r_en):
            m.d.sync += [pairs[answered].eq(tafa.o.p.thresholds), answered.eq(answered + 1)]
            with m.If(answered == OWNERS - 1):
                m.d.sync += held.eq(1)

    def _factors(self, m, rescale, tiles, waiting, units):
        """Lengths of lists, with the sums that wait for them, into :class:`Rescale`."""
        params = self._params
        tile = Signal(row_tile(params))
        sums = Signal(row_sums(params))
        m.d.comb += [tile.eq(tiles.r_data), sums.eq(waiting.r_data)]

        owner = Signal(range(OWNERS))
        row = Signal(params.row_bits + 1)
        outside, empty = Signal(reset_less=True), Signal(reset_less=True)
        here, seen, step = Signal(), Signal(), Signal()
        end = Signal()
        # Where a row lies is seen in the cycle before it goes: a row inside has to wait for
        # Rescale anyway, and the queues before and after would be one path.
        m.d.comb += [
            row.eq(Cat(owner, self.header.p.row_block)),
            here.eq(self.header.valid & tiles.r_rdy & units.r_rdy),
        ]
        m.d.sync += [
            seen.eq(here & ~step),
            outside.eq(row >= tile.rows),
            empty.eq(Cat(C(0, 2), self.header.p.row_block) >= tile.rows),
        ]
        m.d.comb += [
            rescale.i.valid.eq(seen & waiting.r_rdy & ~outside),
            rescale.i.p.row.eq(row),
            rescale.i.p.first.eq(tile.first),
            rescale.i.p.last.eq(tile.last),
            rescale.i.p.maximum.eq(sums.maximum[owner]),
            rescale.i.p.total.eq(sums.total[owner]),
            rescale.i.p.contributes.eq(self.header.p.n_valid[owner].any()),
            rescale.i.p.unit_v.eq(units.r_data),
            rescale.i.p.shift.eq(tile.shift),
            step.eq(Mux(outside, seen & (empty | waiting.r_rdy),
                        rescale.i.valid & rescale.i.ready)),
            self.header.ready.eq(step & (empty | (owner == OWNERS - 1))),
            waiting.r_en.eq(self.header.ready & ~empty),
            end.eq(self.header.ready & (self.header.p.row_block == params.row_blocks - 1)),
            tiles.r_en.eq(end),
            units.r_en.eq(end),
        ]
        with m.If(step):
            m.d.sync += owner.eq(Mux(self.header.ready, 0, owner + 1))

        # A tile is listed when the answers to all its rows have left.
        m.submodules.rows_of = rows_of = fifo.SyncFIFO(width=params.row_count_bits, depth=2)
        connect = ((rescale.o, self.factor), (rescale.final, self.final))
        for inner, outer in connect:
            m.d.comb += [outer.p.eq(inner.p), outer.valid.eq(inner.valid),
                         inner.ready.eq(outer.ready)]
        answered = Signal(params.row_count_bits)
        m.d.comb += [
            rows_of.w_data.eq(tile.rows),
            rows_of.w_en.eq(end),
            rows_of.r_en.eq(rows_of.r_rdy & (answered == rows_of.r_data)),
        ]
        answer = Signal()
        m.d.comb += answer.eq(rescale.o.valid & rescale.o.ready)
        m.d.sync += [
            answered.eq(Mux(rows_of.r_en, answer, answered + answer)),
            self.listed.eq(rows_of.r_en),
        ]
