"""Counts what the engine does."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.apt.quad_shape import MOST_KEYS, OWNERS

from .component import AptComponent


__all__ = ["COUNTERS", "COUNTER_BITS", "Counters"]

#: Bits of a counter; it wraps.
COUNTER_BITS = 32

#: Elements of a block row's lists at most.
_BLOCK_ROW = OWNERS * MOST_KEYS

#: Counters and how much each may count in a cycle. Phases: cycles in which the array is in QK, in
#: PV, or waits for K, V or element lists. Work: blocks of QK in low and in high precision; elements
#: that are not pruned, and those of them in high precision; multiply passes of PV, one for each
#: product of segments and column pass; PV cycles of single owners that wait for the flush bus, for
#: a slot for their sums, or for the other owners. Traffic: beats, and cycles of a job without one.
COUNTERS = {
    "cycles": 1, "busy": 1, "qk": 1, "pv": 1, "wait_k": 1, "wait_v": 1, "wait_lists": 1,
    "lp_blocks": 1, "hp_blocks": 1, "elements": _BLOCK_ROW, "hp_elements": _BLOCK_ROW,
    "pv_passes": OWNERS, "pv_wait_flush": OWNERS, "pv_wait_row": OWNERS, "pv_imbalance": OWNERS,
    "read_beats": 1, "written_beats": 1, "port_idle": 1,
}


class Counters(AptComponent):
    """One counter for each of :data:`COUNTERS`, since the last ``clear``.

    Members
    -------
    clear : :py:`In(1)`
        Set all to zero; what happens in that cycle is not counted.
    count : :py:`In(...)`
        How often each happened in a cycle.
    values : :py:`Out(data.ArrayLayout(32, ...))`
        The counters, in the order of :data:`COUNTERS`; one cycle behind.
    """

    def _ports(self, params):
        return {
            "clear": In(1),
            "count": In(data.StructLayout({name: range(most + 1)
                                           for name, most in COUNTERS.items()})),
            "values": Out(data.ArrayLayout(COUNTER_BITS, len(COUNTERS))),
        }

    @property
    def latency(self):
        """Cycles from an event to a counter that has it."""
        return 2

    @property
    def throughput(self):
        return "every event of every cycle"

    def elaborate(self, platform):
        m = Module()
        count = Signal.like(self.count)
        m.d.sync += count.eq(self.count)
        with m.If(self.clear):
            m.d.sync += count.eq(0)
        for value, name in zip(self.values, COUNTERS, strict=True):
            m.d.sync += value.eq(value + count[name])
            with m.If(self.clear):
                m.d.sync += value.eq(0)
        return m
