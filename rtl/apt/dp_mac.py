"""Dual-precision multiply-accumulate: dot products on segment multipliers."""

from amaranth import *
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from rtl.common.stream import travel_along

from .component import AptComponent
from .product_sum import ProductSum, product_stages
from .product_tree import ProductTree


__all__ = ["DpMac", "Pass"]


class Pass(enum.Enum, shape=unsigned(2)):
    """Segments that a cycle multiplies: M(SB) or L(SB) of ``a``, then of ``b``."""

    HH = 0
    HL = 1
    LH = 2
    LL = 3


class DpMac(AptComponent):
    """Dot product of words in ``multipliers`` products of segments a cycle (APT 4.5).

    With ``a = (aH << segment_bits) + aL`` and ``b`` likewise, a *pass* over a dot product sums one
    of the four products of segments, ``ceil(n / multipliers)`` cycles for ``n`` terms, and enters
    the accumulator with its weight::

        low precision     o = sum(aH*bH) << 2*segment_bits     passes HH
        high precision    o = sum(a*b)                         passes HH, HL, LH, LL

    Both are in the same unit. The cycles of one dot product come in any order of passes, the
    first marked ``first`` and the last ``last``; low precision is what has no other pass than HH.
    Low and high precision follow each other without a bubble. Terms beyond ``n`` in the last
    cycle of a pass must be zero.

    Latency: :attr:`latency` cycles from the transfer of the last cycle to ``o.valid``.
    Throughput: one cycle of ``multipliers`` products is accepted each clock cycle. While ``o`` is
    stalled nothing moves and nothing is accepted; ``i.ready`` depends on ``o.ready``.

    A segment is in two's complement, save that an LSB segment is unsigned with
    ``split = truncate``. The accumulator holds any dot product of ``params.max_terms`` words in
    ``-qmax..qmax`` (:attr:`AptParams.acc_bits`); sums on the way may wrap and unwrap.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine. ``multiplier_style = dsp`` writes products that synthesis may put into
        DSP blocks (:class:`ProductTree`), any other sums all partial products in one carry-save
        tree (:class:`ProductSum`); latency and results are the same.

    Members
    -------
    i : :py:`In(stream.Signature(i_layout))`
        Segments ``a`` and ``b`` (arrays of ``multipliers``), ``pass_`` (:class:`Pass`), ``first``,
        ``last``.
    o : :py:`Out(stream.Signature(signed(params.acc_bits)))`
        Dot products.
    """

    def _ports(self, params):
        segments = data.ArrayLayout(unsigned(params.segment_bits), params.multipliers)
        return {
            "i": In(stream.Signature(data.StructLayout({
                "a": segments, "b": segments, "pass_": Pass, "first": 1, "last": 1}))),
            "o": Out(stream.Signature(signed(params.acc_bits))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of the last cycle of a dot product to ``o.valid``."""
        return product_stages(self._params) + 1

    @property
    def throughput(self):
        return f"{self._params.multipliers} products a cycle"

    def _products(self, m, advance, a_signed, b_signed):
        """The sum of products of the segments at the input, and whether it is negated."""
        params = self._params
        if params.multiplier_style != "dsp":
            m.submodules.products = products = ProductSum(params)
            m.d.comb += [products.a.eq(self.i.p.a), products.b.eq(self.i.p.b)]
            if params.split == "truncate":
                m.d.comb += [products.a_signed.eq(a_signed), products.b_signed.eq(b_signed)]
            total, negated = products.minus, True
        else:
            # An unsigned segment takes a bit more; DSP blocks have it.
            unsigned_bits = int(params.split == "truncate")
            width = params.segment_bits + unsigned_bits
            m.submodules.products = products = ProductTree(width, params.multipliers,
                                                           product_stages(params))
            for operands, segments, is_signed in ((products.a, self.i.p.a, a_signed),
                                                  (products.b, self.i.p.b, b_signed)):
                for operand, segment in zip(operands, segments, strict=True):
                    sign = (segment[-1] & is_signed).replicate(unsigned_bits)
                    m.d.comb += operand.eq(Cat(segment, sign).as_signed())
            total, negated = products.total, False
        m.d.comb += products.advance.eq(advance)
        return total, negated

    def elaborate(self, platform):
        m = Module()
        params = self._params

        # All stages move together, whenever the output register is free or being emptied.
        advance = Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(advance),
        ]

        # Bit 1 of a pass says that `a` is the LSB segment, bit 0 that `b` is.
        pass_ = self.i.p.pass_.as_value()
        total, negated = self._products(m, advance, ~pass_[1], ~pass_[0])

        # What belongs to the sum of products goes along with it.
        valid, first, last, pass_ = travel_along(
            m, advance, product_stages(params), self.i.valid, first=self.i.p.first,
            last=self.i.p.last, **{"pass": pass_})

        # Last stage: weigh and accumulate. The weight is one of three shifts, written as gates so
        # that each bit has the terms that it can have. The accumulator is the output register.
        acc = self.o.payload
        weights = [(pass_ == Pass.LL, 0),
                   ((pass_ == Pass.HL) | (pass_ == Pass.LH), params.segment_bits),
                   (pass_ == Pass.HH, 2 * params.segment_bits)]
        selects = []
        for k, (select, shift) in enumerate(weights):
            signal = Signal(name=f"weight_{k}")
            m.d.comb += signal.eq(select)
            selects.append((signal, shift))
        weighted = Signal(signed(params.acc_bits))
        for k in range(params.acc_bits):
            terms = [select & total[min(k - shift, len(total) - 1)]
                     for select, shift in selects if k >= shift]
            m.d.comb += weighted[k].eq(Cat(terms).any())
        start = Signal(signed(params.acc_bits))
        m.d.comb += start.eq(acc & ~first.replicate(params.acc_bits))
        with m.If(advance):
            m.d.sync += self.o.valid.eq(valid & last)
            with m.If(valid):
                m.d.sync += acc.eq(start - weighted if negated else start + weighted)

        return m
