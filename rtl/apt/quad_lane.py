"""Lane of the quad dataflow: two dot products in QK, many running sums in PV."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.stream import travel_along

from .component import AptComponent
from .mul6x2 import Mul6x2


__all__ = ["QuadLane", "lane_operation"]


def lane_operation():
    """What a lane does with its operands."""
    return data.StructLayout({"valid": 1, "qk": 1, "first": 1, "shift": 1, "last": 1, "low": 1})


def _plus(x, y, carry, bits):
    """``x + y + carry`` in so many bits, as one adder: ``carry`` enters below its lowest bit."""
    if carry is None:
        return (x + y)[:bits].as_signed()
    return (Cat(C(1, 1), x).as_signed() + Cat(carry, y).as_signed())[1:bits + 1].as_signed()


class QuadLane(AptComponent):
    """Arithmetic of one lane: ``multipliers`` products of segments a cycle.

    Each cycle is for QK or for PV, in any order and without a bubble. Of the multipliers, pair
    ``s`` shares a factor (:class:`Mul6x2`):

    ``qk`` : keys ``a[0]`` and ``a[1]`` times query ``b``, channel ``s`` of a chunk. The products
        of a key are summed (``t``) and enter its accumulator, in Horner's order of the levels HH,
        HL + LH, LL::

            acc = t if first else (acc << segment_bits) + t if shift else acc + t

        At ``last`` the accumulators go to ``sums``, times ``4**segment_bits`` if ``low``.
    otherwise : ``a`` holds ``multipliers`` columns of V, and every ``b`` the same probability.
        Every product enters an accumulator of its own. At ``last`` the accumulators go to
        ``run``, and are cleared: what follows is the first of another run, ``first`` need not say
        so.

    ``operation`` comes a cycle before its operands and is registered here: each lane has a
    register of its own.

    Latency: :attr:`sums_latency` cycles from the operands of a ``last`` to ``sums_valid``,
    :attr:`run_latency` to ``run_valid``; both are pulses, and what they announce stays until the
    next.
    Throughput: ``multipliers`` products a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine, one that :meth:`~golden.apt.quad_shape.QuadShape.check_quad` takes.

    Members
    -------
    operation : :py:`In(lane_operation())`
        ``valid``, ``qk``, ``first``, ``shift``, ``last``, ``low`` of the next cycle's operands.
    i : :py:`In(i_layout)`
        ``a``: two arrays of ``qk_width`` segments, ``b`` one.
    sums_valid : :py:`Out(1)`
    sums : :py:`Out(data.ArrayLayout(signed(params.logit_acc_bits), 2))`
        Dot products of both keys.
    run_soon, run_valid : :py:`Out(1)`
        ``run_soon`` is a cycle before ``run_valid``.
    run : :py:`Out(data.ArrayLayout(signed(params.run_bits), params.multipliers))`
        Sums of a run, columns in the order of ``a``.
    """

    def _ports(self, params):
        params.check_quad()
        segment = signed(params.segment_bits)
        channels = data.ArrayLayout(segment, params.qk_width)
        return {
            "operation": In(lane_operation()),
            "i": In(data.StructLayout({"a": data.ArrayLayout(channels, 2), "b": channels})),
            "sums_valid": Out(1),
            "sums": Out(data.ArrayLayout(signed(params.logit_acc_bits), 2)),
            "run_soon": Out(1), "run_valid": Out(1),
            "run": Out(data.ArrayLayout(signed(params.run_bits), params.multipliers)),
        }

    #: Registers from ``i`` to the products: the operands', then those of :class:`Mul6x2`.
    _PRODUCT_STAGES = 1 + 3

    @property
    def _levels(self):
        """Levels of the trees of adders, each with a register."""
        return ceil_log2(self._params.qk_width)

    @property
    def run_latency(self):
        """Cycles from a PV ``last`` to ``run_valid``: operands, products, sum."""
        return self._PRODUCT_STAGES + 1

    @property
    def sums_latency(self):
        """Cycles from a QK ``last`` to ``sums_valid``: operands, products, tree, accumulator,
        sums."""
        return self._PRODUCT_STAGES + self._levels + 2

    @property
    def latency(self):
        """The longer of both latencies."""
        return self.sums_latency

    @property
    def throughput(self):
        return f"{self._params.multipliers} products a cycle"

    def _products(self, m):
        """Products of all pairs, ``(hi, its carry, lo)`` each; the carry may be ``None``."""
        i = self.i
        products = []
        for s in range(self._params.qk_width):
            m.submodules[f"pair_{s}"] = pair = Mul6x2(self._params)
            # Registers of their own, though the multiplier has some: what comes from memories far
            # away has a cycle to the lane, and another to the multiplier.
            for name, source in (("hi", i.a[1][s]), ("lo", i.a[0][s]), ("b", i.b[s])):
                operand = Signal(signed(self._params.segment_bits), name=f"{name}_{s}",
                                 reset_less=True)
                m.d.sync += operand.eq(source)
                m.d.comb += getattr(pair, name).eq(operand)
            carry = pair.hi_carry if self._params.multiplier_style == "packed" else None
            products.append((pair.hi_b, carry, pair.lo_b))
        return products

    def _tree(self, m, name, terms):
        """Sum of ``(value, carry)`` terms, a carry of its own left; a register after each level.

        Of two terms one's carry enters their adder, the other's waits for the next.
        """
        bits = 2 * self._params.segment_bits
        for level in range(1, self._levels + 1):
            level_terms = []
            for k in range(0, len(terms), 2):
                total, carry = terms[k]
                if k + 1 < len(terms):
                    total, carry = _plus(total, terms[k + 1][0], carry, bits + level), \
                        terms[k + 1][1]
                register = Signal(signed(bits + level), name=f"{name}_{level}_{k // 2}",
                                  reset_less=True)
                m.d.sync += register.eq(total)
                if carry is not None:
                    waiting = Signal(name=f"{name}_{level}_{k // 2}_carry", reset_less=True)
                    m.d.sync += waiting.eq(carry)
                    carry = waiting
                level_terms.append((register, carry))
            terms = level_terms
        return terms[0]

    def _qk(self, m, products, valid, first, shift, last, low):
        params = self._params
        valid, first, shift, last, low = travel_along(
            m, 1, self._levels, valid, first=first, shift=shift, last=last, low=low)
        done, times = travel_along(m, 1, 1, valid & last, low=low)
        m.d.sync += self.sums_valid.eq(done)
        for j, name in enumerate(("lo", "hi")):
            total, carry = self._tree(m, name, [
                product[:2] if j else (product[2], None) for product in products])
            acc = Signal(signed(params.logit_acc_bits), name=f"{name}_acc", reset_less=True)
            start = Signal.like(acc, name=f"{name}_start")
            m.d.comb += start.eq(Mux(first, 0, Mux(shift, acc << params.segment_bits, acc)))
            with m.If(valid):
                m.d.sync += acc.eq(_plus(start, total, carry, len(acc)))
            # A copy behind the accumulator: the shift need not follow the adder.
            with m.If(done):
                m.d.sync += self.sums[j].eq(Mux(times, acc << params.word_bits, acc))

    def _pv(self, m, products, valid, last):
        # `clear` is high in reset, so that the accumulators need no other.
        take, end = Signal(), Signal()
        clear = Signal(init=1)
        m.d.sync += [take.eq(valid), end.eq(valid & last), clear.eq(valid & last),
                     self.run_valid.eq(end)]
        m.d.comb += self.run_soon.eq(end)
        columns = [(lo, None) for _, _, lo in products]
        columns += [(hi, carry) for hi, carry, _ in products]
        for c, (product, carry) in enumerate(columns):
            acc = Signal(signed(self._params.run_bits), name=f"acc_{c}", reset_less=True)
            total = Signal.like(acc, name=f"total_{c}")
            m.d.comb += total.eq(_plus(acc, product, carry, len(acc)))
            with m.If(clear):
                m.d.sync += acc.eq(0)
            with m.Elif(take):
                m.d.sync += acc.eq(total)
            with m.If(end):
                m.d.sync += self.run[c].eq(total)

    def elaborate(self, platform):
        m = Module()
        operation = {name: getattr(self.operation, name) for name in lane_operation().members}
        now = dict(zip(operation, travel_along(m, 1, 1, **operation), strict=True))
        products = self._products(m)
        # One register less than the products have: what they enable is registered once more.
        valid, qk, first, shift, last, low = travel_along(m, 1, self._PRODUCT_STAGES - 1, **now)
        self._pv(m, products, valid & ~qk, last)
        self._qk(m, products, *travel_along(m, 1, 1, valid & qk, first=first, shift=shift,
                                            last=last, low=low))
        return m
