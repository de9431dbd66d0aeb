"""Through the elements of one owner's rows, run by run (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .pv_headers import pv_row
from .pv_words import RING_SLOTS, RUNS_AHEAD, row_block_bits, run_tag


__all__ = ["PvWalk", "pv_place"]


class Leg(enum.Enum, shape=3):
    """A stretch of a row's elements with the same segments of P and V."""

    HIGH = 0    #: P_H x V_H over the high-precision elements
    LOW = 1     #: P_H x V_H over the low-precision elements
    MID_HL = 2  #: P_H x V_L
    MID_LH = 3  #: P_L x V_H
    LL = 4      #: P_L x V_L


def pv_place(params):
    """An element: where it is in the lists, and which segments of P and V are multiplied."""
    return data.StructLayout({
        "valid": 1, "buffer": 1, "row_block": row_block_bits(params), "position": params.key_bits,
        "p_low": 1, "v_low": 1, "first": 1, "last": 1, "tag": run_tag(params)})


class PvWalk(AptComponent):
    """Issues a row's elements in the order that :class:`PvSequencer` states, one a cycle.

    The next row is taken with the last element of a row. Members as there, and:

    Members
    -------
    row : :py:`In(stream.Signature(pv_row(params)))`
    o : :py:`Out(pv_place(params))`
        Elements, from registers that hold where the walk is.
    active : :py:`Out(1)`
        A row is under way.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "row": In(stream.Signature(pv_row(params))),
            "o": Out(pv_place(params)),
            "active": Out(1),
            "flush_done": In(1),
            "row_room": In(1),
            "wait_flush": Out(1),
            "wait_row": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a row to its first element."""
        return 1

    @property
    def throughput(self):
        return "one element a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params

        # The row at hand, and where in it.
        active, row = self.active, Signal(pv_row(p), reset_less=True)
        pass_ = Signal(run_tag(p)["pass_"].shape, reset_less=True)
        leg = Signal(Leg, reset_less=True)
        position = Signal(p.key_bits, reset_less=True)
        left = Signal(p.key_count_bits, reset_less=True)
        one, run_first = Signal(reset_less=True), Signal(reset_less=True)

        run_end, pass_end, row_end, last_pass = Signal(), Signal(), Signal(), Signal()
        high_level = (leg == Leg.HIGH) | (leg == Leg.LOW)
        m.d.comb += [
            last_pass.eq(pass_ == p.column_passes - 1),
            run_end.eq(one & Mux(leg == Leg.HIGH, ~row.has_lp, leg != Leg.MID_HL)),
            pass_end.eq(one & ((leg == Leg.LL) | ((leg == Leg.LOW) & ~row.has_hp))),
            row_end.eq(pass_end & last_pass),
        ]

        # Credits: a last element needs room for the run's sums, and for its row's.
        flush_ok, slot_ok, needs_slot = Signal(), Signal(), Signal()
        m.d.comb += [
            needs_slot.eq(run_end & high_level & (pass_ == 0)),
            self.wait_flush.eq(active & run_end & ~flush_ok),
            self.wait_row.eq(active & needs_slot & flush_ok & ~slot_ok),
            self.o.valid.eq(active & (~run_end | flush_ok) & (~needs_slot | slot_ok)),
        ]
        self._credits(m, "flush", RUNS_AHEAD, self.o.valid & run_end, self.flush_done, flush_ok)
        self._credits(m, "slot", RING_SLOTS, self.o.valid & needs_slot, self.row_room, slot_ok)

        def begin(to, high):
            """Go on with leg ``to``, over the high-precision elements or the others."""
            return [
                leg.eq(to), position.eq(0 if high else p.tile_k - 1),
                left.eq(row.n_hp if high else row.n_lp),
                one.eq(row.one_hp if high else row.one_lp),
            ]

        with m.If(self.o.valid):
            m.d.sync += [
                run_first.eq(run_end),
                left.eq(left - 1),
                one.eq(left == 2),
                position.eq(position + Mux(leg == Leg.LOW, -1, 1)),
            ]
            with m.If(one):
                with m.Switch(leg):
                    with m.Case(Leg.HIGH):
                        with m.If(row.has_lp):
                            m.d.sync += begin(Leg.LOW, False)
                        with m.Else():
                            m.d.sync += begin(Leg.MID_HL, True)
                    with m.Case(Leg.LOW):
                        m.d.sync += begin(Leg.MID_HL, True)
                    with m.Case(Leg.MID_HL):
                        m.d.sync += begin(Leg.MID_LH, True)
                    with m.Case(Leg.MID_LH):
                        m.d.sync += begin(Leg.LL, True)
            with m.If(pass_end):
                m.d.sync += pass_.eq(pass_ + 1)
                with m.If(row.has_hp):
                    m.d.sync += begin(Leg.HIGH, True)
                with m.Else():
                    m.d.sync += begin(Leg.LOW, False)

        m.d.comb += self.row.ready.eq(~active | (self.o.valid & row_end))
        with m.If(self.row.ready):
            ahead = self.row.p
            m.d.sync += [
                active.eq(self.row.valid),
                row.eq(ahead),
                pass_.eq(0),
                run_first.eq(1),
                leg.eq(Mux(ahead.has_hp, Leg.HIGH, Leg.LOW)),
                position.eq(Mux(ahead.has_hp, 0, p.tile_k - 1)),
                left.eq(Mux(ahead.has_hp, ahead.n_hp, ahead.n_lp)),
                one.eq(Mux(ahead.has_hp, ahead.one_hp, ahead.one_lp)),
            ]

        now = self.o
        m.d.comb += [
            now.buffer.eq(row.buffer),
            now.row_block.eq(row.row_block),
            now.position.eq(position),
            now.first.eq(run_first),
            now.last.eq(run_end),
            now.p_low.eq((leg == Leg.MID_LH) | (leg == Leg.LL)),
            now.v_low.eq((leg == Leg.MID_HL) | (leg == Leg.LL)),
            now.tag.buffer.eq(row.buffer),
            now.tag.row_block.eq(row.row_block),
            now.tag.pass_.eq(pass_),
            now.tag.shift.eq(Mux(high_level, 2, Mux(leg == Leg.LL, 0, 1))),
            now.tag.row_first.eq(high_level),
            # Of the run, so that it is the same in all of its elements.
            now.tag.row_last.eq(last_pass & ((leg == Leg.LL) | ~row.has_hp)),
        ]
        return m

    @staticmethod
    def _credits(m, name, limit, take, give, some):
        """Count credits up to ``limit``, all there at first; ``some`` is high if there are any."""
        count = Signal(range(limit + 1), init=limit, name=f"{name}_credits")
        m.d.comb += some.eq(count != 0)
        with m.If(take & ~give):
            m.d.sync += count.eq(count - 1)
        with m.Elif(give & ~take):
            m.d.sync += count.eq(count + 1)
