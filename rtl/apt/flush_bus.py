"""Sums of runs from the lanes of all owners onto one bus (quad dataflow)."""

import functools
import operator

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .flush_lane import FlushLane
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
    register here (F2, :class:`FlushLane`) as soon as it is free, and out of it by shifting,
    through a register of the owner, zero out of its turn: the bus is what all owners' have in
    common. A turn is ``owner_lanes`` cycles. The bus is never idle while two owners wait; one owner
    alone gets a turn every ``max(owner_lanes + 1, 3)`` cycles.

    ``flush_done`` of an owner pulses when its turn begins. A run that ends ``owner_lanes + 1``
    cycles later or more finds the lanes' registers free, if no more than ``RUNS_AHEAD`` runs were
    under way; so the way from an issue to the end of its run must take so long.

    Members
    -------
    run : 4 x :py:`In(run_sums(params))`
    flush_done : :py:`Out(4)`
    o : :py:`Out(flush_word(params))`
        A gate behind registers: whoever takes it registers what is wanted.
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
        the owner's register."""
        return 3

    @property
    def throughput(self):
        return "one lane a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        lanes = p.owner_lanes

        # Whose turn it is, one bit an owner, and which lane is sent.
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
        # Whose turn it is next: every lane registers it.
        any_waiting, change = Signal(), Signal()
        next_turn, next_last = Signal(OWNERS), Signal()
        m.d.comb += [
            any_waiting.eq(waiting.any()),
            change.eq(~on | last_lane),
            next_last.eq(Mux(change, lanes == 1, lane == lanes - 2)),
            next_turn.eq(Mux(change, Cat(any_waiting & (choice == owner)
                                         for owner in range(OWNERS)), turn)),
        ]
        m.d.sync += [turn.eq(next_turn), last_lane.eq(next_last)]
        with m.If(change):
            m.d.sync += [on.eq(any_waiting), lane.eq(0)]
            with m.If(any_waiting):
                m.d.sync += recent.eq(choice)
        with m.Else():
            m.d.sync += lane.eq(lane + 1)

        heads = []
        for owner, run in enumerate(self.run):
            parked = Signal(run_tag(p), name=f"parked_tag_{owner}", reset_less=True)
            tag = Signal(run_tag(p), name=f"tag_{owner}", reset_less=True)
            begins, leaves, load, next_load, next_full, next_pending = (
                Signal(name=f"{name}_{owner}") for name in (
                    "begins", "leaves", "load", "next_load", "next_full", "next_pending"))
            age = Signal(range(_TURN), name=f"age_{owner}")
            m.d.comb += [
                begins.eq(turn[owner] & (lane == 0)),
                leaves.eq(turn[owner] & last_lane),
                next_pending.eq((run.valid | pending[owner]) & ~load),
                next_full.eq(load | (full[owner] & ~leaves)),
                # The lanes take a run when F2 is free, or its last lane leaves.
                next_load.eq((run.soon | next_pending)
                             & (~next_full | (next_turn[owner] & next_last))),
                rested[owner].eq(age == 0),
                self.flush_done[owner].eq(begins),
            ]
            m.d.sync += [
                load.eq(next_load),
                pending[owner].eq(next_pending),
                full[owner].eq(next_full),
                # Counts down to the next turn's earliest start, which is a cycle behind `rested`.
                age.eq(Mux(begins, max(0, _TURN - 2), Mux(age == 0, 0, age - 1))),
            ]
            with m.If(run.valid):
                m.d.sync += parked.eq(run.tag)
            with m.If(load):
                m.d.sync += tag.eq(Mux(run.valid, run.tag, parked))

            registers = [FlushLane(p, first=k == 0) for k in range(lanes)]
            for k, register in enumerate(registers):
                m.submodules[f"flush_{owner}_{k}"] = register
                m.d.comb += [register.load.eq(next_load), register.turn.eq(next_turn[owner]),
                             register.sums.eq(run.sums[k])]
                if k + 1 < lanes:
                    m.d.comb += register.next.eq(registers[k + 1].o)

            slot = Signal(ceil_log2(RING_SLOTS), name=f"slot_{owner}")
            with m.If(leaves & tag.row_last):
                m.d.sync += slot.eq(slot + 1)  # as many as its bits count
            head = Signal(flush_word(p), name=f"head_{owner}")
            control = Signal(flush_word(p), name=f"control_{owner}")
            m.d.sync += control.eq(0)
            with m.If(turn[owner]):
                m.d.sync += [
                    control.valid.eq(1),
                    control.slot.eq(slot),
                    control.owner.eq(owner),
                    control.lane.eq(lane),
                    control.end.eq(last_lane),
                    control.tag.eq(tag),
                ]
            m.d.comb += [head.eq(control), head.values.eq(registers[0].o)]
            heads.append(head.as_value())

        m.d.comb += self.o.as_value().eq(functools.reduce(operator.or_, heads))
        return m
