"""One value of O: a tile's sum added in, or the output made of it (quad dataflow)."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from rtl.common.arith import round_shift_half_up

from .component import AptComponent


__all__ = ["OLane"]

#: Fraction bits of a factor.
_ONE_BITS = 15


class OLane(AptComponent):
    """Pipeline around one multiplier of 32 x 16 bits. What comes in at which cycle:

    ===== ============================================================================
    cycle
    ===== ============================================================================
    0     ``sum``
    0, 1  ``shift``: the sum loses its low two bits' places, then the others, and is rounded
    3     ``o``, ``by_o`` (O is multiplied, not the sum), ``factor``; operands registered
    4, 5  product of the halves of the operand, their sum
    6     update: ``total`` is registered; output: shifted by ``places_high`` eights
    7     ``total`` is out; output: shifted by ``places_low``
    8, 9  which bits are dropped; limit or round
    10    the rounding carry is added
    11    ``value`` is out
    ===== ============================================================================

    Without a register for it, an input is of its cycle. ``total`` is ``O * f + T`` or
    ``O + T * f``, the product rounded half up at 15 places; ``value`` is ``O * factor`` rounded
    half up at the places (1 to 62), within -32767 to 32767.

    Members
    -------
    sum : :py:`In(signed(params.sum_bits))`
    shift : :py:`In(4)`
        Places that sums are shifted by; does not change while one is on its way.
    o : :py:`In(signed(32))`
    by_o : :py:`In(1)`
    factor : :py:`In(16)`
    places_high, places_low : :py:`In(3)`
        The two halves of the number of places, at cycles 6 and 7.
    total : :py:`Out(signed(32))`
    value : :py:`Out(signed(16))`
    """

    def _ports(self, params):
        return {
            "sum": In(signed(params.sum_bits)), "shift": In(4), "o": In(signed(32)), "by_o": In(1),
            "factor": In(16), "places_high": In(3), "places_low": In(3),
            "total": Out(signed(32)), "value": Out(signed(16)),
        }

    @property
    def latency(self):
        """Cycles from ``sum`` to ``value``."""
        return 11

    @property
    def total_latency(self):
        """Cycles from ``sum`` to ``total``."""
        return 7

    @property
    def throughput(self):
        return "one value a cycle"

    def elaborate(self, platform):
        m = Module()

        def register(name, shape, value):
            signal = Signal(shape, name=name, reset_less=True)
            m.d.sync += signal.eq(value)
            return signal

        # Cycles 0 to 2: the sum, with the bit below the cut as its lowest.
        bits = self._params.sum_bits + 1
        wide = Signal(signed(bits))
        m.d.comb += wide.eq(self.sum << 1)
        some = register("shifted_by_few", signed(bits), wide >> self.shift[:2])
        cut = register("shifted", signed(bits), some >> Cat(C(0, 2), self.shift[2:]))
        tile = register("tile", signed(32), round_shift_half_up(cut, 1))

        # Cycle 3: who is multiplied, and who is added.
        operand = register("operand", signed(32), Mux(self.by_o, self.o, tile))
        other = register("other_0", signed(32), Mux(self.by_o, tile, self.o))
        factor = register("scale", 16, self.factor)

        # Cycles 4 and 5: two products of 16 bits, which is what multiplier blocks can do.
        low = register("product_low", 32, operand[:16] * factor)
        high = register("product_high", signed(33), operand[16:].as_signed() * factor)
        product = register("product", signed(48), Cat(low[:16], high + low[16:]))
        for stage in (1, 2):
            other = register(f"other_{stage}", signed(32), other)

        # Cycle 6, update: one addition, the rounding carry in the place below.
        a, b = Signal(signed(33)), Signal(signed(34))
        m.d.comb += [a.eq(Cat(1, other)), b.eq(product >> _ONE_BITS - 1)]
        m.d.sync += self.total.eq((a + b) >> 1)

        # Cycles 6 and 7, output: again with the bit below the cut. Of what is shifted by eights
        # no more than 25 bits can come within the limits; of the others it is enough to know
        # whether all are like the sign.
        wider = Signal(signed(49))
        m.d.comb += wider.eq(product << 1)
        parts, beyond = [], []
        for eight in range(8):
            part = wider >> 8 * eight
            parts.append(part[:25] if len(part) > 25 else part)
            rest = wider[min(24 + 8 * eight, 48):]
            beyond.append(rest.any() & ~rest.all())
        chosen, far = Signal(signed(25)), Signal()
        with m.Switch(self.places_high):
            for eight, (part, outside) in enumerate(zip(parts, beyond, strict=True)):
                with m.Case(eight):
                    m.d.comb += [chosen.eq(part.as_signed()), far.eq(outside)]
        negative = register("negative_0", 1, product[-1])
        eights = register("shifted_eights", signed(25), chosen)
        far = register("far_0", 1, far)
        last = register("shifted_ones", signed(25), eights >> self.places_low)
        negative, far = register("negative_1", 1, negative), register("far_1", 1, far)

        # Cycles 8 to 10: symmetric limits, and the carry where it does not pass them.
        dropped = last[16:]
        over = register("over", 1, far | (dropped.any() & ~dropped.all()))
        negative = register("negative", 1, negative)
        body = register("body", 16, last[1:17])
        half = register("half", 1, last[0])
        limit = Mux(negative, C(-0x7fff, signed(16)), C(0x7fff, signed(16)))
        lowest, highest = body == 0x8000, body == 0x7fff
        value = register("limited", signed(16), Mux(over, limit, body.as_signed()))
        carry = register("carry", 1, ~over & (lowest | (half & ~highest)))
        m.d.sync += self.value.eq(value + carry)
        return m
