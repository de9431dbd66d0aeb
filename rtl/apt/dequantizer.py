"""Reads out the sums of QK and turns them into logits."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.stream import travel_along

from .component import AptComponent
from .logit_lane import LogitLane
from .qk_words import (
    LOGIT_BITS,
    MANTISSA_BITS,
    SHIFT_BITS,
    SLOTS,
    parked_sums,
    qk_mark,
)
from .softmax_words import logit_word


__all__ = ["Dequantizer"]


class Dequantizer(AptComponent):
    """Logits of a step's keys, one key a cycle for the rows of all four owners.

    A mark says that the sums of its step are complete. They are read where the lanes hold them,
    key 0 in the cycle of the mark and one more each cycle: **they must stay for
    ``params.step_keys`` cycles**, and no sooner may the next step's mark come. ``mantissa`` and
    ``shift`` are looked at in the cycle of the mark alone.

    The mark of a block row without blocks becomes a word without logits. It may come in any cycle;
    where sums are being read it waits, and so may up to three of them (four block rows are all
    there can be). The next step's mark must leave each of them a cycle: it comes ``step_keys``
    cycles after the mark before it, of either kind, as the block sequencer has it.

    Four multipliers of ``params.logit_acc_bits`` x 16 bits. Words come out in the order of marks
    and of keys; they cannot be stalled.

    Parameters
    ----------
    params : :class:`AptParams`
        ``lanes``, ``head_dim``, ``segment_bits`` and tile matter.

    Members
    -------
    mark : :py:`In(qk_mark(params))`
        What the sums belong to.
    sums : :py:`In(parked_sums(params))`
        Sums by owner, lane and key of the lane; key ``2 * lane + j`` of the step.
    mantissa, shift : :py:`In(16)`, :py:`In(6)`
        Scale of the tile's logits, ``mantissa * 2**-shift``; ``shift`` is 1 to 63.
    o : ``valid`` and :py:`logit_word(params)`
        Logits. Those of a word with ``none``, and its key, mean nothing.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "mark": In(qk_mark(params)),
            "sums": In(parked_sums(params)),
            "mantissa": In(MANTISSA_BITS),
            "shift": In(SHIFT_BITS),
            "o": Out(data.StructLayout({
                "valid": 1, **{name: field.shape for name, field in logit_word(params)}})),
        }

    @property
    def latency(self):
        """Cycles from a mark to the word of its first key, or its only word."""
        return 1 + LogitLane.STAGES

    @property
    def throughput(self):
        return "1 key of 4 rows a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        mark = self.mark

        # Which key of the step; 0 at rest, as the first is read in the cycle of the mark.
        start, empty, reading, last = Signal(), Signal(), Signal(), Signal()
        index = Signal(ceil_log2(params.step_keys))
        m.d.comb += [
            start.eq(mark.valid & ~mark.none),
            empty.eq(mark.valid & mark.none),
            reading.eq(start | index.any()),
            last.eq(index.all()),
        ]
        m.d.sync += index.eq(index + reading)

        # Block rows without blocks that wait for their cycle, oldest first.
        waiting = min(SLOTS, params.step_keys) - 1
        there = [Signal(name=f"waiting_{k}") for k in range(waiting)]
        rows = [Signal(len(mark.row_block), name=f"waiting_row_{k}", reset_less=True)
                for k in range(waiting)]
        pop = Signal()
        m.d.comb += pop.eq(~reading & there[0])
        for k in range(waiting):
            # What this place has after a pop, and whether an arrival is to go here.
            moved, moved_row = ((there[k + 1], rows[k + 1]) if k + 1 < waiting
                                else (C(0, 1), mark.row_block))
            stays = Mux(pop, moved, there[k])
            below = C(1, 1) if k == 0 else Mux(pop, there[k], there[k - 1])
            arrives = empty & (reading | there[0]) & below & ~stays
            m.d.sync += [
                there[k].eq(stays | arrives),
                rows[k].eq(Mux(arrives, mark.row_block, Mux(pop, moved_row, rows[k]))),
            ]

        # First register: the operands of the key, and what they are.
        held = Signal(data.StructLayout({
            "row_block": len(mark.row_block), "block": len(mark.key_block) + len(mark.step),
            "end": 1}), reset_less=True)
        now = Signal.like(held)
        with m.If(start):
            m.d.comb += [now.row_block.eq(mark.row_block), now.end.eq(mark.end),
                         now.block.eq(Cat(mark.step, mark.key_block))]
            m.d.sync += held.eq(now)
        with m.Else():
            m.d.comb += now.eq(held)
        mantissa = Signal(MANTISSA_BITS, reset_less=True)
        places = Signal(SHIFT_BITS, reset_less=True)
        with m.If(start):
            m.d.sync += [mantissa.eq(self.mantissa), places.eq(self.shift - 1)]

        for owner in range(params.block_rows):
            acc = Signal(signed(params.logit_acc_bits), name=f"acc_{owner}", reset_less=True)
            with m.Switch(index):
                for key in range(params.step_keys):
                    with m.Case(key):
                        m.d.sync += acc.eq(self.sums[owner][key // 2][key % 2])
            m.submodules[f"lane_{owner}"] = lane = LogitLane(params)
            z = Signal(signed(LOGIT_BITS), name=f"z_{owner}")
            m.d.comb += [
                lane.acc.eq(acc),
                lane.mantissa.eq(mantissa),
                lane.places.eq(places),
                z.eq(lane.z),
                self.o.z[owner].eq(z),
            ]

        valid, row_block, key, end, none = travel_along(
            m, C(1, 1), self.latency, reading | empty | there[0],
            row_block=Mux(reading, now.row_block, Mux(there[0], rows[0], mark.row_block)),
            key=Cat(index, now.block), end=~reading | (now.end & last), none=~reading)
        m.d.comb += [
            self.o.valid.eq(valid), self.o.row_block.eq(row_block), self.o.key.eq(key),
            self.o.end.eq(end), self.o.none.eq(none),
        ]
        return m
