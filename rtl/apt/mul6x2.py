"""Two products of segments that share a factor, in one multiplication."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .component import AptComponent


__all__ = ["Mul6x2", "PackedProduct"]


class PackedProduct(wiring.Component):
    """``p = a * b`` between registers, and nothing else: what a DSP block takes in whole.

    A module of its own, so that an FPGA flow can replace it by a block with its own registers
    where synthesis would leave them outside (``gen/techmap``). None of the registers is reset.

    Latency: 2 cycles. Throughput: one product a cycle.

    Parameters
    ----------
    segment_bits : :class:`int`
        Bits of a segment.

    Members
    -------
    a : :py:`In(signed(3 * segment_bits))`
        Two factors, see :class:`Mul6x2`.
    b : :py:`In(signed(segment_bits))`
        Common factor.
    p : :py:`Out(signed(4 * segment_bits))`
        Product.
    """

    def __init__(self, segment_bits):
        super().__init__({"a": In(signed(3 * segment_bits)), "b": In(signed(segment_bits)),
                          "p": Out(signed(4 * segment_bits))})

    @property
    def latency(self):
        """Cycles from factors to product."""
        return 2

    @property
    def throughput(self):
        return "one product a cycle"

    def elaborate(self, platform):
        m = Module()
        a = Signal.like(self.a, name="a_reg", reset_less=True)
        b = Signal.like(self.b, name="b_reg", reset_less=True)
        p = Signal.like(self.p, name="p_reg", reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), p.eq(a * b)]
        m.d.comb += self.p.eq(p)
        return m


class Mul6x2(AptComponent):
    """Products of two segments ``hi`` and ``lo`` with a third, ``b``.

    ``hi*b = hi_b + hi_carry`` and ``lo*b = lo_b``, exact for every value. Whoever adds ``hi_b`` to
    something gives ``hi_carry`` to the adder as its carry input, which costs no adder.

    ``multiplier_style = packed`` has one product of ``3 * segment_bits`` by ``segment_bits``::

        a = {hi, zeros, lo}    two's complement digits, lo as if unsigned
        p = a*b

    The lower half of ``p`` is ``lo*b``, but for ``b << segment_bits`` to subtract where ``lo`` is
    negative. The upper half is ``hi*b``, less one where the lower half is negative. The other
    styles have two products apart, and ``hi_carry`` is 0: ``dsp`` writes multiplications, ``lut``
    additions.

    A pipeline without control: operands | product | corrected product (``lut``: operands | sums of
    two rows | product). No register is reset.

    Latency: :attr:`latency` cycles. Throughput: two products a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; ``split`` must be ``balanced``, all segments are signed.

    Members
    -------
    hi, lo : :py:`In(signed(params.segment_bits))`
        Factors.
    b : :py:`In(signed(params.segment_bits))`
        Common factor.
    hi_b, lo_b : :py:`Out(signed(2 * params.segment_bits))`
        Products, ``hi_b`` without its carry.
    hi_carry : :py:`Out(1)`
        What is to be added to ``hi_b``.
    """

    def _ports(self, params):
        params.check_quad()
        segment, product = signed(params.segment_bits), signed(2 * params.segment_bits)
        return {"hi": In(segment), "lo": In(segment), "b": In(segment),
                "hi_b": Out(product), "lo_b": Out(product), "hi_carry": Out(1)}

    @property
    def latency(self):
        """Cycles from factors to products."""
        return 3

    @property
    def throughput(self):
        return "two products a cycle"

    def _packed(self, m):
        bits = self._params.segment_bits
        name = f"packed_product_{bits}"
        m.submodules[name] = product = PackedProduct(bits)
        m.d.comb += [product.a.eq(Cat(self.lo, C(0, bits), self.hi)), product.b.eq(self.b)]

        # What the lower half is corrected by, in step with the product. It is written so that
        # the register's synchronous reset can make the zeros.
        b = Signal(signed(bits), reset_less=True)
        negative = Signal(reset_less=True)
        less = Signal(signed(bits), reset_less=True)
        m.d.sync += [b.eq(self.b), negative.eq(self.lo[-1]), less.eq(0)]
        with m.If(negative):
            m.d.sync += less.eq(b)

        lower, middle, upper = (product.p[:bits], product.p[bits:2 * bits],
                                product.p[2 * bits:].as_signed())
        corrected = Signal(bits)
        m.d.comb += corrected.eq(middle - less)
        return upper, Cat(lower, corrected).as_signed(), product.p[2 * bits - 1]

    def _operands(self, m):
        """``hi``, ``lo`` and ``b`` registered."""
        operands = []
        for name in ("hi", "lo", "b"):
            port = getattr(self, name)
            operand = Signal.like(port, name=f"{name}_operand", reset_less=True)
            m.d.sync += operand.eq(port)
            operands.append(operand)
        return operands

    def _plain(self, m):
        *factors, b = self._operands(m)
        products = []
        for name, factor in zip(("hi", "lo"), factors, strict=True):
            product = Signal(signed(2 * self._params.segment_bits), name=f"{name}_product",
                             reset_less=True)
            m.d.sync += product.eq(factor * b)
            products.append(product)
        return *products, C(0, 1)

    def _rows(self, m):
        # A multiplication of narrow factors out of logic cells is smaller as additions that use
        # carry chains: pairs of rows, registered, then the pairs.
        bits = self._params.segment_bits
        *factors, b = self._operands(m)
        products = []
        for name, factor in zip(("hi", "lo"), factors, strict=True):
            rows = [Signal.like(factor, name=f"{name}_row_{k}") for k in range(bits)]
            m.d.comb += [row.eq(factor & b[k].replicate(bits)) for k, row in enumerate(rows)]
            total = 0
            for k in range(0, bits, 2):
                # The top bit of `b` is negative.
                row = rows[k] if k < bits - 1 else -rows[k]
                if k + 1 < bits:
                    other = rows[k + 1] << 1
                    row = row + other if k + 1 < bits - 1 else row - other
                pair = Signal(signed(bits + 2), name=f"{name}_pair_{k}", reset_less=True)
                m.d.sync += pair.eq(row)
                total = total + (pair << k)
            products.append(total[:2 * bits].as_signed())
        return *products, C(0, 1)

    def elaborate(self, platform):
        m = Module()
        products = {"packed": self._packed, "dsp": self._plain, "lut": self._rows}
        for name, value in zip(("hi_b", "lo_b", "hi_carry"),
                               products[self._params.multiplier_style](m), strict=True):
            port = getattr(self, name)
            register = Signal(port.shape(), name=f"{name}_reg", reset_less=True)
            m.d.sync += register.eq(value)
            m.d.comb += port.eq(register)
        return m
