"""Binary logarithms of positive integers (numerics 4.8)."""

import functools
import math

from amaranth import *
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent


__all__ = ["VALUE_BITS", "Log2", "leading", "table"]

#: Bits of a row's sum, the widest number that a logarithm is taken of.
VALUE_BITS = 32

_FRACTION_BITS = 8


@functools.cache
def table():
    """``log2(1 + j / 256)`` with eight fraction bits for ``j`` in 0..255; all are below 1."""
    return tuple(round(256 * math.log2(1 + j / 256)) for j in range(256))


def leading(m, value, levels, prefix):
    """``value`` shifted left until its leading one is at the top, as far as these ``levels`` go.

    Level ``n`` shifts by ``2**n`` places where as many top bits are 0. Returns the shifted value
    and, from the highest level to the lowest, a bit each that says that there was no shift: these
    are the exponent's bits.
    """
    exponent = []
    for level in levels:
        occupied = Signal(name=f"{prefix}_occupied_{level}")
        moved = Signal(len(value), name=f"{prefix}_moved_{level}")
        places = 1 << level
        m.d.comb += [
            occupied.eq(value[len(value) - places:].any()),
            moved.eq(Mux(occupied, value, value << places)),
        ]
        value = moved
        exponent.append(occupied)
    return value, exponent


class Log2(AptComponent):
    """``log2(value)`` with eight fraction bits; 0 for 0.

    The eight bits below the leading one look up the fraction, what is below them is cut off. Three
    register stages, which move with ``advance``: two find the leading one, the third looks up.
    The table holds ``log2(1 + x) - x``, which has five bits. One result a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Parameters of the engine; none matters.
    value_bits : :class:`int`
        Width of ``value``, 2 to 32.

    Members
    -------
    advance : :py:`In(1)`
        Registers move.
    value : :py:`In(value_bits)`
        Number.
    log2 : :py:`Out(ceil_log2(value_bits) + 8)`
        Logarithm of the number that went in three moves before.
    """

    def __init__(self, params, value_bits=VALUE_BITS):
        if not 2 <= value_bits <= VALUE_BITS:
            raise ValueError(f"Value bits must be in 2..{VALUE_BITS}, not {value_bits!r}")
        self._value_bits = value_bits
        super().__init__(params)

    def _ports(self, params):
        return {
            "advance": In(1),
            "value": In(self._value_bits),
            "log2": Out(ceil_log2(self._value_bits) + _FRACTION_BITS),
        }

    @property
    def stages(self):
        """Moves from ``value`` to ``log2``."""
        return 3

    latency = stages

    @property
    def throughput(self):
        return "one logarithm a cycle"

    def elaborate(self, platform):
        m = Module()
        levels = ceil_log2(self._value_bits)
        width = 1 << levels
        split = levels // 2

        first = Signal(width, reset_less=True)
        first_exponent = Signal(levels - split, reset_less=True)
        second = Signal(max(width, _FRACTION_BITS + 1), reset_less=True)
        exponent = Signal(levels, reset_less=True)
        result = Signal(len(self.log2), reset_less=True)
        m.d.comb += self.log2.eq(result)

        number = Signal(width)
        m.d.comb += number.eq(self.value)
        high, high_bits = leading(m, number, range(levels - 1, split - 1, -1), "high")
        low, low_bits = leading(m, first, range(split - 1, -1, -1), "low")

        corrections = [value - j for j, value in enumerate(table())]
        fraction = Signal(_FRACTION_BITS)
        correction = Signal(range(max(corrections) + 1))
        m.d.comb += [
            fraction.eq(second[len(second) - 1 - _FRACTION_BITS:-1]),
            correction.eq(Array(corrections)[fraction]),
        ]
        with m.If(self.advance):
            m.d.sync += [
                first.eq(high),
                first_exponent.eq(Cat(*reversed(high_bits))),
                second.eq(low << (len(second) - width)),
                exponent.eq(Cat(*reversed(low_bits), first_exponent)),
                result.eq(Cat(fraction + correction, Const(0, 8))[:_FRACTION_BITS]
                          | (exponent << _FRACTION_BITS)),
            ]
        return m
