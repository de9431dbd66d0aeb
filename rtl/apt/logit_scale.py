"""Scale of a tile's logits, from the head's constant and the scale words of Q and K."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS

from .component import AptComponent


__all__ = ["LogitScale", "MANTISSA_BITS", "SCALE_SHIFT_BITS", "SHIFT_BITS", "factor_layout"]

MANTISSA_BITS = 16
#: Bits of a tile's shift, and of a head's constant's.
SHIFT_BITS, SCALE_SHIFT_BITS = 6, 7

_PRODUCT_BITS = 2 * (SCALE_BITS - 1) + MANTISSA_BITS


def factor_layout(shift_bits):
    """A factor ``mantissa * 2**-shift``."""
    return data.StructLayout({"mantissa": MANTISSA_BITS, "shift": shift_bits})


class LogitScale(AptComponent):
    """The factor that turns dot products of a tile into logits (numerics 4.8).

    The product of the head's mantissa and the two scale words, bit by bit, then moved up until its
    leading one is on top; its 16 leading bits are the mantissa. One small adder: a tile has
    thousands of cycles.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; nothing of it matters here.

    Members
    -------
    i : :py:`In(stream.Signature(...))`
        ``scale``, the head's constant (mantissa ``2**15`` or more, shift 31 or more), and the scale
        words ``a_q`` and ``a_k``.
    o : :py:`Out(stream.Signature(factor_layout(6)))`
        The tile's factor; mantissa 0 where a scale word is 0. Shifts end at 63.
    """

    def _ports(self, params):
        return {
            "i": In(stream.Signature(data.StructLayout({
                "scale": factor_layout(SCALE_SHIFT_BITS),
                "a_q": SCALE_BITS - 1, "a_k": SCALE_BITS - 1}))),
            "o": Out(stream.Signature(factor_layout(SHIFT_BITS))),
        }

    @property
    def latency(self):
        """Most cycles from the transfer on ``i`` to ``o.valid``."""
        return SCALE_BITS + MANTISSA_BITS + _PRODUCT_BITS + 3

    @property
    def throughput(self):
        return f"one factor every {self.latency + 1} cycles or less"

    def elaborate(self, platform):
        m = Module()

        product = Signal(_PRODUCT_BITS)
        shifted = Signal(_PRODUCT_BITS)  # the multiplicand, moved up with each bit
        factor = Signal(MANTISSA_BITS)   # bits of the multiplier that are left
        mantissa = Signal(MANTISSA_BITS, reset_less=True)
        shift = Signal(SCALE_SHIFT_BITS + 1)
        base = Signal(SCALE_SHIFT_BITS, reset_less=True)
        second = Signal()

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(~self.o.valid)
                m.d.sync += [
                    product.eq(0),
                    shifted.eq(self.i.p.a_q),
                    factor.eq(self.i.p.a_k),
                    mantissa.eq(self.i.p.scale.mantissa),
                    base.eq(self.i.p.scale.shift),
                    second.eq(0),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "MULTIPLY"
            with m.State("MULTIPLY"):
                with m.If(factor.any()):
                    m.d.sync += [
                        product.eq(product + Mux(factor[0], shifted, 0)),
                        shifted.eq(shifted << 1),
                        factor.eq(factor >> 1),
                    ]
                with m.Else():
                    m.d.sync += [second.eq(1), shifted.eq(product), factor.eq(mantissa)]
                    with m.If(second):
                        m.d.sync += shift.eq(base - (_PRODUCT_BITS - MANTISSA_BITS))
                        m.next = "NORMALIZE"
                    with m.Else():
                        m.d.sync += product.eq(0)
            with m.State("NORMALIZE"):
                with m.If(product[-1] | ~product.any()):
                    largest = (1 << SHIFT_BITS) - 1
                    m.d.sync += [
                        self.o.valid.eq(1),
                        self.o.p.mantissa.eq(product[-MANTISSA_BITS:]),
                        self.o.p.shift.eq(Mux((shift > largest) | ~product[-1], largest, shift)),
                    ]
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += [product.eq(product << 1), shift.eq(shift + 1)]

        return m
