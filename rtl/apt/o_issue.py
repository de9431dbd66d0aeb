"""Which word of O is worked on in a cycle: of an update, or of the output (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .o_rows import o_job
from .pv_words import OWNERS, o_row_words, sums_address


__all__ = ["OIssue", "o_place"]


def o_place(params):
    """A word of O, for an update or for ``output``; ``half`` of the table that its factor is in."""
    return data.StructLayout({
        "valid": 1, "output": 1, "row": params.row_bits,
        "word": max(1, ceil_log2(o_row_words(params))), "half": 1, "row_end": 1, "last": 1})


class OIssue(AptComponent):
    """Goes through the words of rows to update, and through those of a query tile in between.

    Updates go first, without a gap between rows. The output takes the other cycles, if the row's
    final word is there and ``room`` says that there is space for what comes out.

    Members
    -------
    job : :py:`In(stream.Signature(o_job(params)))`
    finish, rows : :py:`In`
        A query tile of so many rows is complete: from :class:`ORows`, while nothing is read.
    room : :py:`In(1)`
    have : :py:`In(params.row_count_bits)`
        Final words in ``half`` of their table.
    half : :py:`Out(1)`
    reading, left : :py:`Out`
        A query tile is read out, and the next of its rows to leave.
    o : :py:`Out(o_place(params))`
        From registers, in the cycle in which ``read`` says where the sums are.
    read : :py:`Out(sums_address(params))`
    row_room : :py:`Out(4)`
        The last sums of an owner's row were read the cycle before.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "job": In(stream.Signature(o_job(params))),
            "finish": In(1),
            "rows": In(params.row_count_bits),
            "room": In(1),
            "have": In(params.row_count_bits),
            "half": Out(1, init=1),
            "reading": Out(1),
            "left": Out(params.row_count_bits),
            "o": Out(o_place(params)),
            "read": Out(sums_address(params)),
            "row_room": Out(OWNERS),
        }

    @property
    def latency(self):
        """Cycles from ``job.valid`` to its first word."""
        return 0

    @property
    def throughput(self):
        return "one word a cycle"

    def elaborate(self, platform):
        m = Module()
        p, word = self._params, self.o
        job = self.job.p
        words = o_row_words(p)

        update, output, last_word = Signal(), Signal(), Signal()
        count, out_count = Signal(word.word.shape()), Signal(word.word.shape())
        out_rows = Signal(p.row_count_bits, reset_less=True)
        m.d.comb += [
            update.eq(self.job.valid),
            output.eq(~update & self.reading & self.room & (self.left < self.have)),
            last_word.eq(word.word == words - 1),
            self.job.ready.eq(last_word),
            self.read.owner.eq(job.owner),
            self.read.slot.eq(job.slot),
            self.read.word.eq(count >> 1),
            word.valid.eq(update | output),
            word.output.eq(~update),
            word.row.eq(Mux(update, job.row, self.left)),
            word.word.eq(Mux(update, count, out_count)),
            word.half.eq(Mux(update, job.buffer, self.half)),
            word.row_end.eq(last_word),
            word.last.eq(last_word & (self.left == out_rows - 1)),
        ]
        with m.If(update):
            m.d.sync += count.eq(Mux(last_word, 0, count + 1))
        for owner in range(OWNERS):
            m.d.sync += self.row_room[owner].eq(update & last_word & (job.owner == owner))
        with m.If(output):
            m.d.sync += out_count.eq(Mux(last_word, 0, out_count + 1))
            with m.If(last_word):
                m.d.sync += [self.left.eq(self.left + 1), self.reading.eq(~word.last)]
        with m.If(self.finish):
            m.d.sync += [self.reading.eq(1), self.left.eq(0), out_rows.eq(self.rows),
                         self.half.eq(~self.half)]
        return m
