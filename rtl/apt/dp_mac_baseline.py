"""What :class:`rtl.apt.dp_mac.DpMac` is compared with: the same dot product built plainly."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from rtl.common.stream import travel_along

from .component import AptComponent
from .product_sum import product_stages
from .product_tree import ProductTree


__all__ = ["DpMacBaseline"]


class DpMacBaseline(AptComponent):
    """``o = sum(a*b)`` on ``multipliers`` multipliers of whole words, written with ``*``.

    Any dot product takes ``ceil(n / multipliers)`` cycles and is exact; there is no low
    precision. Accumulator width, latency, stalls and ports are those of
    :class:`rtl.apt.dp_mac.DpMac`.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    i : :py:`In(stream.Signature(i_layout))`
        Words ``a`` and ``b`` (arrays of ``multipliers``), ``first``, ``last``.
    o : :py:`Out(stream.Signature(signed(params.acc_bits)))`
        Dot products.
    """

    def _ports(self, params):
        words = data.ArrayLayout(signed(params.word_bits), params.multipliers)
        return {
            "i": In(stream.Signature(data.StructLayout({
                "a": words, "b": words, "first": 1, "last": 1}))),
            "o": Out(stream.Signature(signed(params.acc_bits))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of the last terms of a dot product to ``o.valid``."""
        return product_stages(self._params) + 1

    @property
    def throughput(self):
        return f"{self._params.multipliers} products a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params

        advance = Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(advance),
        ]

        m.submodules.products = products = ProductTree(params.word_bits, params.multipliers,
                                                       product_stages(params))
        m.d.comb += [
            products.advance.eq(advance),
            products.a.eq(self.i.p.a),
            products.b.eq(self.i.p.b),
        ]

        valid, first, last = travel_along(m, advance, product_stages(params), self.i.valid,
                                          first=self.i.p.first, last=self.i.p.last)

        acc = self.o.payload
        with m.If(advance):
            m.d.sync += self.o.valid.eq(valid & last)
            with m.If(valid):
                m.d.sync += acc.eq(Mux(first, 0, acc) + products.total)

        return m
