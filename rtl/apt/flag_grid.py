"""Where the words of a tile row meet the flag blocks: geometry for mask encoder and decoder."""

import math
from typing import NamedTuple

from amaranth import *

from golden.apt.params import CODE_BITS


__all__ = ["CODE_PAIRS", "FlagGrid", "Segment", "drive_by_word"]

#: Flag pairs in a code word.
CODE_PAIRS = CODE_BITS // 2


def drive_by_word(m, word, target, table):
    """Drive ``target`` with ``table[word]``; with a constant where the table is one."""
    if len(set(table)) == 1:
        m.d.comb += target.eq(table[0])
        return
    with m.Switch(word):
        for index, value in enumerate(table):
            with m.Case(index):
                m.d.comb += target.eq(value)


class Segment(NamedTuple):
    """The lanes ``low`` to ``high - 1`` of a word, which lie in one flag block.

    ``ends`` tells whether the block's last key is among them.
    """

    low: int
    high: int
    ends: bool


class FlagGrid:
    """How rows of ``width`` lanes a word are cut by the flag blocks of ``params``.

    Attributes
    ----------
    words : list of lists of :class:`Segment`
        The segments of each word of a row, in order.
    ends : list of int
        Blocks that end in each word.
    aligned : :class:`bool`
        No block lies in two words.
    block_rows : list of int
        Rows of each block row: all ``flag_block[0]`` but a short one at the end.
    """

    def __init__(self, params, width):
        _, cols = params.flag_block
        self.width = width
        self.words = []
        for first in range(0, params.tile_k, width):
            end = min(first + width, params.tile_k)
            segments, key = [], first
            while key < end:
                block_end = min((key // cols + 1) * cols, params.tile_k)
                high = min(block_end, end)
                segments.append(Segment(key - first, high - first, high == block_end))
                key = high
            self.words.append(segments)
        self.ends = [sum(segment.ends for segment in word) for word in self.words]
        self.aligned = self.ends == [len(word) for word in self.words]
        rows, _ = params.flag_block
        self.block_rows = [min(rows, params.tile_q - row) for row in range(0, params.tile_q, rows)]

    @property
    def columns(self):
        """Flag pairs of a block row."""
        return sum(self.ends)

    @property
    def most_segments(self):
        """Segments of the word that has most."""
        return max(map(len, self.words))

    @property
    def most_ends(self):
        """Blocks that end in the word where most do."""
        return max(self.ends)

    @property
    def group(self):
        """Flag pairs that can be moved at once, whatever word they belong to."""
        return math.gcd(CODE_PAIRS, *self.ends)

    def drive_last_of_block(self, m, last_of_block, row_done, last_row):
        """Drive ``last_of_block``, whether the row at hand is the last of its block row.

        ``row_done`` moves on to the next row; ``last_row`` is the tile's last.
        """
        if len(self.block_rows) == 1:
            m.d.comb += last_of_block.eq(last_row)
            return
        height = self.block_rows[0]
        row_in_block = Signal(range(max(height, 2)))
        m.d.comb += last_of_block.eq((row_in_block == height - 1) | last_row)
        with m.If(row_done):
            m.d.sync += row_in_block.eq(Mux(last_of_block, 0, row_in_block + 1))

    def lanes_of_segment(self, m, word, index):
        """For each lane whether it is in segment ``index`` of word ``word``: 1 if in every word,
        ``None`` if in none, otherwise a signal. Padding lanes may count as either."""
        tables = [[next((number for number, segment in enumerate(segments)
                         if segment.low <= lane < segment.high), None) for segments in self.words]
                  for lane in range(self.width)]
        if all(set(table) <= {table[0], None} for table in tables):
            return [1 if table[0] == index else None for table in tables]
        chosen = Signal(self.width, name=f"lanes_of_segment_{index}")
        drive_by_word(m, word, chosen, [
            sum((table[number] == index) << lane for lane, table in enumerate(tables))
            for number in range(len(self.words))])
        return [chosen[lane] if index in table else None for lane, table in enumerate(tables)]
