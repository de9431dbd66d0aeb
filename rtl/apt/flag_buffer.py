"""Double buffer of the flags that a tile's code holds; the first stage of the mask decoder."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import CODE_BITS
from golden.common.checks import ceil_log2

from .flag_grid import CODE_PAIRS, FlagGrid, drive_by_word


__all__ = ["FlagBuffer"]


class FlagBuffer(wiring.Component):
    """Loads the flags of one block row (codec ``rowcol``: of one tile) while another is read.

    The flags are held as they are read: for each word of a row the pairs of its segments, so that
    a block which lies in two words is held twice. Loading starts as soon as a half is free.

    Members
    -------
    i : :py:`In(stream.Signature(16))`
        The code of one tile after the other.
    available : :py:`Out(1)`
        The half that is read is full.
    word, row : :py:`In`
        What is read: word in the row, row in the tile. The answer comes in the same cycle.
    pairs : :py:`Out(2 * segments)`
        Flag pairs of the segments of the word.
    row_pair : :py:`Out(2)`
        Flag pair of the row; 0 for codec ``block``.
    release : :py:`In(1)`
        The half is read to its end.
    """

    def __init__(self, params):
        self._params = params
        self._grid = FlagGrid(params, params.lanes)
        super().__init__({
            "i": In(stream.Signature(CODE_BITS)),
            "available": Out(1),
            "word": In(range(max(params.slots, 2))),
            "row": In(range(params.tile_q)),
            "pairs": Out(2 * self._grid.most_segments),
            "row_pair": Out(2),
            "release": In(1),
        })

    @staticmethod
    def _group(grid):
        return grid.group if grid.aligned else 1

    @classmethod
    def load_cycles(cls, params):
        """Cycles that a block row takes to load, without the words of row flags."""
        grid = FlagGrid(params, params.lanes)
        return sum(map(len, grid.words)) // cls._group(grid)

    def elaborate(self, platform):
        m = Module()
        params, grid = self._params, self._grid
        group = self._group(grid)

        # Two halves; `full` counts those that are loaded.
        full = Signal(range(3))
        load_half, read_half = Signal(), Signal()
        step, finished = Signal(), Signal()
        m.d.sync += [
            full.eq(full + finished - self.release),
            load_half.eq(load_half ^ finished),
            read_half.eq(read_half ^ self.release),
        ]
        room = Signal()
        in_rows = Signal()
        m.d.comb += [
            room.eq(full != 2),
            self.available.eq(full != 0),
            step.eq(self.i.valid & room & ~in_rows),
        ]

        # Where the group at hand belongs. A group is used up unless its block goes on in the next
        # word of the row.
        word, last_word = Signal(range(max(params.slots, 2))), Signal()
        most_groups = grid.most_segments // group
        number, last_group = Signal(range(max(most_groups, 2))), Signal()
        last_number = Signal.like(number)
        ends, used_up, last_of_block, last_of_tile = Signal(), Signal(), Signal(), Signal()
        drive_by_word(m, word, last_number, [len(segments) // group - 1 for segments in grid.words])
        drive_by_word(m, word, ends, [segments[-1].ends for segments in grid.words])
        m.d.comb += [
            last_word.eq(word == params.slots - 1),
            last_group.eq(number == last_number),
            used_up.eq(~last_group | ends),
            last_of_block.eq(last_word & last_group),
            finished.eq(step & last_of_block),
        ]
        with m.If(step):
            m.d.sync += number.eq(Mux(last_group, 0, number + 1))
            with m.If(last_group):
                m.d.sync += word.eq(Mux(last_word, 0, word + 1))
        if len(grid.block_rows) == 1:
            m.d.comb += last_of_tile.eq(last_of_block)
        else:
            block_row = Signal(range(len(grid.block_rows)))
            last_row = Signal()
            m.d.comb += [
                last_row.eq(block_row == len(grid.block_rows) - 1),
                last_of_tile.eq(last_of_block & last_row),
            ]
            with m.If(finished):
                m.d.sync += block_row.eq(Mux(last_row, 0, block_row + 1))

        # Where it is in its code word. What is left of a tile's last word is dropped.
        per_word = CODE_PAIRS // group
        taken, empty = Signal(range(max(per_word, 2))), Signal()
        m.d.comb += [
            empty.eq((taken == per_word - 1) | last_of_tile),
            self.i.ready.eq(room & (in_rows | (used_up & empty))),
        ]
        with m.If(step & used_up):
            m.d.sync += taken.eq(Mux(empty, 0, taken + 1))

        # The flags. Memories of two halves, each filled up to a power of two.
        m.submodules.grid = store = memory.Memory(
            shape=2 * grid.most_segments, depth=2 << ceil_log2(params.slots), init=[])
        write = store.write_port(granularity=2 * group)
        read = store.read_port(domain="comb")
        bits = ceil_log2(params.slots)
        m.d.comb += [
            write.addr.eq(Cat(word[:bits], load_half)),
            write.data.eq(self.i.p.word_select(taken, 2 * group).replicate(most_groups)),
            write.en.eq(Cat(step & (number == index) for index in range(most_groups))),
            read.addr.eq(Cat(self.word[:bits], read_half)),
            self.pairs.eq(read.data),
        ]
        if params.row_flags:
            self._row_flags(m, room, in_rows, finished, load_half, read_half)
        return m

    def _row_flags(self, m, room, in_rows, finished, load_half, read_half):
        """The section of row flags, which comes first: words as they are."""
        params = self._params
        bits, pair_bits = ceil_log2(params.row_code_words), ceil_log2(CODE_PAIRS)
        m.submodules.rows = store = memory.Memory(shape=CODE_BITS, depth=2 << bits, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        word = Signal(range(params.row_code_words + 1))
        m.d.comb += [
            in_rows.eq(word != params.row_code_words),
            write.addr.eq(Cat(word[:bits], load_half)),
            write.data.eq(self.i.p),
            write.en.eq(self.i.valid & room & in_rows),
            read.addr.eq(Cat(self.row[pair_bits:], read_half)),
            self.row_pair.eq(read.data.word_select(self.row[:pair_bits], 2)),
        ]
        with m.If(write.en):
            m.d.sync += word.eq(word + 1)
        with m.If(finished):
            m.d.sync += word.eq(0)
