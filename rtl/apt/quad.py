"""One owner of query rows: its lanes and its copy of the V tile."""

from amaranth import *
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from rtl.common.stream import travel_along

from .component import AptComponent
from .panel_port import v_address, v_write
from .quad_lane import QuadLane


__all__ = ["Quad", "k_word", "q_word", "qk_control"]


def k_word(params):
    """One read of the K memory: channels of the keys of a step."""
    channels = data.ArrayLayout(signed(params.segment_bits), params.qk_width)
    return data.ArrayLayout(channels, params.step_keys)


def q_word(params):
    """An owner's part of one read of the Q memory: channels of its row."""
    return data.ArrayLayout(signed(params.segment_bits), params.qk_width)


def qk_control():
    """What the lanes do with a K and a Q word."""
    return data.StructLayout({"valid": 1, "first": 1, "shift": 1, "last": 1, "low": 1})


class Quad(AptComponent):
    """``owner_lanes`` lanes, two buffers of V, and the registers at their border.

    K and Q words come read, and are registered here once more, since all owners share them; V is
    read here. So both take three cycles from their addresses to the lanes (:attr:`operand_latency`)
    and QK and PV may follow each other without a gap.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    k, q, qk : :py:`In(...)`
        Words and what to do with them, two cycles after their addresses.
    v_write : :py:`In(v_write(params))`
    pv : :py:`In(...)`
        Address in the V memory, and with it ``valid``, the probability segment ``p``, and whether
        it is the ``first`` or ``last`` element of a run.
    sums_valid, sums : :py:`Out(...)`
        Dot products of the owner's row, two a lane: ``operand_latency + lane.sums_latency`` after
        the address of the last word.
    run_valid, run : :py:`Out(...)`
        Sums of a run, ``multipliers`` a lane.
    """

    #: Cycles from an address of K, Q or V to the lanes.
    operand_latency = 3

    def __init__(self, params):
        super().__init__(params)
        self._lanes = [QuadLane(params) for _ in range(params.owner_lanes)]

    def _ports(self, params):
        params.check_quad()
        lanes = params.owner_lanes
        return {
            "k": In(k_word(params)), "q": In(q_word(params)), "qk": In(qk_control()),
            "v_write": In(v_write(params)),
            "pv": In(data.StructLayout({
                "valid": 1, "address": v_address(params), "p": signed(params.segment_bits),
                "first": 1, "last": 1})),
            "sums_valid": Out(1),
            "sums": Out(data.ArrayLayout(data.ArrayLayout(signed(params.logit_acc_bits), 2),
                                         lanes)),
            "run_valid": Out(1),
            "run": Out(data.ArrayLayout(data.ArrayLayout(signed(params.run_bits),
                                                         params.multipliers), lanes)),
        }

    @property
    def sums_latency(self):
        """Cycles from a step's last address to its dot products."""
        return self.operand_latency + self._lanes[0].sums_latency

    @property
    def run_latency(self):
        """Cycles from a run's last address to its sums."""
        return self.operand_latency + self._lanes[0].run_latency

    def elaborate(self, platform):
        m = Module()
        params = self._params

        columns_layout = v_write(params)["data"].shape
        m.submodules.v = v = memory.Memory(
            shape=columns_layout, depth=1 << v_address(params).size, init=[],
            attrs={"no_rw_check": 1})
        write, read = v.write_port(), v.read_port()
        k = Signal(k_word(params), reset_less=True)
        q = Signal(q_word(params), reset_less=True)
        columns = Signal(columns_layout, reset_less=True)
        address = Signal(v_address(params), reset_less=True)
        late_write = Signal(v_write(params), reset_less=True)
        m.d.sync += [k.eq(self.k), q.eq(self.q), columns.eq(read.data),
                     address.eq(self.pv.address), late_write.eq(self.v_write)]
        m.d.comb += [
            write.addr.eq(late_write.address),
            write.data.eq(late_write.data),
            read.addr.eq(address),
        ]
        written = Signal()
        m.d.sync += written.eq(self.v_write.valid)
        m.d.comb += write.en.eq(written)

        # The operation is registered in each lane, the operands here.
        pv, p, run_first, run_last = travel_along(
            m, 1, self.operand_latency - 1, self.pv.valid, p=self.pv.p, run_first=self.pv.first,
            run_last=self.pv.last)
        probability = Signal.like(p, reset_less=True)
        m.d.sync += probability.eq(p)
        qk = self.qk
        for number, lane in enumerate(self._lanes):
            m.submodules[f"lane_{number}"] = lane
            m.d.comb += [
                lane.operation.valid.eq(qk.valid | pv),
                lane.operation.qk.eq(qk.valid),
                lane.operation.first.eq(Mux(qk.valid, qk.first, run_first)),
                lane.operation.shift.eq(qk.shift),
                lane.operation.last.eq(Mux(qk.valid, qk.last, run_last)),
                lane.operation.low.eq(qk.low),
                *(lane.i.k[j].eq(k[2 * number + j]) for j in range(2)),
                lane.i.q.eq(q),
                *(lane.i.v[c].eq(columns[number * params.multipliers + c])
                  for c in range(params.multipliers)),
                lane.i.p.eq(probability),
                self.sums[number].eq(lane.sums),
                self.run[number].eq(lane.run),
            ]
            if number == 0:
                m.d.comb += [self.sums_valid.eq(lane.sums_valid),
                             self.run_valid.eq(lane.run_valid)]

        return m
