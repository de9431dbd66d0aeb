"""One owner of query rows: its lanes and its copy of the tiles of K and V."""

from amaranth import *
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .panel_port import kv_address, kv_part_bits, kv_parts, kv_write
from .quad_lane import QuadLane


__all__ = ["Quad", "q_word", "qk_control"]


def q_word(params):
    """An owner's part of one read of the Q memory: channels of its row."""
    return data.ArrayLayout(signed(params.segment_bits), params.qk_width)


def qk_control():
    """What the lanes do with a K and a Q word."""
    return data.StructLayout({"valid": 1, "first": 1, "shift": 1, "last": 1, "low": 1})


class Quad(AptComponent):
    """``owner_lanes`` lanes, two buffers of K and of V, and the registers at their border.

    QK and PV take turns, so one read port serves both: a word of K, channels of ``2 owner_lanes``
    keys, is as wide as one of V, columns of a key, and each lane takes the same part of either.
    A copy of K for each owner costs block RAM; it saves a word as wide as the array on its way
    across the device, and a multiplexer in front of every multiplier. Words of Q come read: an
    owner's part of them is narrow.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    kv_write : :py:`In(kv_write(params))`
        A loaded part of a word.
    address : :py:`In(kv_address(params))`
        What the lanes read.
    q, qk : :py:`In(...)`
        A word of Q and what to do with the operands of QK, a cycle after their address.
    pv : :py:`In(...)`
        ``valid``, the probability segment ``p``, and whether it is the ``first`` or ``last``
        element of a run, a cycle after its address.
    sums_valid, sums : :py:`Out(...)`
        Dot products of the owner's row, two a lane: ``operand_latency + lane.sums_latency`` after
        the address of the last word.
    run_soon, run_valid, run : :py:`Out(...)`
        Sums of a run, ``multipliers`` a lane; ``run_soon`` is a cycle before ``run_valid``.
    """

    #: Cycles from an address to the lanes: a register, and the memory.
    operand_latency = 2

    def __init__(self, params):
        super().__init__(params)
        self._lanes = [QuadLane(params) for _ in range(params.owner_lanes)]

    def _ports(self, params):
        params.check_quad()
        lanes = params.owner_lanes
        return {
            "kv_write": In(kv_write(params)), "address": In(kv_address(params)),
            "q": In(q_word(params)), "qk": In(qk_control()),
            "pv": In(data.StructLayout({
                "valid": 1, "p": signed(params.segment_bits), "first": 1, "last": 1})),
            "sums_valid": Out(1),
            "sums": Out(data.ArrayLayout(data.ArrayLayout(signed(params.logit_acc_bits), 2),
                                         lanes)),
            "run_soon": Out(1), "run_valid": Out(1),
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

    def _memory(self, m):
        """The word at the address: a memory for each part of it."""
        params = self._params
        bits = params.pv_width * params.segment_bits
        address = Signal(kv_address(params), reset_less=True)
        late = Signal(kv_write(params), reset_less=True)
        written = Signal()
        m.d.sync += [address.eq(self.address), late.eq(self.kv_write),
                     written.eq(self.kv_write.valid)]
        words = []
        for part in range(kv_parts(params)):
            m.submodules[f"kv_{part}"] = store = memory.Memory(
                shape=min(kv_part_bits(params), bits - part * kv_part_bits(params)),
                depth=1 << len(address.as_value()), init=[], attrs={"no_rw_check": 1})
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.addr.eq(late.address),
                write.data.eq(late.data),
                write.en.eq(written & (late.part == part)),
                read.addr.eq(address),
            ]
            words.append(read.data)
        return Cat(words)

    def elaborate(self, platform):
        m = Module()
        params = self._params

        word = self._memory(m)
        lane_bits = params.multipliers * params.segment_bits
        b = Signal(q_word(params), reset_less=True)
        m.d.sync += b.as_value().eq(Mux(self.qk.valid, self.q.as_value(),
                                        self.pv.p.as_unsigned().replicate(params.qk_width)))
        qk, pv = self.qk, self.pv
        for number, lane in enumerate(self._lanes):
            m.submodules[f"lane_{number}"] = lane
            m.d.comb += [
                lane.operation.valid.eq(qk.valid | pv.valid),
                lane.operation.qk.eq(qk.valid),
                lane.operation.first.eq(Mux(qk.valid, qk.first, pv.first)),
                lane.operation.shift.eq(qk.shift),
                lane.operation.last.eq(Mux(qk.valid, qk.last, pv.last)),
                lane.operation.low.eq(qk.low),
                lane.i.a.as_value().eq(word[number * lane_bits:(number + 1) * lane_bits]),
                lane.i.b.eq(b),
                self.sums[number].eq(lane.sums),
                self.run[number].eq(lane.run),
            ]
            if number == 0:
                m.d.comb += [self.sums_valid.eq(lane.sums_valid),
                             self.run_soon.eq(lane.run_soon),
                             self.run_valid.eq(lane.run_valid)]

        return m
