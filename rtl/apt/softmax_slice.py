"""Softmax of one row: powers of two of a few keys a cycle, and their sum."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .component import AptComponent
from .exp2 import Exp2
from .softmax_words import LOGIT_BITS, element


__all__ = ["SoftmaxSlice"]


class SoftmaxSlice(AptComponent):
    """``P' = 2**(z - maximum)`` of ``slice_keys`` keys a cycle, and the sum over a row's keys.

    P' is 0 where the element was not computed: its exponent is made so large. ``p`` is the last
    register of :class:`Exp2`.

    The sum does not move with ``advance``, so that a row can be completed while the words behind
    it are held: it takes ``p`` in a cycle with ``add``.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, ``exp2`` and ``tile_k`` matter.

    Members
    -------
    advance : :py:`In(1)`
        Registers from ``i`` to ``p`` move.
    maximum : :py:`In(signed(16))`
        At least every computed ``z`` of the word.
    i : :py:`In(ArrayLayout(element(), params.slice_keys))`
    p : :py:`Out(ArrayLayout(16, params.slice_keys))`
        U1.15, ``stages`` moves after ``i``.
    add : :py:`In(1)`
        ``p`` is a word to sum, which it is once.
    first : :py:`In(1)`
        It is the first of its row.
    total : :py:`Out(params.total_bits)`
        Sum up to the word added ``sum_stages`` cycles before.
    """

    def __init__(self, params):
        self._units = [Exp2(params) for _ in range(params.slice_keys)]
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "advance": In(1),
            "maximum": In(signed(LOGIT_BITS)),
            "i": In(data.ArrayLayout(element(), params.slice_keys)),
            "p": Out(data.ArrayLayout(16, params.slice_keys)),
            "add": In(1),
            "first": In(1),
            "total": Out(params.total_bits),
        }

    @property
    def stages(self):
        """Moves from ``i`` to ``p``: operands, difference, power of two."""
        return 2 + self._units[0].stages

    @property
    def sum_stages(self):
        """Cycles from ``add`` to ``total``: a level of adders each, and the accumulator."""
        return ceil_log2(self._params.slice_keys) + 1

    @property
    def latency(self):
        return self.stages

    @property
    def throughput(self):
        return f"{self._params.slice_keys} keys a cycle"

    def elaborate(self, platform):
        m = Module()

        maximum = Signal.like(self.maximum, reset_less=True)
        with m.If(self.advance):
            m.d.sync += maximum.eq(self.maximum)
        for key, unit in enumerate(self._units):
            m.submodules[f"exp2_{key}"] = unit
            operand = Signal(element(), name=f"operand_{key}", reset_less=True)
            u = Signal(LOGIT_BITS, name=f"u_{key}", reset_less=True)
            difference = Signal(LOGIT_BITS, name=f"difference_{key}")
            m.d.comb += [
                # Not negative, so the bits that it has fit without a sign.
                difference.eq(maximum - operand.z),
                unit.advance.eq(self.advance),
                unit.u.eq(u),
                self.p[key].eq(unit.value),
            ]
            with m.If(self.advance):
                m.d.sync += [
                    operand.eq(self.i[key]),
                    # From 16 on in Q8.8 powers are 0.
                    u.eq(Cat(difference[:-1], difference[-1] | ~operand.computed)),
                ]

        # A register behind every level of adders.
        values, valid, first = list(self.p), self.add, self.first
        level = 0
        while len(values) > 1:
            sums = []
            for number, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True)):
                partial = Signal(len(a) + 1, name=f"sum_{level}_{number}", reset_less=True)
                m.d.sync += partial.eq(a + b)
                sums.append(partial)
            sum_valid = Signal(name=f"sum_valid_{level}")
            sum_first = Signal(name=f"sum_first_{level}", reset_less=True)
            m.d.sync += [sum_valid.eq(valid), sum_first.eq(first)]
            values, valid, first = sums, sum_valid, sum_first
            level += 1
        with m.If(valid):
            m.d.sync += self.total.eq(Mux(first, 0, self.total) + values[0])

        return m
