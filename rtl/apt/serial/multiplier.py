"""Multiplier of the serial dataflow's processor: product, shift, rounding, saturation."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .isa import ShiftMode


__all__ = ["Multiplier"]

_SUM = 48


class Multiplier(wiring.Component):
    """``result = (a * b) >> shift`` of 32 by 16 bits, in two 16 x 16 multipliers.

    Members
    -------
    a : :py:`In(32)`
        Signed, unless ``is_unsigned``.
    b : :py:`In(16)`
        Unsigned.
    is_unsigned, saturate : :py:`In(1)`
        ``saturate``: the result is 16 bits signed. Both must hold until the result is taken.
    mode : :py:`In(ShiftMode)`
        Where the shift comes from, and whether half a unit is added before it. The shift
        is that of the product given two cycles before, rounding that of three before.
    shift : :py:`In(6)`
        For the modes ``ROUND`` and ``TRUNC``, as ``mode``.
    result : :py:`Out(32)`
        The low 32 bits.
    """

    a: In(32)
    b: In(16)
    is_unsigned: In(1)
    saturate: In(1)
    mode: In(2)
    shift: In(6)
    result: Out(32)

    @property
    def latency(self):
        """Cycles from inputs to the result, which is a function of the last registers."""
        return 3

    @property
    def throughput(self):
        return "a product a cycle"

    def elaborate(self, platform):
        m = Module()

        low, high = (Signal(32, name=name, reset_less=True) for name in ("low", "high"))
        excess = Signal(16, reset_less=True)  # a negative a is 2**32 too large
        negative = self.a[-1] & ~self.is_unsigned
        m.d.sync += [low.eq(self.a[:16] * self.b), high.eq(self.a[16:] * self.b),
                     excess.eq(self.b & negative.replicate(16))]

        upper, total = Signal(32), Signal(_SUM, reset_less=True)
        m.d.comb += upper.eq(high + low[16:])
        m.d.sync += total.eq(Cat(low[:16], upper[:16], upper[16:] - excess))

        # One bit below the result is kept: rounding half up adds it.
        amount, sign = Signal(6), Signal()
        with m.Switch(self.mode):
            with m.Case(ShiftMode.Q15):
                m.d.comb += amount.eq(15)
            with m.Case(ShiftMode.NONE):
                m.d.comb += amount.eq(0)
            with m.Default():
                m.d.comb += amount.eq(self.shift)
        m.d.comb += sign.eq(total[-1] & ~self.is_unsigned)
        shifted = Signal(signed(_SUM + 2), reset_less=True)
        m.d.sync += shifted.eq(Cat(0, total, sign).as_signed() >> amount)

        floor, half, rounded = Signal(_SUM + 1), Signal(), Signal(32)
        over = Signal()
        m.d.comb += [
            floor.eq(shifted[1:]),
            half.eq(shifted[0] & (self.mode != ShiftMode.TRUNC)),
            rounded.eq(floor + half),
            over.eq(Mux(shifted[-1], ~floor[15:].all(), floor[15:].any() | rounded[15])),
            self.result.eq(rounded),
        ]
        with m.If(self.saturate & over):
            m.d.comb += self.result.eq(Cat((~shifted[-1]).replicate(15),
                                           shifted[-1].replicate(17)))
        return m
