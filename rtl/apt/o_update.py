"""Output rows: tile sums rescaled into them, and the normalized output (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from rtl.common.block_fifo import BlockFifo
from rtl.common.stream import connect_streams

from .component import AptComponent
from .o_finals import OFinals
from .o_issue import OIssue, o_place
from .o_lane import OLane
from .o_rows import ORows, o_tile
from .pv_words import OWNERS, o_row_words, o_word, row_done, sums_address
from .row_words import factor_word, final_word


__all__ = ["OUpdate"]

#: Words of the queue in front of ``o``: as many as are on their way from issue to its end.
_QUEUE = 32


class OUpdate(AptComponent):
    """Keeps O of a query tile, ``multipliers / 2`` values (``ow``) a cycle, one multiplier each.

    A row whose tile sums are complete takes ``ceil(head_dim / ow)`` cycles, without a gap to the
    next one: ``O = begin ? T : scale_o ? O * f + T : O + T * f``, where T is the sum shifted right
    by the tile's ``shift``; products and T are rounded half up. After its last key tile a query
    tile is read out in the cycles that updates leave, if there is room for what comes out:
    ``O * mantissa >> places``, rounded half up, within -32767 to 32767, and 0 where ``zero``.

    Hand-over between query tiles: a tile's rows are updated only when the tile before has all of
    its rows written, and while a query tile is read out, only rows that have left. Other rows
    stay in the ring of tile sums, and with their credits PV waits. Whoever starts PV must not
    start tile t + 2 before ``tile_done`` of tile t: tiles are told apart by their parity.

    Parity: tiles are counted modulo 2 from reset on, tile 0 has ``buffer`` 0. Factor words come
    for each row of a tile, row 0 first, and so do final words for a query tile's last tile. Both
    tables have two halves; a word for row 0 waits for a free one, others are taken at once.

    Members
    -------
    tile : :py:`In(stream.Signature(o_tile(params)))`
        Each tile once: rows (at least 1), last key tile, ``o_shift``.
    row : 4 x :py:`In(stream.Signature(row_done(params)))`
        From :class:`TileSums`.
    read : :py:`Out(sums_address(params))`
    sums : :py:`In(data.ArrayLayout(signed(params.sum_bits), params.multipliers))`
        To and from :class:`TileSums`, two cycles later.
    row_room : :py:`Out(4)`
        To the owners' :class:`PvSequencer`: a slot for tile sums has been read.
    factor : :py:`In(stream.Signature(factor_word(params)))`
    final : :py:`In(stream.Signature(final_word(params)))`
        From :class:`Rescale`.
    o : :py:`Out(stream.Signature(o_word(params)))`
        Rows of a query tile in order; ``keep`` of the values count; ``last`` of the query tile.
    tile_done : :py:`Out(1)`
        Pulse: all rows of the oldest tile are written.
    idle : :py:`Out(1)`
        No tile is under way, and nothing waits on ``o``.
    updating, held : :py:`Out(1)`
        For counters: a word is updated; a row waits for its turn.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(o_tile(params))),
            "row": In(stream.Signature(row_done(params))).array(OWNERS),
            "read": Out(sums_address(params)),
            "sums": In(data.ArrayLayout(signed(params.sum_bits), params.multipliers)),
            "row_room": Out(OWNERS),
            "factor": In(stream.Signature(factor_word(params))),
            "final": In(stream.Signature(final_word(params))),
            "o": Out(stream.Signature(o_word(params))),
            "tile_done": Out(1),
            "idle": Out(1),
            "updating": Out(1),
            "held": Out(1),
        }

    @property
    def latency(self):
        """Cycles from a row's offer to the write of its first word, all else idle: two to choose
        it, two to have its sums, :attr:`OLane.total_latency`."""
        return 2 + 2 + 8

    @property
    def output_latency(self):
        """Cycles from ``tile_done`` to ``o.valid``: start, issue, :attr:`OLane.latency`, queue."""
        return 1 + 2 + 12 + 2

    @property
    def row_cycles(self):
        """Cycles of a row, in an update and in the output."""
        return o_row_words(self._params)

    @property
    def throughput(self):
        return f"{self._params.multipliers // 2} values a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        width, words = p.multipliers // 2, o_row_words(p)

        m.submodules.rows = rows = ORows(p)
        connect_streams(m, outer=flipped(self.tile), inner=rows.tile)
        for outer, inner in zip(self.row, rows.row, strict=True):
            connect_streams(m, outer=flipped(outer), inner=inner)

        # Factor words: what needs no comparison later is settled when they are written.
        kept = data.StructLayout({"factor": 16, "by_o": 1})
        m.submodules.factors = factors = Memory(shape=kept, depth=2 << p.row_bits, init=[])
        put, get = factors.write_port(), factors.read_port()
        word = self.factor.p
        start, take = Signal(), Signal()
        m.d.comb += [
            start.eq(word.row == 0),
            self.factor.ready.eq(~start | rows.factor_room),
            take.eq(self.factor.valid & self.factor.ready),
            rows.factor.valid.eq(take),
            rows.factor.start.eq(start),
            rows.factor.contributes.eq(word.contributes),
            put.en.eq(take),
            put.addr.eq(Cat(word.row, rows.factor_half)),
            put.data.factor.eq(Mux(word.begin, 0, word.factor)),
            put.data.by_o.eq(word.begin | word.scale_o),
        ]

        # Issue: a word of the row at hand, or a word of the output while there is room for it.
        m.submodules.finals = finals = OFinals(p)
        m.submodules.issue = issue = OIssue(p)
        connect_streams(m, source=rows.job, sink=issue.job)
        fetch, issued = Signal(), issue.o.valid & issue.o.output
        credits = Signal(range(_QUEUE + 1), init=_QUEUE)
        m.d.comb += [
            issue.finish.eq(rows.finish),
            issue.rows.eq(rows.rows),
            issue.room.eq(credits != 0),
            issue.have.eq(finals.have),
            finals.half.eq(issue.half),
            rows.reading.eq(issue.reading),
            rows.left.eq(issue.left),
            fetch.eq(self.o.valid & self.o.ready),
            self.read.eq(issue.read),
            self.row_room.eq(issue.row_room),
            self.tile_done.eq(rows.done),
            self.idle.eq(rows.idle & ~issue.reading & (credits == _QUEUE)),
            self.updating.eq(rows.job.valid),
            self.held.eq(~rows.job.valid & Cat(row.valid for row in self.row).any()),
        ]
        with m.If(issued & ~fetch):
            m.d.sync += credits.eq(credits - 1)
        with m.Elif(fetch & ~issued):
            m.d.sync += credits.eq(credits + 1)

        # What travels with a word; `at[n]` belongs to the word that was issued n cycles ago.
        at, valid = [issue.o], [issue.o.valid]
        for stage in range(1, 15):
            at.append(Signal(o_place(p), name=f"at_{stage}", reset_less=True))
            valid.append(Signal(name=f"valid_{stage}"))
            m.d.sync += [at[-1].eq(at[-2]), valid[-1].eq(valid[-2])]

        # Memories are read three cycles after issue, when the sums are chosen, and have an
        # output register.
        o_shape = data.ArrayLayout(signed(32), width)
        m.submodules.memory = memory = Memory(
            shape=o_shape, depth=1 << (len(issue.o.word) + p.row_bits), init=[])
        write, read = memory.write_port(), memory.read_port()
        o, factor = Signal(o_shape, reset_less=True), Signal(kept, reset_less=True)
        m.d.comb += [
            read.en.eq(valid[3]),
            read.addr.eq(Cat(at[3].word, at[3].row)),
            get.en.eq(valid[3]),
            get.addr.eq(Cat(at[3].row, at[3].half)),
            finals.read_en.eq(valid[3]),
            finals.read_row.eq(at[3].row),
            finals.read_half.eq(at[3].half),
            finals.release.eq(valid[4] & at[4].output & at[4].last),
            finals.release_half.eq(at[4].half),
        ]
        connect_streams(m, outer=flipped(self.final), inner=finals.i)
        m.d.sync += [o.eq(read.data), factor.eq(get.data)]

        # Places are wanted after the product.
        places = finals.places
        for stage in (6, 7, 8, 9):
            then = Signal(6, name=f"places_{stage}", reset_less=True)
            m.d.sync += then.eq(places)
            places_before, places = places, then

        # Lanes.
        result, totals = Signal(data.ArrayLayout(signed(16), width)), Signal(o_shape)
        for k in range(width):
            m.submodules[f"lane_{k}"] = lane = OLane(p)
            m.d.comb += [
                lane.odd.eq(at[1].word[0]),
                lane.sums[0].eq(self.sums[k]),
                lane.sums[1].eq(self.sums[width + k]),
                lane.shift.eq(rows.shift),
                lane.o.eq(o[k]),
                lane.by_o.eq(at[5].output | factor.by_o),
                lane.factor.eq(Mux(at[5].output, finals.mantissa, factor.factor)),
                lane.places_high.eq(places_before[3:]),
                lane.places_low.eq(places[:3]),
                totals[k].eq(lane.total),
                result[k].eq(lane.value),
            ]

        m.d.comb += [
            write.en.eq(valid[10] & ~at[10].output),
            write.addr.eq(Cat(at[10].word, at[10].row)),
            write.data.eq(totals),
            rows.written.eq(valid[10] & ~at[10].output & at[10].row_end),
        ]

        # Output; credits see to it that there is room.
        m.submodules.queue = queue = BlockFifo(o_word(p), _QUEUE)
        connect_streams(m, inner=queue.o, outer=flipped(self.o))
        m.d.comb += [
            queue.i.valid.eq(valid[14] & at[14].output),
            queue.i.p.values.eq(result),
            queue.i.p.keep.eq(Mux(at[14].row_end, p.head_dim - (words - 1) * width, width)),
            queue.i.p.last.eq(at[14].last),
        ]
        return m
