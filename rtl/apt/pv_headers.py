"""Headers of the element lists of one owner, read ahead of its rows (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, fifo, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .pv_words import header_shape, row_block_bits


__all__ = ["HEADERS_LATENCY", "PvHeaders", "header_write", "pv_row", "pv_tile"]

#: Cycles from a tile to its first row: walk, memory, counts, queue.
HEADERS_LATENCY = 4


def header_write(params):
    """A write of a row's header."""
    return data.StructLayout({
        "valid": 1, "buffer": 1, "row_block": row_block_bits(params),
        "n_valid": params.key_count_bits, "n_hp": params.key_count_bits})


def pv_tile(params):
    """A tile to go through: its buffer and how many rows of each owner."""
    return data.StructLayout({"buffer": 1, "blocks": range(params.row_blocks + 1)})


def pv_row(params):
    """A row that has elements: counts, and whether they are 0 or 1."""
    return data.StructLayout({
        "buffer": 1, "row_block": row_block_bits(params),
        "n_hp": params.key_count_bits, "n_lp": params.key_count_bits,
        "has_hp": 1, "has_lp": 1, "one_hp": 1, "one_lp": 1})


class PvHeaders(AptComponent):
    """Keeps the headers of two tiles and walks through them, dropping rows without elements.

    One header a cycle, empty or not, :attr:`latency` cycles from a tile's transfer to its first
    row on ``o``. Four rows are held ahead, so empty rows cost nothing behind a row that is long
    enough. A tile is taken when the headers of the one before have been read.

    Members
    -------
    header : :py:`In({valid, buffer, row_block, n_valid, n_hp})`
        Write; not to a buffer that is walked through.
    tile : :py:`In(stream.Signature(pv_tile(params)))`
    o : :py:`Out(stream.Signature(pv_row(params)))`
        Rows with elements, in order.
    idle : :py:`Out(1)`
        No header is left, in memory or on ``o``.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "header": In(header_write(params)),
            "tile": In(stream.Signature(pv_tile(params))),
            "o": Out(stream.Signature(pv_row(params))),
            "idle": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of ``tile`` to ``o.valid``."""
        return HEADERS_LATENCY

    @property
    def throughput(self):
        return "one header a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params

        m.submodules.memory = memory = Memory(
            shape=header_shape(p), depth=2 << row_block_bits(p), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.header.valid),
            write.addr.eq(Cat(self.header.row_block, self.header.buffer)),
            write.data.n_valid.eq(self.header.n_valid),
            write.data.n_hp.eq(self.header.n_hp),
        ]

        # Walk: which header is read next.
        walking, buffer = Signal(), Signal(reset_less=True)
        row_block = Signal(row_block_bits(p), reset_less=True)
        left = Signal(range(p.row_blocks + 1), reset_less=True)
        fetch = Signal()
        m.d.comb += [
            self.tile.ready.eq(~walking),
            read.addr.eq(Cat(row_block, buffer)),
        ]
        with m.If(~walking):
            m.d.sync += [
                walking.eq(self.tile.valid & (self.tile.p.blocks != 0)),
                buffer.eq(self.tile.p.buffer),
                left.eq(self.tile.p.blocks),
                row_block.eq(0),
            ]
        with m.Elif(fetch):
            m.d.sync += [row_block.eq(row_block + 1), left.eq(left - 1), walking.eq(left != 1)]

        # Rows, apart from the walk through headers: when a row is taken is the end of a long path.
        m.submodules.rows = rows = fifo.SyncFIFO(width=len(self.o.p.as_value()), depth=2)
        row, row_valid = Signal(pv_row(p), reset_less=True), Signal()

        # The header as it was stored. An empty one leaves at once.
        raw_valid, raw = Signal(), Signal(header_shape(p), reset_less=True)
        raw_place = Signal(row_block_bits(p) + 1, reset_less=True)
        some, advance = Signal(), Signal()
        m.d.comb += [
            some.eq(raw.n_valid != 0),
            advance.eq(~row_valid | rows.w_rdy),
            fetch.eq(~raw_valid | ~some | advance),
        ]
        with m.If(fetch):
            m.d.sync += [raw_valid.eq(walking), raw.eq(read.data),
                         raw_place.eq(Cat(row_block, buffer))]

        # What the sequencer wants to know of it.
        n_lp = Signal(p.key_count_bits)
        m.d.comb += n_lp.eq(raw.n_valid - raw.n_hp)
        with m.If(advance):
            m.d.sync += [
                row_valid.eq(raw_valid & some),
                Cat(row.row_block, row.buffer).eq(raw_place),
                row.n_hp.eq(raw.n_hp),
                row.n_lp.eq(n_lp),
                row.has_hp.eq(raw.n_hp != 0),
                row.has_lp.eq(raw.n_valid != raw.n_hp),
                row.one_hp.eq(raw.n_hp == 1),
                row.one_lp.eq(n_lp == 1),
            ]

        m.d.comb += [
            rows.w_data.eq(row), rows.w_en.eq(row_valid),
            self.o.p.eq(rows.r_data), self.o.valid.eq(rows.r_rdy), rows.r_en.eq(self.o.ready),
            self.idle.eq(~walking & ~raw_valid & ~row_valid & ~rows.r_rdy),
        ]
        return m
