"""Cycle model of what lies between QK and PV: softmax, thresholds, lists and the row work.

Block rows go through in order. Each unit is what its component states: when it begins (what it
waits for), how long it is busy, and when what it gives is there. Times are cycles, and of streams
those of transfers.
"""

from collections import deque

from golden.common.checks import ceil_log2

from .quad_shape import BLOCK_KEYS, OWNERS


__all__ = ["SLOTS", "SoftmaxCycles"]

#: Block rows that have room for S, for P', for sums on the way, and for headers.
SLOTS = 4
_ROWS = 8
#: From an end of QK to its sums but for the levels of the adder tree, and to their first logit.
_SUMS, _LOGIT = 9, 6
#: From a block row's last logit to its first read, and from a read to P'.
_STORED, _POWER = 4, 5
#: From a block row's last P' to its sums but for the adder tree; from these to the first row.
_SUMMED, _FIRST_ROW = 3, 1
#: Cycles of the TAFA unit for a row of a tile, until its answer, and for a whole row.
_TAFA, _ANSWER, _TAFA_WHOLE = 11, 10, 7
#: Cycles of the running sums for a row, for one of the last key tile; until its factor of O, and
#: until the whole row's sum.
_RESCALE, _RESCALE_LAST, _FACTOR, _WHOLE = 13, 31, 8, 13
#: Cycles for which a row lies before the running sums at least.
_SEEN = 1
#: From a block row's last read of P' to its header, and to the next tile's first.
_HEADER, _TILE_GAP = 7, 7


class _Moves:
    """Time in which a pipeline moves: all but the intervals in which it is held."""

    def __init__(self):
        self._held = deque()  # (from, to)

    def hold(self, start, end):
        self._held.append((start, end))

    def after(self, start, moves):
        """When ``moves`` moves have been made, the first one in cycle ``start`` or later."""
        for begin, end in self._held:
            if end <= start:
                continue
            if begin <= start:
                start = end
            elif begin < start + moves:
                moves -= begin - start
                start = end
        return start + moves

    def forget(self, before):
        """Drop intervals that ended ``before``."""
        while self._held and self._held[0][1] < before:
            self._held.popleft()


class SoftmaxCycles:
    """Block rows from QK to their lists, and their rows to their factors of O.

    Parameters
    ----------
    params : :class:`~golden.apt.params.AptParams`
        Shape of the engine.

    Attributes
    ----------
    logits : :class:`int`
        Cycles from an end of QK to the first logit of its step.
    sums : :class:`int`
        Cycles from a block row's last P' to its sums.
    """

    def __init__(self, params):
        self._params = params
        self.logits = _SUMS + ceil_log2(params.qk_width) + _LOGIT
        self.sums = _SUMMED + ceil_log2(params.slice_keys)
        self._moves = _Moves()
        # Of earlier block rows, oldest first: the last read of S, of P'; sums and header gone.
        self._read_s, self._read_p = deque([0] * SLOTS, SLOTS), deque([0] * SLOTS, SLOTS)
        self._summed, self._headed = deque([0] * _ROWS, _ROWS), deque([0] * _ROWS, _ROWS)
        self._logit = self._list_free = self._tafa_free = self._taken = self._rescale_free = 0
        self._whole = deque()  # when sums of whole rows are there for TAFA
        self._end = 0          # of the tile at hand: its last row's factor

    def slot(self):
        """When the next block row of QK may be taken."""
        return self._read_s[0] + 2

    def _powers(self, mark, blocks):
        """P' and sums of a block row whose QK ends at ``mark``; when its sums are there."""
        params, moves = self._params, self._moves
        wait = params.step_keys - 1 if blocks else 0
        self._logit = max(mark + self.logits + wait, self._logit + 1)
        words = max(1, blocks * BLOCK_KEYS // params.slice_keys)
        first = max(self._logit + _STORED, self._read_s[-1] + 1, self._summed[0] + 1)
        moves.forget(first - _POWER)
        first = moves.after(first, 0)
        out, free = moves.after(first, _POWER), self._read_p[0] + 2
        if free > out:
            moves.hold(out, free)
        last = moves.after(moves.after(first, words - 1), 0)
        self._read_s.append(last)
        return moves.after(last, _POWER) + self.sums

    def _row_of_tafa(self, ready, duration):
        """Begin of a row; whole rows that are there go first."""
        start = max(ready, self._tafa_free)
        while self._whole and self._whole[0] <= start:
            self._tafa_free = max(self._whole.popleft(), self._tafa_free) + _TAFA_WHOLE
            start = max(start, self._tafa_free)
        self._tafa_free = start + duration
        return start

    def _thresholds(self, summed):
        """Rows of a block row through TAFA; when their thresholds are there."""
        ready = max(summed, self._summed[-1] + 1, self._headed[0] + 1) + _FIRST_ROW
        for _ in range(OWNERS):
            start = self._row_of_tafa(ready, _TAFA)
            # An answer waits for the word of thresholds before, and holds the next row up.
            self._tafa_free = ready = max(start + _ANSWER, self._taken + 1) + _TAFA - _ANSWER
        self._summed.append(start)
        return ready

    def _lists(self, thresholds, blocks):
        """P' of a block row to entries; when its header is there."""
        start = max(thresholds, self._list_free, self._headed[0] + 1)
        self._taken = start + 1
        last = start + max(1, blocks * BLOCK_KEYS) - 1
        self._list_free = last + (1 if blocks else 2)
        self._read_p.append(last)
        return last + _HEADER

    def _factors(self, header, rows, unit_v, last):
        """Rows of a block row into the running sums; ``rows`` of them are inside."""
        now = max(header, self._headed[-1] + 1, unit_v) + _SEEN
        for row in range(OWNERS):
            if row < rows:
                now = max(now, self._rescale_free)
                self._rescale_free = now + (_RESCALE_LAST if last else _RESCALE)
                self._end = now + _FACTOR
                if last:
                    self._whole.append(now + _WHOLE)
            now += 1 + _SEEN if row < OWNERS - 1 else 0
        self._headed.append(now)

    def block_row(self, mark, blocks, rows, *, unit_v, last):
        """A block row.

        Parameters
        ----------
        mark : :class:`int`
            The end of its QK.
        blocks : :class:`int`
            Blocks that are computed.
        rows : :class:`int`
            Rows of it that are inside the sequence.
        unit_v : :class:`int`
            When the scale of the tile's V is known.
        last : :class:`bool`
            Whether this is the query tile's last key tile.
        """
        header = self._lists(self._thresholds(self._powers(mark, blocks)), blocks)
        self._factors(header, rows, unit_v, last)

    def end_tile(self, outside):
        """When the tile is listed, after ``outside`` block rows that have no rows."""
        self._list_free += outside + _TILE_GAP
        if outside:
            headed = max(self._read_p[-1] + _HEADER, self._headed[-1]) + (1 + _SEEN) * outside
            self._headed[-1] = headed
        return max(self._end + 2, self._headed[-1] + 3)
