"""Register file of the serial dataflow's processor."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .isa import REGISTER_BITS


__all__ = ["Registers"]


class Registers(wiring.Component):
    """256 registers of 32 bits with two read ports, in two copies.

    What is written while a register is read is what the read gives.

    Parameters
    ----------
    contents : sequence of :class:`int`
        Of all registers at the beginning; a reset does not bring them back.

    Members
    -------
    advance : :py:`In(1)`
        Read, and write if ``write``.
    number_a, number_b : :py:`In(8)`
        Registers to read.
    a, b : :py:`Out(32)`
        What they have, in the cycles after ``advance`` and until the next.
    write : :py:`In(1)`
    number : :py:`In(8)`
    data : :py:`In(32)`
        What to write.
    """

    def __init__(self, contents):
        self._contents = list(contents)
        super().__init__({
            "advance": In(1), "number_a": In(REGISTER_BITS), "number_b": In(REGISTER_BITS),
            "a": Out(32), "b": Out(32),
            "write": In(1), "number": In(REGISTER_BITS), "data": In(32),
        })

    @property
    def latency(self):
        """Cycles from a number to its register."""
        return 1

    @property
    def throughput(self):
        return "two reads and a write a cycle"

    def elaborate(self, platform):
        m = Module()
        last = Signal(32, reset_less=True)
        with m.If(self.advance):
            m.d.sync += last.eq(self.data)
        for name in ("a", "b"):
            m.submodules[f"copy_{name}"] = copy = memory.Memory(
                shape=32, depth=len(self._contents), init=self._contents)
            write, read = copy.write_port(), copy.read_port()
            number = getattr(self, f"number_{name}")
            m.d.comb += [
                write.addr.eq(self.number), write.data.eq(self.data),
                write.en.eq(self.write & self.advance),
                read.addr.eq(number), read.en.eq(self.advance),
            ]
            forward = Signal(name=f"forward_{name}")
            with m.If(self.advance):
                m.d.sync += forward.eq(self.write & (number == self.number))
            m.d.comb += getattr(self, name).eq(Mux(forward, last, read.data))
        return m
