"""Serial binary logarithm with twelve fraction bits, and its multiplier on loan."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .log2 import VALUE_BITS, leading


__all__ = ["Log2Fine"]

_FRACTION_BITS = 12
_MANTISSA_BITS = 16


class Log2Fine(AptComponent):
    """``log2(value)`` with twelve fraction bits, rounded down or one less; 0 for 0.

    Of the 16 bits from the leading one on the square is taken twelve times, once a cycle; each
    square says one more bit of the fraction. A ``start`` while busy is not looked at.

    The multiplier has registers in front of it. While it is not busy, and in the cycle of
    ``start``, they take ``a`` and ``b``, so ``product`` is theirs of the cycle before. With
    the registers fed by the top half of the product, a square is one multiplication and one
    multiplexer a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Parameters of the engine; none matters.

    Members
    -------
    start : :py:`In(1)`
        Begin with ``value``.
    value : :py:`In(32)`
        Number.
    done : :py:`Out(1)`
        High for the one cycle in which ``log2`` becomes valid; it stays until the next start.
    log2 : :py:`Out(17)`
        Logarithm.
    a, b : :py:`In(16)`
        Factors on loan.
    product : :py:`Out(32)`
        Their product, a cycle later, straight from the multiplier.
    """

    def _ports(self, params):
        return {
            "start": In(1),
            "value": In(VALUE_BITS),
            "done": Out(1),
            "log2": Out(ceil_log2(VALUE_BITS) + _FRACTION_BITS),
            "a": In(_MANTISSA_BITS),
            "b": In(_MANTISSA_BITS),
            "product": Out(2 * _MANTISSA_BITS),
        }

    @property
    def latency(self):
        """Cycles from ``start`` to ``done``."""
        return _FRACTION_BITS + 2

    @property
    def throughput(self):
        return f"one logarithm every {self.latency} cycles"

    def elaborate(self, platform):
        m = Module()
        levels = ceil_log2(VALUE_BITS)
        split = levels // 2

        # Cycle 0 finds the exponent's high bits, cycle 1 the low ones, then come the squares.
        begun = Signal()
        first = Signal(VALUE_BITS, reset_less=True)
        first_exponent = Signal(levels - split, reset_less=True)
        left = Signal(range(_FRACTION_BITS + 1))
        high, high_bits = leading(m, self.value, range(levels - 1, split - 1, -1), "high")
        low, low_bits = leading(m, first, range(split - 1, -1, -1), "low")

        x = Signal(_MANTISSA_BITS, reset_less=True)
        y = Signal(_MANTISSA_BITS, reset_less=True)
        bit = self.product[-1]
        square = Mux(bit, self.product[_MANTISSA_BITS:], self.product[_MANTISSA_BITS - 1:-1])
        m.d.comb += self.product.eq(x * y)
        m.d.sync += [self.done.eq(left == 1), begun.eq(0)]
        with m.If(left != 0):
            m.d.sync += [x.eq(square), y.eq(square), left.eq(left - 1),
                         self.log2.eq(Cat(bit, self.log2))]
        with m.Elif(begun):
            m.d.sync += [x.eq(low[-_MANTISSA_BITS:]), y.eq(low[-_MANTISSA_BITS:]),
                         left.eq(_FRACTION_BITS),
                         self.log2.eq(Cat(*reversed(low_bits), first_exponent))]
        with m.Else():
            m.d.sync += [
                x.eq(self.a), y.eq(self.b),
                begun.eq(self.start),
                first.eq(high),
                first_exponent.eq(Cat(*reversed(high_bits))),
            ]
        return m
