"""One value of O: a tile's sum added in, or the output made of it (quad dataflow)."""

from amaranth import *
from amaranth.lib import data
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
    -1    ``odd``: the sum is the upper of two
    0     the two ``sums``, of which one is registered
    1, 2  ``shift``: the sum loses its low two bits' places, then the others, and is rounded
    3     ``o``, ``by_o`` (O is multiplied, not the sum), ``factor``
    4     operands registered
    5, 6  product of the halves of the operand, their sum
    6     ``places_high``
    7     ``places_low``; update: ``total`` is registered; output: shifted by eights
    8     ``total`` is out; output: shifted by ones
    9, 10 which bits are dropped; limit or round
    11    the rounding carry is added
    12    ``value`` is out
    ===== ============================================================================

    All inputs but ``sums`` are registered here: each lane has registers of its own for what all
    of them do. ``total`` is ``O * f + T`` or
    ``O + T * f``, the product rounded half up at 15 places; ``value`` is ``O * factor`` rounded
    half up at the places (1 to 62), within -32767 to 32767.

    Members
    -------
    odd : :py:`In(1)`
    sums : :py:`In(data.ArrayLayout(signed(params.sum_bits), 2))`
    shift : :py:`In(4)`
        Places that sums are shifted by; does not change while one is on its way.
    o : :py:`In(signed(32))`
    by_o : :py:`In(1)`
    factor : :py:`In(16)`
    places_high, places_low : :py:`In(3)`
        The two halves of the number of places.
    total : :py:`Out(signed(32))`
    value : :py:`Out(signed(16))`
    """

    def _ports(self, params):
        return {
            "odd": In(1), "sums": In(data.ArrayLayout(signed(params.sum_bits), 2)),
            "shift": In(4), "o": In(signed(32)), "by_o": In(1),
            "factor": In(16), "places_high": In(3), "places_low": In(3),
            "total": Out(signed(32)), "value": Out(signed(16)),
        }

    @property
    def latency(self):
        """Cycles from ``sums`` to ``value``."""
        return 12

    @property
    def total_latency(self):
        """Cycles from ``sums`` to ``total``."""
        return 8

    @property
    def throughput(self):
        return "one value a cycle"

    def elaborate(self, platform):
        m = Module()

        def register(name, shape, value):
            signal = Signal(shape, name=name, reset_less=True)
            m.d.sync += signal.eq(value)
            return signal

        odd, shift = register("odd_reg", 1, self.odd), register("shift_reg", 4, self.shift)
        o, by_o = register("o_reg", signed(32), self.o), register("by_o_reg", 1, self.by_o)
        places = register("places_high_reg", 3, self.places_high)
        ones = register("places_low_reg", 3, self.places_low)

        # Cycles 0 to 3: the sum, with the bit below the cut as its lowest.
        bits = self._params.sum_bits + 1
        wide = Signal(signed(bits))
        one = register("sum", signed(self._params.sum_bits), Mux(odd, self.sums[1], self.sums[0]))
        m.d.comb += wide.eq(one << 1)
        some = register("shifted_by_few", signed(bits), wide >> shift[:2])
        cut = register("shifted", signed(bits), some >> Cat(C(0, 2), shift[2:]))
        tile = register("tile", signed(32), round_shift_half_up(cut, 1))

        # Cycle 4: who is multiplied, and who is added.
        operand = register("operand", signed(32), Mux(by_o, o, tile))
        other = register("other_0", signed(32), Mux(by_o, tile, o))
        factor = register("scale", 16, register("factor_reg", 16, self.factor))

        # Cycles 5 and 6: two products of 16 bits, which is what multiplier blocks can do.
        low = register("product_low", 32, operand[:16] * factor)
        high = register("product_high", signed(33), operand[16:].as_signed() * factor)
        product = register("product", signed(48), Cat(low[:16], high + low[16:]))
        for stage in (1, 2):
            other = register(f"other_{stage}", signed(32), other)

        # Cycle 7, update: one addition, the rounding carry in the place below.
        a, b = Signal(signed(33)), Signal(signed(34))
        m.d.comb += [a.eq(Cat(1, other)), b.eq(product >> _ONE_BITS - 1)]
        m.d.sync += self.total.eq((a + b) >> 1)

        # Cycles 7 and 8, output: again with the bit below the cut. Of what is shifted by eights
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
        with m.Switch(places):
            for eight, (part, outside) in enumerate(zip(parts, beyond, strict=True)):
                with m.Case(eight):
                    m.d.comb += [chosen.eq(part.as_signed()), far.eq(outside)]
        negative = register("negative_0", 1, product[-1])
        eights = register("shifted_eights", signed(25), chosen)
        far = register("far_0", 1, far)
        last = register("shifted_ones", signed(25), eights >> ones)
        negative, far = register("negative_1", 1, negative), register("far_1", 1, far)

        # Cycles 9 to 11: symmetric limits, and the carry where it does not pass them.
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
