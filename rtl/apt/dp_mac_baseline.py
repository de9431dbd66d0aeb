"""What :class:`rtl.apt.dp_mac.DpMac` is compared with: the same dot product built plainly."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import AptParams

from .product_sum import product_stages
from .product_tree import ProductTree


__all__ = ["DpMacBaseline"]


class DpMacBaseline(wiring.Component):
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

    def __init__(self, params):
        if not isinstance(params, AptParams):
            raise TypeError(f"Params must be an AptParams, not {params!r}")
        self._params = params
        self._stages = product_stages(params)
        words = data.ArrayLayout(signed(params.word_bits), params.multipliers)
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({
                "a": words, "b": words, "first": 1, "last": 1}))),
            "o": Out(stream.Signature(signed(params.acc_bits))),
        })

    @property
    def params(self):
        return self._params

    @property
    def latency(self):
        """Cycles from the transfer of the last terms of a dot product to ``o.valid``."""
        return self._stages + 1

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
                                                       self._stages)
        m.d.comb += [
            products.advance.eq(advance),
            products.a.eq(self.i.p.a),
            products.b.eq(self.i.p.b),
        ]

        valid, first, last = self.i.valid, self.i.p.first, self.i.p.last
        for k in range(self._stages):
            staged = [Signal(name=f"valid_{k}"), Signal(name=f"first_{k}", reset_less=True),
                      Signal(name=f"last_{k}", reset_less=True)]
            with m.If(advance):
                m.d.sync += Cat(staged).eq(Cat(valid, first, last))
            valid, first, last = staged

        acc = self.o.payload
        with m.If(advance):
            m.d.sync += self.o.valid.eq(valid & last)
            with m.If(valid):
                m.d.sync += acc.eq(Mux(first, 0, acc) + products.total)

        return m
