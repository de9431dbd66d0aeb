"""Element lists of a tile's rows, their headers and the tile's code (APT 4.3, 4.4)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.stream import connect_streams, travel_along

from .block_row_slots import BlockRowSlots
from .component import AptComponent
from .credit_fifo import CreditFifo
from .flag_counts import FlagCounts
from .list_row import ListRow
from .mask_generator import threshold_pair
from .softmax_words import code_row, list_entries, list_header, probability_word, row_block_bits


__all__ = ["ListBuilder"]

#: Block rows whose header or code may be under way or wait.
_OUTPUTS = 8


class ListBuilder(AptComponent):
    """Lists, headers and code rows of tiles, block row by block row.

    A tile has a word on ``tile``, and for each of its ``ceil(rows / 4)`` block rows the words of
    :class:`~rtl.apt.vpu.Vpu` on ``p`` and one on ``thresholds``. P' wait for their thresholds in
    four slots. Then the block row's computed blocks are gone through, a key of four rows a cycle:
    HP and LP by the thresholds as in :class:`~rtl.apt.mask_generator.MaskGenerator`, an entry for
    each element that is in either, a header, and a code row as in
    :mod:`golden.apt.mask_encoder`. In a dense tile every element of a computed block that is
    inside the tile has an entry in high precision, also where P' is 0.

    Block rows of the tile that have no rows follow with headers and code rows of zeros, so a tile
    has ``row_blocks`` of either. ``entry`` cannot be stalled; a block row begins only with room
    for its header and its code row.

    Between two block rows no cycle is lost. An empty one takes one cycle, and one more before the
    next; those without rows one each, and one more after eight. Between two tiles :attr:`tile_gap`
    cycles are lost: a tile is taken when the one before has given its last entry, so all entries
    after a transfer on ``tile`` are of that tile.

    At the default parameters: 4,640 gates without flip-flops; ECP5 638 LUT4, 251 CCU2C, 924 FF,
    8 EBR, 32 DPR16X4, 118 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        Tile, ``vpu_lanes`` and ``segment_bits`` matter.

    Members
    -------
    tile : :py:`In(stream.Signature(StructLayout))`
        ``rows`` and ``keys``, at least 1, ``dense``, and the count thresholds ``k_hp``, ``k_v``.
    p : :py:`In(stream.Signature(probability_word(params)))`
        P' as the vector unit gives them.
    thresholds : :py:`In(stream.Signature(StructLayout))`
        ``pairs``, one of each row, for every block row of the tile, empty or not.
    entry : :py:`Out(list_entries(params))`
        List writes; there is none where no row has ``valid``.
    header : :py:`Out(stream.Signature(list_header(params)))`
        After the block row's last entry.
    code : :py:`Out(stream.Signature(code_row(params)))`
        After the block row's last entry.
    """

    def __init__(self, params):
        super().__init__(params)
        rows = params.block_rows
        self._slots = BlockRowSlots(params, lane=data.ArrayLayout(16, rows),
                                    write_keys=params.slice_keys, read_keys=1)
        self._list_rows = [ListRow(params) for _ in range(rows)]
        self._headers = CreditFifo(list_header(params), _OUTPUTS)
        self._codes = CreditFifo(code_row(params), _OUTPUTS)
        self._flags = FlagCounts(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(data.StructLayout({
                "rows": params.row_count_bits, "keys": params.key_count_bits, "dense": 1,
                "k_hp": params.flag_count_bits, "k_v": params.flag_count_bits}))),
            "p": In(stream.Signature(probability_word(params))),
            "thresholds": In(stream.Signature(data.StructLayout({
                "pairs": data.ArrayLayout(threshold_pair(), params.block_rows)}))),
            "entry": Out(list_entries(params)),
            "header": Out(stream.Signature(list_header(params))),
            "code": Out(stream.Signature(code_row(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a block row's thresholds to the entries of its first key."""
        return 1 + self._list_rows[0].stages

    @property
    def header_latency(self):
        """Cycles from the entries of a block row's last key to its header, if that is free."""
        return self._headers.latency

    @property
    def code_latency(self):
        """Cycles from the entries of a block row's last key to its code row, if that is free."""
        return self._flags.stages - 1 + self._codes.latency

    @property
    def tile_gap(self):
        """Cycles between the last key of a tile and the first of the next, all being at hand."""
        return self.latency + self._flags.stages + 1

    @property
    def throughput(self):
        return f"1 key of {self._params.block_rows} rows a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.slots = slots = self._slots
        m.submodules.headers = headers = self._headers
        m.submodules.codes = codes = self._codes
        m.submodules.flags = self._flags
        connect_streams(m, headers=headers.o, header=wiring.flipped(self.header))
        connect_streams(m, codes=codes.o, code=wiring.flipped(self.code))

        # P' into a slot, whatever the tile.
        accept = Signal()
        m.d.comb += [
            self.p.ready.eq(slots.ready),
            accept.eq(self.p.valid & self.p.ready),
            slots.claim.eq(accept & self.p.p.end),
            slots.i.valid.eq(accept),
            slots.i.end.eq(self.p.p.end),
            slots.i.none.eq(self.p.p.none),
            slots.i.key_block.eq(self.p.p.key_block),
            slots.i.step.eq(self.p.p.part),
        ]
        for key in range(params.slice_keys):
            for row in range(params.block_rows):
                m.d.comb += slots.i.lanes[key][row].eq(self.p.p.p[row][key])

        tile, row_block, beyond = self._walk(m, slots, headers, codes)
        self._build(m, slots, tile, row_block, beyond)
        return m

    def _walk(self, m, slots, headers, codes):
        """The tile at hand, and which of its block rows is next."""
        params = self._params
        rows = params.block_rows
        tile = Signal(data.StructLayout({
            "keys": params.key_count_bits, "last_block": row_block_bits(params),
            "last_rows": rows, "dense": 1, "k_hp": params.flag_count_bits,
            "k_v": params.flag_count_bits}), reset_less=True)
        # A tile is at hand; it has block rows to begin; these are beyond its rows.
        held, begins, beyond = Signal(), Signal(), Signal()
        row_block = Signal(row_block_bits(params), reset_less=True)
        rest = self.tile.p.rows[:2]
        m.d.comb += self.tile.ready.eq(~held)
        with m.If(self.tile.valid & self.tile.ready):
            m.d.sync += [
                held.eq(1), begins.eq(1), beyond.eq(0), row_block.eq(0),
                tile.keys.eq(self.tile.p.keys),
                tile.dense.eq(self.tile.p.dense),
                tile.k_hp.eq(self.tile.p.k_hp),
                tile.k_v.eq(self.tile.p.k_v),
                tile.last_block.eq((self.tile.p.rows - 1)[2:]),
                tile.last_rows.eq(Cat((rest == 0) | (rest > row) for row in range(rows))),
            ]
        with m.If(codes.valid & (codes.payload.row_block == params.row_blocks - 1)):
            m.d.sync += held.eq(0)

        # Thresholds are taken a cycle after the block row's first word was read: what is offered
        # in that cycle are still those of that block row.
        room, empty, ended = Signal(), Signal(), Signal()
        m.d.comb += [
            room.eq(begins & headers.room & codes.room),
            slots.advance.eq(1),
            slots.enable.eq(~slots.at_start | (room & ~beyond & self.thresholds.valid
                                               & ~self.thresholds.ready)),
            self.thresholds.ready.eq(slots.o.valid & slots.o.first),
            empty.eq(room & beyond),
            ended.eq(slots.taken | empty),
            headers.reserve.eq(ended),
            codes.reserve.eq(ended),
        ]
        with m.If(ended):
            m.d.sync += row_block.eq(row_block + 1)
            with m.If(row_block == tile.last_block):
                m.d.sync += beyond.eq(1)
            with m.If(row_block == params.row_blocks - 1):
                m.d.sync += begins.eq(0)
        return tile, row_block, empty

    def _build(self, m, slots, tile, next_block, beyond):
        """From the word that was read to entries, headers and code rows."""
        params = self._params
        rows = params.block_rows

        # The word at the memory's output.
        row_block = Signal(row_block_bits(params), reset_less=True)
        empty, inside_rows = Signal(), Signal(rows, reset_less=True)
        m.d.sync += [
            row_block.eq(next_block),
            empty.eq(beyond),
            inside_rows.eq(Mux(next_block == tile.last_block, tile.last_rows, (1 << rows) - 1)),
        ]
        word = slots.o
        key = Signal(params.key_bits)
        present = Signal()
        m.d.comb += [
            key.eq(Cat(word.step, word.key_block)),
            present.eq(word.valid & ~word.none),
        ]
        # Registered: what goes on with the key, and the block row's thresholds.
        end, first, valid, key, block = travel_along(
            m, Const(1), 1, empty | (word.valid & word.end),
            first=empty | (word.valid & word.first), key_valid=present, key=key, block=row_block)
        pairs = Signal(self.thresholds.p.pairs.shape(), reset_less=True)
        with m.If(self.thresholds.ready):
            m.d.sync += pairs.eq(self.thresholds.p.pairs)
        planes = {"hp": [], "v": []}
        for row, list_row in enumerate(self._list_rows):
            m.submodules[f"row_{row}"] = list_row
            p = Signal(16, name=f"p_{row}", reset_less=True)
            inside = Signal(name=f"inside_{row}")
            m.d.sync += [
                p.eq(word.lanes[0][row]),
                inside.eq(present & inside_rows[row] & (Cat(word.step, word.key_block)
                                                        < tile.keys)),
            ]
            m.d.comb += [
                list_row.thresholds.eq(pairs[row]),
                list_row.dense.eq(tile.dense),
                list_row.first.eq(first),
                list_row.p.eq(p),
                list_row.inside.eq(inside),
            ]
            for plane in planes:
                planes[plane].append(getattr(list_row, plane))

        # As long as the masks take.
        flags = self._flags
        end, first, valid, key, block = travel_along(
            m, Const(1), 2, end, mask_first=first, mask_valid=valid, mask_key=key, mask_block=block)
        m.d.comb += [
            flags.k_hp.eq(tile.k_hp), flags.k_v.eq(tile.k_v),
            flags.first.eq(first), flags.end.eq(end), flags.valid.eq(valid),
            flags.hp.eq(Cat(planes["hp"])), flags.v.eq(Cat(planes["v"])),
            flags.key.eq(key[:3]), flags.key_block.eq(key[3:]),
        ]
        # As long as the entries take.
        end, key, block = travel_along(m, Const(1), 1, end, entry_key=key, entry_block=block)
        m.d.comb += self.entry.row_block.eq(block)
        headers, codes = self._headers, self._codes
        for row, list_row in enumerate(self._list_rows):
            entry = self.entry.rows[row]
            m.d.comb += [
                entry.valid.eq(list_row.valid),
                entry.position.eq(list_row.position),
                entry.key.eq(key),
                entry.high.eq(list_row.high),
                entry.low.eq(list_row.low),
                headers.payload.n_valid[row].eq(list_row.n_valid),
                headers.payload.n_hp[row].eq(list_row.n_hp),
            ]
        m.d.comb += [headers.valid.eq(end), headers.payload.row_block.eq(block)]
        code_block, = travel_along(m, Const(1), 1, block)
        m.d.comb += [
            codes.valid.eq(flags.done),
            codes.payload.row_block.eq(code_block),
            codes.payload.pairs.eq(flags.pairs),
        ]
