"""Program memory and program counter of the serial dataflow's processor."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .isa import PROGRAM_BITS


__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Reads instructions one after another, or from the target of a branch.

    Parameters
    ----------
    words : sequence of :class:`int`
        The program.

    Members
    -------
    advance : :py:`In(1)`
        The instruction ``now`` ends.
    branch : :py:`In(1)`
        It is a branch that is taken: ``next`` is dropped.
    target : :py:`In(10)`
        Where to.
    next : :py:`Out(32)`
        The instruction that reads its registers.
    at : :py:`Out(10)`
        Its address.
    now : :py:`Out(32)`
        The one that is executed.
    valid : :py:`Out(1)`
        There is one.
    """

    def __init__(self, words):
        self._words = list(words)
        super().__init__({
            "advance": In(1), "branch": In(1), "target": In(PROGRAM_BITS),
            "next": Out(32), "at": Out(PROGRAM_BITS, init=(1 << PROGRAM_BITS) - 1),
            "now": Out(32), "valid": Out(1),
        })

    @property
    def latency(self):
        """Cycles from a branch to the instruction at its target."""
        return 2

    @property
    def throughput(self):
        return "an instruction a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=32, depth=1 << ceil_log2(len(self._words)), init=self._words)
        port = words.read_port()
        fetch, read_valid = Signal(PROGRAM_BITS), Signal()
        m.d.comb += [
            fetch.eq(Mux(self.branch, self.target, self.at + 1)),
            port.addr.eq(fetch), port.en.eq(self.advance),
            self.next.eq(port.data),
        ]
        with m.If(self.advance):
            m.d.sync += [self.at.eq(fetch), read_valid.eq(1), self.now.eq(self.next),
                         self.valid.eq(read_valid & ~self.branch)]
        return m
