"""Softmax of attention tiles: row maximum, powers of two and row sums (APT 4.1, stage 4)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.block_fifo import BlockFifo
from rtl.common.stream import connect_streams, travel_along

from .block_row_slots import BlockRowSlots
from .component import AptComponent
from .credit_fifo import CreditFifo
from .row_maximum import RowMaximum
from .softmax_slice import SoftmaxSlice
from .softmax_words import element, logit_word, probability_word, row_block_bits, row_word


__all__ = ["Vpu"]

#: Block rows whose maximum and sum may be under way or wait at ``rows``.
_ROWS = 8


class Vpu(AptComponent):
    """Maximum m~, ``P' = 2**(z - m~)`` and sum l~ of the rows of tiles, block row by block row.

    A tile has a word on ``tile`` and ``ceil(rows / 4)`` block rows on ``z``: the computed blocks
    with ascending keys, eight words each, ``end`` in the last word; or one word with ``none`` and
    ``end``. Elements beyond the tile's rows or keys count nowhere and have P' = 0. A row without
    any element has the maximum -32768 and the sum 0.

    While logits come the maxima are found and the logits kept in one of four slots; a complete
    block row is read again, ``slice_keys`` keys a cycle, with no idle cycle to the next. ``z`` is
    taken as long as there are a tile and a slot: whoever starts block rows keeps count of the
    slots, ``slot_free`` gives one back. The last word of a tile and the first of the next may be
    in consecutive cycles where the next tile's word is at hand.

    A block row's word on ``rows`` comes after its last on ``p``, even while words of later ones
    are held on ``p``. Up to eight wait; then ``p`` waits for them.

    At the default parameters: 21,580 gates without flip-flops; ECP5 3,935 LUT4, 443 CCU2C, 2,071
    FF, 8 EBR, 80 DPR16X4, 105 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        Tile, ``vpu_lanes`` and ``exp2`` matter.

    Members
    -------
    tile : :py:`In(stream.Signature(StructLayout))`
        ``rows`` and ``keys`` of the tile, both at least 1.
    z : :py:`In(stream.Signature(logit_word(params)))`
        Logits, Q7.8.
    p : :py:`Out(stream.Signature(probability_word(params)))`
        P', U1.15; an empty block row is a word with ``none`` and ``end``.
    rows : :py:`Out(stream.Signature(row_word(params)))`
        Maximum, Q7.8, and sum, U.15.
    slot_free : :py:`Out(1)`
        Pulse: a slot is free again.
    """

    def __init__(self, params):
        super().__init__(params)
        self._slices = [SoftmaxSlice(params) for _ in range(params.block_rows)]
        self._slots = BlockRowSlots(
            params, lane=data.ArrayLayout(element(), params.block_rows),
            note=data.StructLayout({"row_block": row_block_bits(params),
                                    "maximum": row_word(params)["maximum"].shape}),
            write_keys=1, read_keys=params.slice_keys)
        self._rows = CreditFifo(row_word(params), _ROWS)

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(data.StructLayout({
                "rows": params.row_count_bits, "keys": params.key_count_bits}))),
            "z": In(stream.Signature(logit_word(params))),
            "p": Out(stream.Signature(probability_word(params))),
            "rows": Out(stream.Signature(row_word(params))),
            "slot_free": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a block row's last word on ``z`` to its first on ``p``,
        with no other block row before it."""
        return 1 + self._slots.latency + self._slices[0].stages

    @property
    def rows_latency(self):
        """Cycles from the transfer of a block row's last word on ``p`` to the offer of its word on
        ``rows``, with none before it."""
        return self._slices[0].sum_stages + self._rows.latency

    @property
    def throughput(self):
        return f"{self._params.vpu_lanes} elements a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.slots = slots = self._slots
        m.d.comb += self.slot_free.eq(slots.freed)
        self._take(m, slots)
        self._give(m, slots)
        return m

    def _take(self, m, slots):
        """Logits: which were computed, their maxima, and into a slot."""
        params = self._params
        rows = params.block_rows

        # The tile at hand: its keys, its last block row and the rows inside that.
        held, accept = Signal(), Signal()
        keys = Signal(params.key_count_bits, reset_less=True)
        last_block = Signal(row_block_bits(params), reset_less=True)
        last_rows = Signal(rows, reset_less=True)
        last = Signal()
        rest = self.tile.p.rows[:2]
        m.d.comb += [
            self.z.ready.eq(held & slots.ready),
            accept.eq(self.z.valid & self.z.ready),
            last.eq(self.z.p.row_block == last_block),
            self.tile.ready.eq(~held | (accept & self.z.p.end & last)),
        ]
        with m.If(self.tile.ready):
            m.d.sync += [
                held.eq(self.tile.valid),
                keys.eq(self.tile.p.keys),
                last_block.eq((self.tile.p.rows - 1)[2:]),
                last_rows.eq(Cat((rest == 0) | (rest > row) for row in range(rows))),
            ]

        # One word; the maxima are complete in the cycle after it went into the slot.
        word = Signal(logit_word(params), reset_less=True)
        lanes = Signal(data.ArrayLayout(element(), rows), reset_less=True)
        valid, first = Signal(), Signal(init=1)
        row_block = Signal(row_block_bits(params), reset_less=True)
        m.d.sync += valid.eq(accept)
        with m.If(accept):
            m.d.sync += word.eq(self.z.p)
            for row in range(rows):
                m.d.sync += [
                    lanes[row].z.eq(self.z.p.z[row]),
                    lanes[row].computed.eq(~self.z.p.none & (self.z.p.key < keys)
                                           & (~last | last_rows[row])),
                ]
        with m.If(valid):
            m.d.sync += [first.eq(word.end), row_block.eq(word.row_block)]
        m.d.comb += [
            slots.claim.eq(accept & self.z.p.end),
            slots.i.valid.eq(valid),
            slots.i.end.eq(word.end),
            slots.i.none.eq(word.none),
            slots.i.key_block.eq(word.key[3:]),
            slots.i.step.eq(word.key[:3]),
            slots.i.lanes[0].eq(lanes),
            slots.note.row_block.eq(row_block),
        ]
        for row in range(rows):
            m.submodules[f"maximum_{row}"] = maximum = RowMaximum(params)
            m.d.comb += [
                maximum.valid.eq(valid),
                maximum.first.eq(first),
                maximum.i.eq(lanes[row]),
                slots.note.maximum[row].eq(maximum.maximum),
            ]

    def _give(self, m, slots):
        """Complete block rows: P', then the rows' words."""
        params = self._params
        m.submodules.row_words = row_words = self._rows
        # What is known of a block row before its sum. A place in `row_words` is taken for each.
        note = data.StructLayout({name: row_word(params)[name].shape
                                  for name in ("row_block", "maximum")})
        m.submodules.notes = notes = BlockFifo(note, _ROWS)

        advance = Signal()
        m.d.comb += [
            advance.eq(~self.p.valid | self.p.ready),
            slots.advance.eq(advance),
            slots.enable.eq(row_words.room),
            row_words.reserve.eq(slots.taken),
        ]
        words = slots.o
        valid, first, end, none, key_block, part = travel_along(
            m, advance, self._slices[0].stages, words.valid, first=words.first, end=words.end,
            none=words.none,
            key_block=Mux(words.none, 0, words.key_block), part=words.step)
        m.d.comb += [
            self.p.valid.eq(valid),
            self.p.p.end.eq(end),
            self.p.p.none.eq(none),
            self.p.p.key_block.eq(key_block),
            self.p.p.part.eq(part),
        ]
        # A word is added as it leaves: a block row is complete when its last word is gone.
        add = Signal()
        m.d.comb += add.eq(self.p.valid & self.p.ready)
        for row, slice_ in enumerate(self._slices):
            m.submodules[f"slice_{row}"] = slice_
            m.d.comb += [
                slice_.advance.eq(advance),
                slice_.maximum.eq(words.note.maximum[row]),
                slice_.add.eq(add),
                slice_.first.eq(first),
                self.p.p.p[row].eq(slice_.p),
                row_words.payload.total[row].eq(slice_.total),
            ]
            for key in range(params.slice_keys):
                m.d.comb += [
                    slice_.i[key].z.eq(words.lanes[key][row].z),
                    slice_.i[key].computed.eq(words.lanes[key][row].computed & ~words.none),
                ]

        complete, = travel_along(m, Const(1), self._slices[0].sum_stages, add & end)
        m.d.comb += [
            notes.i.valid.eq(words.valid & words.end & advance),
            notes.i.p.eq(words.note),
            notes.o.ready.eq(complete),
            row_words.valid.eq(complete),
            row_words.payload.row_block.eq(notes.o.p.row_block),
            row_words.payload.maximum.eq(notes.o.p.maximum),
        ]
        connect_streams(m, row_words=row_words.o, rows=wiring.flipped(self.rows))
