"""Compression of tile masks to row and column flags or to block flags (APT 4.3)."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import CODE_BITS
from golden.apt.thresholds import THRESHOLDS
from rtl.common.arith import tree_sum

from .component import AptComponent
from .flag_grid import CODE_PAIRS, FlagGrid, drive_by_word
from .flag_packer import FlagPacker
from .masks import mask_word


__all__ = ["MaskEncoder"]

_PLANES = ("hp", "v")


class MaskEncoder(AptComponent):
    """Code of one tile after the other: flags of the planes HP and V = HP | LP.

    A flag is set where the number of set elements in its group (codec ``rowcol``: a row, a column;
    codec ``block``: a block) exceeds the plane's threshold. Order and packing of the flags are
    those of :func:`golden.apt.mask_encoder.pack_code`; what the padding of a row's last word holds
    does not matter.

    Words of ``vpu_lanes`` elements are taken at one a cycle, with no gap between tiles, as long as
    the code keeps up: a block row's flags (``rowcol``: a tile's) leave in groups of
    ``gcd(8, blocks that end in a word)`` pairs a cycle, and a word of ``rowcol``'s row flags takes
    one more, which must be less than the cycles of the block row (of the tile). A block row's
    (a tile's) flags are held back while ``o`` is stalled, so that counting goes on for as long;
    then ``i`` waits.

    Each group's counter starts at its threshold and is decremented: its sign is the flag, with no
    comparator. The counters of blocks and columns are a memory of one word for each word of a row,
    read and written back within the cycle, so that there is no read-modify-write hazard however
    short a row is. As flip-flops the 224 bits of the default would cost 4,480 um2 on sky130 before
    any multiplexer, more than the whole block without them.

    At the default parameters: sky130 4,010 um2 and 264 bits of memory; ECP5 168 LUT4, 19 CCU2C,
    77 FF, 8 DPR16X4, 160 MHz. With ``rowcol``: 10,590 um2 and 2,528 bits; 449 LUT4, 150 CCU2C,
    106 FF, 76 DPR16X4, 128 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, tile and codec matter.

    Members
    -------
    i : :py:`In(stream.Signature(mask_word(params.vpu_lanes)))`
        Masks, row by row, tile after tile.
    o : :py:`Out(stream.Signature(16))`
        ``params.code_words`` words a tile.
    k_row_hp, k_row_v : :py:`In(params.key_count_bits)`
        Thresholds of rows, 0 to ``tile_k``. Codec ``rowcol`` only.
    k_col_hp, k_col_v : :py:`In(params.flag_count_bits)`
        Thresholds of columns, 0 to ``tile_q``. Codec ``rowcol`` only.
    k_hp, k_v : :py:`In(params.flag_count_bits)`
        Thresholds of blocks, 0 to a block's elements. Codec ``block`` only. A threshold must hold
        still from a tile's first word on ``i`` to its last on ``o``.
    """

    def _ports(self, params):
        names = THRESHOLDS[params.codec]._fields
        return {
            "i": In(stream.Signature(mask_word(params.vpu_lanes))),
            "o": Out(stream.Signature(CODE_BITS)),
            **{name: In(params.key_count_bits if name.startswith("k_row")
                        else params.flag_count_bits) for name in names},
        }

    @property
    def latency(self):
        """Cycles from the transfer of a tile's last word on ``i`` to ``o.valid`` of the last word
        of its code, for a tile that comes without gaps to an idle encoder. Where the code does
        not keep up, words of the tile have to wait, and this is an upper bound."""
        grid = FlagGrid(self._params, self._params.vpu_lanes)
        groups = [count // grid.group for count in grid.ends]
        if self._params.codec == "rowcol":
            return sum(groups) + 3
        # A word's flags are at the packer `delay` cycles after the word; a group takes a cycle.
        delay, cycle, free = self._count_delay + 1, 0, 0
        for rows in grid.block_rows:
            cycle += (rows - 1) * len(groups)
            for count in groups:
                free = max(free, cycle + delay) + count
                cycle += 1
        return free - (cycle - 1)

    @property
    def throughput(self):
        return f"{self._params.vpu_lanes} elements a cycle"

    @property
    def _count_delay(self):
        """Cycles that a word's counts wait in a register: single bits need no adders."""
        return 0 if self._params.flag_block[1] == 1 else 1

    def elaborate(self, platform):
        m = Module()
        params = self._params
        lanes, words = params.vpu_lanes, params.vpu_words
        grid = FlagGrid(params, lanes)
        rowcol = params.codec == "rowcol"

        m.submodules.packer = packer = FlagPacker(params)
        wiring.connect(m, packer.o, wiring.flipped(self.o))

        accept = Signal()
        m.d.comb += [
            self.i.ready.eq(packer.room),
            accept.eq(self.i.valid & self.i.ready),
        ]

        # Position of the word within the row, and of the row within block row and tile.
        word = Signal(range(max(words, 2)))
        row = Signal(range(params.tile_q))
        last_word, last_row = Signal(), Signal()
        # A register of its own: the multiplexers of every counter hang on it.
        first_of_block, last_of_block = Signal(init=1), Signal()
        m.d.comb += [
            last_word.eq(word == words - 1),
            last_row.eq(row == params.tile_q - 1),
        ]
        with m.If(accept):
            m.d.sync += word.eq(Mux(last_word, 0, word + 1))
            with m.If(last_word):
                m.d.sync += [
                    row.eq(Mux(last_row, 0, row + 1)),
                    first_of_block.eq(last_of_block),
                ]
        grid.drive_last_of_block(m, last_of_block, accept & last_word, last_row)

        # The two planes, without what pads the last word of a row.
        real = params.tile_k - (words - 1) * lanes
        inside = Signal(lanes)
        planes = [Signal(lanes, name=f"plane_{name}") for name in _PLANES]
        m.d.comb += [
            inside.eq(Mux(last_word, (1 << real) - 1, (1 << lanes) - 1)),
            planes[0].eq(self.i.p.hp & inside),
            planes[1].eq((self.i.p.hp | self.i.p.lp) & inside),
        ]

        position = (word, accept, first_of_block, last_of_block)
        self._count_blocks(m, grid, planes, position, packer)
        if rowcol:
            self._count_rows(m, planes, accept, word, last_word, last_row, packer)
        return m

    def _count_rows(self, m, planes, accept, word, last_word, last_row, packer):
        """Row flags, eight pairs to a word of the packer's row section."""
        params = self._params

        # Stage 1: the word's count.
        c_valid, c_first, c_last, c_last_row = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            c_valid.eq(accept),
            c_first.eq(word == 0),
            c_last.eq(last_word),
            c_last_row.eq(last_row),
        ]
        # Stage 2: what is left of the threshold.
        flags = Signal(2)
        for index, (name, plane) in enumerate(zip(_PLANES, planes, strict=True)):
            c_count = Signal(range(params.vpu_lanes + 1), name=f"c_count_{name}", reset_less=True)
            left = Signal(signed(params.key_count_bits + 1), name=f"left_{name}", reset_less=True)
            total = Signal(signed(params.key_count_bits + 1), name=f"row_total_{name}")
            m.d.sync += c_count.eq(tree_sum(plane))
            m.d.comb += [
                total.eq(Mux(c_first, getattr(self, f"k_row_{name}"), left) - c_count),
                flags[index].eq(total[-1]),
            ]
            with m.If(c_valid):
                m.d.sync += left.eq(total)
        # Pairs enter at the top; the last word of the section may be short, and moves down.
        pairs = Signal(CODE_BITS - 2, reset_less=True)
        taken = Signal(range(CODE_PAIRS))
        full, shifted = Signal(CODE_BITS), Signal(CODE_BITS)
        complete = Signal()
        short = params.tile_q % CODE_PAIRS
        m.d.comb += [
            full.eq(Cat(pairs, flags)),
            shifted.eq(Mux(c_last_row, full >> (CODE_BITS - 2 * short), full) if short else full),
            complete.eq((taken == CODE_PAIRS - 1) | c_last_row),
            packer.row_word.eq(shifted),
            packer.row_valid.eq(c_valid & c_last & complete),
        ]
        with m.If(c_valid & c_last):
            m.d.sync += [pairs.eq(full[2:]), taken.eq(Mux(complete, 0, taken + 1))]

    def _count_blocks(self, m, grid, planes, position, packer):
        """Flags of the blocks (of the columns) that end in the word, in a block row's last row."""
        params = self._params
        height, cols = params.flag_block
        delayed = self._count_delay == 1

        # Stage 1: count each segment of the word.
        most = min(cols, params.vpu_lanes)
        counts = [[Signal(range(most + 1), name=f"count_{name}_{index}", reset_less=True)
                   for index in range(grid.most_segments)] for name in _PLANES]
        word, valid, first, last = (self._delay(m, signal) if delayed else signal
                                    for signal in position)
        stage = m.d.sync if delayed else m.d.comb
        for index in range(grid.most_segments):
            lanes_in = grid.lanes_of_segment(m, position[0], index)
            for plane, count in zip(planes, counts, strict=True):
                # Lanes that are never in the segment cost nothing.
                bits = [plane[lane] & enable for lane, enable in enumerate(lanes_in)
                        if enable is not None]
                stage += count[index].eq(tree_sum(bits))

        # Stage 2: take the counts off what the earlier rows left of the thresholds.
        ends = Signal(range(grid.most_ends + 1))
        drive_by_word(m, word, ends, grid.ends)
        left_shape = signed(params.flag_count_bits + 1)
        slots = grid.most_ends
        stored = Signal(2 * slots * left_shape.width)
        totals = []
        for plane, name in enumerate(_PLANES):
            segments = counts[plane]
            if not grid.aligned:
                segments = self._carry(m, grid, name, segments, ends, valid)
            threshold = getattr(self, f"k_col_{name}" if params.codec == "rowcol" else f"k_{name}")
            for slot in range(slots):
                left = stored.word_select(plane * slots + slot, left_shape.width).as_signed()
                total = Signal(left_shape, name=f"total_{name}_{slot}")
                m.d.comb += total.eq(Mux(first, threshold, left) - segments[slot])
                totals.append(total)
        if height > 1:
            m.submodules.left = store = memory.Memory(
                shape=unsigned(len(stored)), depth=max(len(grid.words), 2), init=[])
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(word),
                write.addr.eq(word),
                write.data.eq(Cat(totals)),
                write.en.eq(valid),
                stored.eq(read.data),
            ]
        m.d.comb += [
            packer.pairs.eq(Cat(Cat(totals[slot][-1], totals[slots + slot][-1])
                                for slot in range(slots))),
            packer.ends.eq(ends),
            packer.valid.eq(valid & last & (ends != 0)),
        ]

    @staticmethod
    def _delay(m, signal):
        delayed = Signal.like(signal, name=f"c_{signal.name}")
        m.d.sync += delayed.eq(signal)
        return delayed

    def _carry(self, m, grid, name, counts, ends, valid):
        """Counts with the start of a block that an earlier word of the row left open."""
        bits = len(Const(self._params.flag_block[1]))
        carry = Signal(bits, name=f"carry_{name}")
        first = Signal(bits, name=f"first_{name}")
        m.d.comb += first.eq(counts[0] + carry)
        segments = [first, *counts[1:]]
        with m.If(valid):
            with m.Switch(ends):
                for number in sorted(set(grid.ends)):
                    with m.Case(number):
                        m.d.sync += carry.eq(segments[number] if number < len(segments) else 0)
        return segments
