"""Element masks of a tile out of their code, with HP priority and the refresh bit (APT 4.3)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import CODE_BITS
from golden.common.checks import ceil_log2

from .component import AptComponent
from .flag_buffer import FlagBuffer
from .flag_grid import FlagGrid
from .masks import mask_word


__all__ = ["MaskDecoder", "tile_command"]


def tile_command(params):
    """What the decoder must know of a tile: refresh bit, and how many rows and keys are real."""
    return data.StructLayout({
        "refresh": 1,
        "rows": params.row_count_bits,
        "keys": params.key_count_bits,
    })


class MaskDecoder(AptComponent):
    """Masks HP and LP of one tile after the other, row by row.

    F_h and F_v of an element are the flags of its block (codec ``block``), or the ``or``, with
    ``rowcol_decode = and`` the ``and``, of its row's and its column's flags (``rowcol``). For
    elements inside the tile's first ``rows`` rows and first ``keys`` keys ::

        HP = F_h        LP = (F_v | refresh) & ~F_h

    and beyond them both are 0. All ``tile_q`` rows of ``params.slots`` words come out; padding of
    a row's last word is 0.

    One word a cycle without a gap while code and commands are at hand: the flags of the next
    block row (``rowcol``: of the next tile) are loaded while those of the last are emitted. Loading
    takes a cycle for each word of row flags and one for each group of flag pairs (8 pairs or
    fewer: the common divisor of 8, the blocks of a word and, with several block rows, those of a
    row; a pair at a time where a block lies in two words, once for each word); that must not be
    more than the cycles of the block row (of the tile). While ``o`` is stalled nothing is lost.

    At the default parameters: sky130 3,350 um2 and 64 bits of memory; ECP5 145 LUT4, 9 CCU2C,
    84 FF, 1 DPR16X4, 159 MHz. With ``rowcol``: 3,480 um2 and 768 bits; 292 LUT4, 9 CCU2C, 81 FF,
    12 DPR16X4, 135 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        ``lanes``, tile and codec matter.

    Members
    -------
    tiles : :py:`In(stream.Signature(tile_command(params)))`
        A command a tile; ``rows`` is 0 to ``tile_q``, ``keys`` 0 to ``tile_k``. It is taken when
        the tile before it has been emitted, and may come before or after the code.
    i : :py:`In(stream.Signature(16))`
        ``params.code_words`` words a tile, as of :func:`golden.apt.mask_encoder.pack_code`.
    o : :py:`Out(stream.Signature(mask_word(params.lanes)))`
        Masks, ``tile_q * params.slots`` words a tile.
    """

    def _ports(self, params):
        return {
            "tiles": In(stream.Signature(tile_command(params))),
            "i": In(stream.Signature(CODE_BITS)),
            "o": Out(stream.Signature(mask_word(params.lanes))),
        }

    @property
    def latency(self):
        """Cycles from the offer of a tile's first code word on ``i`` to ``o.valid`` of the tile's
        first word, with the rest of the code and the command at hand and the decoder idle."""
        return self._params.row_code_words + FlagBuffer.load_cycles(self._params) + 1

    @property
    def throughput(self):
        return f"{self._params.lanes} elements a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        grid = FlagGrid(params, params.lanes)

        m.submodules.buffer = buffer = FlagBuffer(params)
        wiring.connect(m, wiring.flipped(self.i), buffer.i)

        # Word in the row, row in the tile, and whether it is the last of a block row.
        word = Signal(range(max(params.slots, 2)))
        row = Signal(range(params.tile_q))
        go = Signal()
        last_word, last_row, last_of_block = Signal(), Signal(), Signal()
        m.d.comb += [
            last_word.eq(word == params.slots - 1),
            last_row.eq(row == params.tile_q - 1),
            buffer.word.eq(word),
            buffer.row.eq(row),
            buffer.release.eq(go & last_word & last_of_block),
        ]
        with m.If(go):
            m.d.sync += word.eq(Mux(last_word, 0, word + 1))
            with m.If(last_word):
                m.d.sync += row.eq(Mux(last_row, 0, row + 1))
        grid.drive_last_of_block(m, last_of_block, go & last_word, last_row)

        # The command of the tile at hand; `keys` becomes the keys from this word's first on.
        held, refresh = Signal(), Signal(reset_less=True)
        tile_rows = Signal(params.row_count_bits, reset_less=True)
        tile_keys = Signal(params.key_count_bits, reset_less=True)
        keys = Signal(range(-params.lanes * params.slots, params.tile_k + 1), reset_less=True)
        m.d.comb += self.tiles.ready.eq(~held | (go & last_word & last_row))
        with m.If(go):
            m.d.sync += keys.eq(Mux(last_word, tile_keys, keys - params.lanes))
        with m.If(self.tiles.ready):
            m.d.sync += [
                held.eq(self.tiles.valid),
                refresh.eq(self.tiles.p.refresh),
                tile_rows.eq(self.tiles.p.rows),
                tile_keys.eq(self.tiles.p.keys),
                keys.eq(self.tiles.p.keys),
            ]
        # Below the tile's edge: 0 <= keys < lanes only in the word that holds the edge.
        inside, in_row, whole = Signal(params.lanes), Signal(), Signal()
        edge = keys[:ceil_log2(params.lanes)]
        m.d.comb += [
            in_row.eq((row < tile_rows) & (keys >= 0)),
            whole.eq(keys >= params.lanes),
            inside.eq(Cat(in_row & (whole | (edge > lane)) for lane in range(params.lanes))),
        ]

        # Flags of each lane: those of the segment it is in.
        hp, v = Signal(params.lanes), Signal(params.lanes)
        enables = [grid.lanes_of_segment(m, word, index) for index in range(grid.most_segments)]
        for plane, flags in enumerate((hp, v)):
            for lane in range(params.lanes):
                grid_flag = Cat(buffer.pairs[2 * index + plane] & lanes[lane]
                                for index, lanes in enumerate(enables)
                                if lanes[lane] is not None).any()
                if not params.row_flags:
                    m.d.comb += flags[lane].eq(grid_flag)
                elif params.rowcol_decode == "or":
                    m.d.comb += flags[lane].eq(grid_flag | buffer.row_pair[plane])
                else:
                    m.d.comb += flags[lane].eq(grid_flag & buffer.row_pair[plane])

        # Output register.
        advance = Signal()
        masks = Signal(mask_word(params.lanes), reset_less=True)
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            go.eq(advance & held & buffer.available),
            self.o.p.eq(masks),
        ]
        with m.If(advance):
            m.d.sync += [
                self.o.valid.eq(go),
                masks.hp.eq(hp & inside),
                masks.lp.eq((v | refresh.replicate(params.lanes)) & ~hp & inside),
            ]
        return m
