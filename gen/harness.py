"""A top level that gives any component registered ports and a handful of pins."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


__all__ = ["Harness"]


class Harness(wiring.Component):
    """A component between registers, so that only its own paths and theirs are timed.

    Every input bit of the component comes from a register of its own, every output bit goes to a
    register of its own; one pin feeds all inputs and one shows all outputs. No logic is merged
    away or left out: an input register holds the exclusive or of two neighbours in a shift
    register, so none equals a register that the component may have behind its port; each output
    bit enters a pipeline of exclusive ors at a stage of its own, so that equal bits do not cancel.
    The component's reset is a register too.

    It adds two flip-flops for each bit of the component's ports, and two more.

    Parameters
    ----------
    component : :class:`wiring.Component`
        What is timed; it lives in the domain ``sync`` and is the submodule ``dut``.

    Members
    -------
    clk, rst : :py:`In(1)`
        Pins of the clock and of the reset.
    serial : :py:`In(1)`
        What is shifted into the inputs.
    folded : :py:`Out(1)`
        Depends on every output.
    """

    def __init__(self, component):
        self._component = component
        super().__init__({"clk": In(1), "rst": In(1), "serial": In(1), "folded": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self._component

        # One clock, two domains: the harness itself is never reset.
        m.domains.pins = pins = ClockDomain(reset_less=True, local=True)
        m.domains.sync = sync = ClockDomain(local=True)
        reset = Signal()
        m.d.comb += [pins.clk.eq(self.clk), sync.clk.eq(self.clk), sync.rst.eq(reset)]
        m.d.pins += reset.eq(self.rst)

        # Registers bear the names of the ports: reports name what lies behind them by these.
        registers = {In: [], Out: []}
        for path, member, value in self._component.signature.flatten(self._component):
            port = Value.cast(value)
            register = Signal(len(port), name="__".join(map(str, path)))
            registers[member.flow].append(register)
            if member.flow is In:
                m.d.comb += port.eq(register)
            else:
                m.d.pins += register.eq(port)

        inputs, outputs = Cat(registers[In]), Cat(registers[Out])
        shifted = Signal(len(inputs) + 1, name="harness_shift")
        m.d.pins += [
            shifted.eq(Cat(self.serial, shifted)),
            inputs.eq(shifted ^ shifted[1:]),
        ]
        fold = Signal(len(outputs), name="harness_fold")
        m.d.pins += fold.eq(Cat(C(0, 1), fold) ^ outputs)
        m.d.comb += self.folded.eq(fold[-1])
        return m
