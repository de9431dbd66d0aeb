"""Sums of runs from the lanes of all owners onto one bus (quad dataflow)."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .pv_words import OWNERS, RING_SLOTS, run_sums, run_tag


__all__ = ["FlushBus", "flush_word"]

#: Cycles from a turn's start to the next of the same owner, at the least: a tile sum that was
#: read has been written by then.
_TURN = 3


def flush_word(params):
    """Sums of one lane; ``slot`` of the owner's ring is the row's, ``end`` marks the last lane of a
    run."""
    return data.StructLayout({
        "valid": 1, "owner": ceil_log2(OWNERS), "slot": ceil_log2(RING_SLOTS),
        "lane": max(1, ceil_log2(params.owner_lanes)), "end": 1, "tag": run_tag(params),
        "values": data.ArrayLayout(signed(params.run_bits), params.multipliers)})


class FlushBus(AptComponent):
    """Takes the sums of runs as they end and sends them lane by lane, owners in turn.

    The lanes hold a run's sums until the owner's next run ends; from there they move into a
    register here (F2) as soon as it is free, and out of it by shifting, through a register of
    their own and a multiplexer of the owners, registered. A turn is ``owner_lanes`` cycles. The
    bus is never idle while two owners wait; one owner alone gets a turn every
    ``max(owner_lanes + 1, 3)`` cycles.

    ``flush_done`` of an owner pulses when its turn begins. A run that ends ``owner_lanes + 1``
    cycles later or more finds the lanes' registers free, if no more than ``RUNS_AHEAD`` runs were
    under way; so the way from an issue to the end of its run must take so long.

    Members
    -------
    run : 4 x :py:`In(run_sums(params))`
    flush_done : :py:`Out(4)`
    o : :py:`Out(flush_word(params))`
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "run": In(run_sums(params)).array(OWNERS),
            "flush_done": Out(OWNERS),
            "o": Out(flush_word(params)),
        }

    @property
    def latency(self):
        """Cycles from ``run.valid`` to ``o.valid`` of the first lane, all else idle: F2, the turn,
        the owner's register, the bus."""
        return 4

    @property
    def throughput(self):
        return "one lane a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        lanes = p.owner_lanes

        # Whose turn it is, one bit an owner as so much hangs on them, and which lane is sent.
        turn, on, recent = Signal(OWNERS), Signal(), Signal(range(OWNERS))
        lane, last_lane = Signal(range(max(2, lanes))), Signal(init=lanes == 1)
        pending, full, rested = Signal(OWNERS), Signal(OWNERS), Signal(OWNERS)
        waiting, choice = Signal(OWNERS), Signal(range(OWNERS))
        m.d.comb += waiting.eq(full & rested & ~turn)
        with m.Switch(recent):
            for owner in range(OWNERS):
                with m.Case(owner):
                    # The next after the last one; of later assignments the last one counts.
                    for step in range(OWNERS, 0, -1):
                        candidate = (owner + step) % OWNERS
                        with m.If(waiting[candidate]):
                            m.d.comb += choice.eq(candidate)
        with m.If(~on | last_lane):
            m.d.sync += [on.eq(waiting.any()), lane.eq(0), last_lane.eq(lanes == 1)]
            m.d.sync += [turn[owner].eq(waiting.any() & (choice == owner))
                         for owner in range(OWNERS)]
            with m.If(waiting.any()):
                m.d.sync += recent.eq(choice)
        with m.Else():
            m.d.sync += [lane.eq(lane + 1), last_lane.eq(lane == lanes - 2)]

        heads = []
        for owner, run in enumerate(self.run):
            held = Signal(data.ArrayLayout(run.sums[0].shape(), lanes), name=f"f2_{owner}",
                          reset_less=True)
            parked = Signal(run_tag(p), name=f"parked_tag_{owner}", reset_less=True)
            tag = Signal(run_tag(p), name=f"tag_{owner}", reset_less=True)
            head = Signal(flush_word(p), name=f"head_{owner}", reset_less=True)
            head_valid = Signal(name=f"head_valid_{owner}")
            heads.append((head_valid, head))
            mine, begins, leaves, load = (Signal(name=f"{name}_{owner}") for name in
                                          ("mine", "begins", "leaves", "load"))
            age = Signal(range(_TURN), name=f"age_{owner}")
            m.d.comb += [
                mine.eq(turn[owner]),
                begins.eq(mine & (lane == 0)),
                leaves.eq(mine & last_lane),
                load.eq((run.valid | pending[owner]) & (~full[owner] | leaves)),
                rested[owner].eq(age == 0),
                self.flush_done[owner].eq(begins),
            ]
            m.d.sync += [
                pending[owner].eq((run.valid | pending[owner]) & ~load),
                full[owner].eq(load | (full[owner] & ~leaves)),
                # Counts down to the next turn's earliest start, which is a cycle behind `rested`.
                age.eq(Mux(begins, max(0, _TURN - 2), Mux(age == 0, 0, age - 1))),
            ]
            with m.If(run.valid):
                m.d.sync += parked.eq(run.tag)
            with m.If(load):
                m.d.sync += [held.eq(run.sums), tag.eq(Mux(run.valid, run.tag, parked))]
            with m.Elif(mine):
                m.d.sync += [held[k].eq(held[k + 1]) for k in range(lanes - 1)]

            slot = Signal(ceil_log2(RING_SLOTS), name=f"slot_{owner}")
            with m.If(leaves & tag.row_last):
                m.d.sync += slot.eq(slot + 1)  # as many as its bits count
            m.d.sync += [
                head_valid.eq(mine),
                head.slot.eq(slot),
                head.valid.eq(1),
                head.owner.eq(owner),
                head.lane.eq(lane),
                head.end.eq(last_lane),
                head.tag.eq(tag),
                head.values.eq(held[0]),
            ]

        # The bus.
        sent = Signal(self.o.shape(), reset_less=True)
        sent_valid = Signal()
        m.d.sync += sent_valid.eq(Cat(valid for valid, _ in heads).any())
        for valid, head in heads:
            with m.If(valid):
                m.d.sync += sent.eq(head)
        m.d.comb += [self.o.eq(sent), self.o.valid.eq(sent_valid)]
        return m
