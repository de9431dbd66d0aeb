"""Which row of O is updated next: tiles in order, factor words, and rows not read out yet."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .pv_words import OWNERS, RING_SLOTS, row_done


__all__ = ["ORows", "o_job", "o_tile"]


def o_tile(params):
    """A tile for the O update: its rows, whether it is the last key tile, and ``o_shift``."""
    return data.StructLayout({"rows": params.row_count_bits, "last": 1, "shift": 4})


def o_job(params):
    """A row to update, where its sums are, and the parity of its tile."""
    return data.StructLayout({"row": params.row_bits, "slot": ceil_log2(RING_SLOTS),
                              "owner": ceil_log2(OWNERS), "buffer": 1})


class ORows(AptComponent):
    """Chooses rows whose tile sums are complete, owners in turn.

    Tiles are worked on one after another. A tile is done when the factor words of all its rows
    have come and every row that contributes has been written; if it is a query tile's last, it
    then waits until the query tile before has been read out, and hands itself over to be read.
    A row is taken if it is of the tile at hand, its factor word has come, and, while a query tile
    is read out, its row has left already. A row that is offered is taken two cycles later at the
    earliest, four cycles after the one before of its owner.

    Members
    -------
    tile : :py:`In(stream.Signature(o_tile(params)))`
    row : 4 x :py:`In(stream.Signature(row_done(params)))`
    factor : :py:`In({valid, start, contributes})`
        A factor word has been written; ``start``: the first of a tile.
    factor_room : :py:`Out(1)`
        The first word of a tile may be written.
    factor_half : :py:`Out(1)`
        Half of the table for it.
    job : :py:`Out(stream.Signature(o_job(params)))`
    written : :py:`In(1)`
        A row has been written.
    shift : :py:`Out(4)`
        Of the tile at hand; it stays until all of its rows are written.
    reading, left : :py:`In`
        A query tile is read out, and the next of its rows to leave.
    done : :py:`Out(1)`
        Pulse: the tile at hand is done.
    finish : :py:`Out(1)`
        In the same cycle: a query tile of ``rows`` is complete, and read out from the next on.
    idle : :py:`Out(1)`
        There is no tile at hand.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(o_tile(params))),
            "row": In(stream.Signature(row_done(params))).array(OWNERS),
            "factor": In(data.StructLayout({"valid": 1, "start": 1, "contributes": 1})),
            "factor_room": Out(1),
            "factor_half": Out(1),
            "job": Out(stream.Signature(o_job(params))),
            "written": In(1),
            "shift": Out(4),
            "reading": In(1),
            "left": In(params.row_count_bits),
            "done": Out(1),
            "finish": Out(1),
            "rows": Out(params.row_count_bits),
            "idle": Out(1),
        }

    @property
    def latency(self):
        """Cycles from a row's offer to the job's, all else at hand: may it go, whose turn."""
        return 2

    @property
    def throughput(self):
        return "a row every two cycles; every four of one owner"

    def elaborate(self, platform):
        m = Module()
        p = self._params

        # Factor words, counted in the half of their tile.
        half = Signal(init=1)
        used = Signal(2)
        count_shape = Shape(p.row_count_bits)
        have, wanted = (Array([Signal(count_shape, name=f"{name}_{k}") for k in range(2)])
                        for name in ("have", "wanted"))
        target = Signal()
        m.d.comb += [
            target.eq(half ^ self.factor.start),
            self.factor_half.eq(target),
            self.factor_room.eq(~used.bit_select(~half, 1)),
        ]
        with m.If(self.factor.valid):
            m.d.sync += [
                half.eq(target),
                have[target].eq(have[target] + 1),
                wanted[target].eq(wanted[target] + self.factor.contributes),
                used.bit_select(target, 1).eq(1),
            ]

        # The tile at hand.
        busy, tile, parity = Signal(), Signal(o_tile(p), reset_less=True), Signal(init=1)
        count, complete, done = Signal(count_shape), Signal(), self.done
        m.d.comb += [
            self.tile.ready.eq(~busy),
            complete.eq((have[parity] == tile.rows) & (wanted[parity] == count)),
            done.eq(busy & complete & ~(tile.last & self.reading)),
            self.finish.eq(done & tile.last),
            self.rows.eq(tile.rows),
            self.shift.eq(tile.shift),
            self.idle.eq(~busy),
        ]
        with m.If(~busy):
            m.d.sync += [tile.eq(self.tile.p), busy.eq(self.tile.valid),
                         parity.eq(parity ^ self.tile.valid)]
        with m.If(self.written):
            m.d.sync += count.eq(count + 1)
        with m.If(done):
            m.d.sync += [busy.eq(0), count.eq(0), have[parity].eq(0), wanted[parity].eq(0),
                         used.bit_select(parity, 1).eq(0)]

        # Which owners' rows may go.
        able, taken = Signal(OWNERS), Signal(OWNERS)
        for owner, row in enumerate(self.row):
            number = Signal(p.row_bits + 1, name=f"row_of_{owner}")
            m.d.comb += [
                number.eq(Cat(C(owner, ceil_log2(OWNERS)), row.p.row_block)),
                row.ready.eq(taken[owner]),
            ]
            m.d.sync += able[owner].eq(
                row.valid & ~taken[owner] & busy & (row.p.buffer == parity)
                & (number < have[parity]) & (~self.reading | (number < self.left)))

        # Whose turn it is.
        job, job_valid = Signal(o_job(p), reset_less=True), Signal()
        choice, turn = Signal(range(OWNERS)), Signal(range(OWNERS))
        free = Signal()
        m.d.comb += [
            free.eq(~job_valid | self.job.ready),
            self.job.valid.eq(job_valid),
            self.job.p.eq(job),
        ]
        with m.Switch(turn):
            for owner in range(OWNERS):
                with m.Case(owner):
                    for step in range(OWNERS, 0, -1):  # of later assignments the last one counts
                        candidate = (owner + step) % OWNERS
                        with m.If(able[candidate]):
                            m.d.comb += choice.eq(candidate)
        for owner in range(OWNERS):
            m.d.comb += taken[owner].eq(free & able[owner] & (choice == owner))
        with m.If(free):
            m.d.sync += job_valid.eq(able.any())
            with m.If(able.any()):
                m.d.sync += [turn.eq(choice), job.owner.eq(choice), job.buffer.eq(parity)]
            with m.Switch(choice):
                for owner, row in enumerate(self.row):
                    with m.Case(owner):
                        m.d.sync += [job.slot.eq(row.p.slot),
                                     job.row.eq(Cat(C(owner, ceil_log2(OWNERS)),
                                                    row.p.row_block))]
        return m
