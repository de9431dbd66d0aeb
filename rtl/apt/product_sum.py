"""Sum of segment products in one carry-save tree."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.common.compressor import Compressor, dadda_depth, reduced_heights

from .component import AptComponent


__all__ = ["ProductSum", "product_stages"]

#: Full adders between two registers, and at most in front of the carry-propagate adder. Chosen on
#: ECP5, where five between registers cost a fifth of the clock rate.
_LEVELS = 4
_LAST_LEVELS = 3


def _constants(params):
    # Of each sign mode: -p = ~p - 1 for each bit that is summed complemented, modulo the sum.
    top = params.segment_bits - 1
    constants = []
    for mode in range(4 if params.split == "truncate" else 1):
        a_signed, b_signed = not mode & 1, not mode & 2
        complemented = sum(1 << (i + j) for i in range(top + 1) for j in range(top + 1)
                           if (a_signed and i == top) == (b_signed and j == top))
        constants.append(-params.multipliers * complemented % (1 << params.pass_bits))
    return constants


def product_stages(params):
    """Registers of a :class:`ProductSum` from segments to their sum.

    They follow from the heights of the columns alone, so nothing need be built to know them.
    """
    heights = [0] * params.pass_bits
    for i in range(params.segment_bits):
        for j in range(params.segment_bits):
            heights[i + j] += params.multipliers
    for weight in range(params.pass_bits):
        heights[weight] += any(constant >> weight & 1 for constant in _constants(params))
    stages = 1
    while dadda_depth(max(heights)) > _LAST_LEVELS:
        for _ in range(_LEVELS):
            heights = reduced_heights(heights)
        stages += 1
    return stages


class ProductSum(AptComponent):
    """``minus = -sum(a[k] * b[k])`` over ``multipliers`` pairs of segments.

    All partial products of all multipliers go into one :class:`Compressor`, so there is one
    carry-propagate adder in place of one a product and a tree. Rows of sign bits are complemented
    (Baugh and Wooley) and the constants of all products are one. What is summed is the negated
    products: most partial products are then NAND rather than AND, and the sum needs a bit less
    where ``balanced`` segments can all be at their most negative.

    A segment is two's complement; with ``split = truncate`` it is unsigned in the passes that
    have ``a_signed`` or ``b_signed`` low. That complements the row and column of the top bits or
    not (the sign correction of APT 4.5), and selects the constant.

    The tree is cut by registers, four full adders apart, and ends in one. They follow
    when ``advance`` is high, one sum a cycle, :attr:`stages` of such cycles after its segments.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    advance : :py:`In(1)`
        Whether the registers take what is in front of them.
    a, b : :py:`In(data.ArrayLayout(params.segment_bits, params.multipliers))`
        Segments.
    a_signed, b_signed : :py:`In(1)`
        Whether segments are signed; with ``split = truncate`` only.
    minus : :py:`Out(signed(params.pass_bits))`
        Negated sum.
    """

    def _ports(self, params):
        segments = data.ArrayLayout(params.segment_bits, params.multipliers)
        modes = {"a_signed": In(1), "b_signed": In(1)} if params.split == "truncate" else {}
        return {
            "advance": In(1), "a": In(segments), "b": In(segments), **modes,
            "minus": Out(signed(params.pass_bits)),
        }

    @property
    def stages(self):
        """Cycles with ``advance`` from segments to their sum: the registers on the way."""
        return product_stages(self._params)

    @property
    def _modes(self):
        """Whether a segment may be unsigned, and bits say which."""
        return self._params.split == "truncate"

    def _partial_products(self, m, k):
        """Bits of ``-a[k] * b[k]`` without its constant, by the two segment bits.

        A complemented product is written ``~a | ~b``, not ``~(a & b)``: synthesis that looks for
        full adders sees through an inverter, and would put one behind an AND.
        """
        a, b = self.a[k], self.b[k]
        top = self._params.segment_bits - 1
        if self._modes:
            # Complement of the top bit where it counts as unsigned, see below.
            a_flip = Signal(name=f"a_flip_{k}")
            b_flip = Signal(name=f"b_flip_{k}")
            m.d.comb += [a_flip.eq(~(a[top] ^ self.a_signed)),
                         b_flip.eq(~(b[top] ^ self.b_signed))]
        for i in range(top + 1):
            for j in range(top + 1):
                if (i == top) == (j == top):
                    if i == top and self._modes:
                        bit = (~a[i] | ~b[j]) ^ self.a_signed ^ self.b_signed
                    else:
                        bit = ~a[i] | ~b[j]
                elif not self._modes:
                    bit = a[i] & b[j]
                else:
                    # a & b if signed, else its complement; the other factor's bit selects
                    # between the two values that are left, the sign mode and its opposite.
                    other, flip, mode = ((b[j], a_flip, self.a_signed) if i == top else
                                         (a[i], b_flip, self.b_signed))
                    bit = (~other | flip) & (other | ~mode)
                yield i, j, bit

    def elaborate(self, platform):
        m = Module()

        compressor = Compressor(m, self._params.pass_bits)
        for k in range(self._params.multipliers):
            for i, j, bit in self._partial_products(m, k):
                product = Signal(name=f"product_{k}_{i}_{j}")
                m.d.comb += product.eq(bit)
                compressor.add(i + j, product)

        constants = _constants(self._params)
        for weight in range(self._params.pass_bits):
            bits = [constant >> weight & 1 for constant in constants]
            if all(bits):
                compressor.add(weight, C(1, 1))
            elif any(bits):
                mode = Cat(~self.a_signed, ~self.b_signed)
                compressor.add(weight, C(sum(bit << k for k, bit in enumerate(bits)), 4)
                               .bit_select(mode, 1))

        for _ in range(self.stages - 1):
            for _ in range(_LEVELS):
                compressor.reduce()
            compressor.cut(self.advance)
        minus = Signal(signed(self._params.pass_bits), reset_less=True)
        with m.If(self.advance):
            m.d.sync += minus.eq(compressor.total())
        m.d.comb += self.minus.eq(minus)

        return m
