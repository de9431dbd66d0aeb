"""One lane of the quantizer: an element times a reciprocal that all lanes share."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from rtl.common.arith import saturate_symmetric, tree_sum

from .component import AptComponent


__all__ = ["ScaleLane"]


class ScaleLane(AptComponent):
    """``q = sign(x) * ((|x| * inverse + 2**15) >> 16)`` for ``|x| * inverse < 2**(w + 15)``.

    ``w = params.word_bits``; -32768 is saturated to -32767. Three register stages that move with
    ``advance``: digits of ``x``, two partial sums, ``q``. ``inverse`` and ``triple`` are read
    between the first and the second.

    Unless ``multiplier_style = dsp`` the product is six rows of Booth radix 8: as the reciprocal is
    the same in all lanes, its odd multiple is made once, outside. The digits of ``|x|`` are those
    of ``x``, all negated if ``x`` is negative, so ``x`` is never negated itself. Otherwise the
    product is written with ``*``, the reciprocal in halves, for DSP inference. Rounding
    and the sign meet in one incrementer: ``-(h + r) = ~h + (1 - r)``.

    Parameters
    ----------
    params : :class:`AptParams`
        ``segment_bits``, ``split`` and ``multiplier_style`` matter.

    Members
    -------
    advance : :py:`In(1)`
        Registers move.
    x : :py:`In(signed(16))`
        Element.
    inverse : :py:`In(params.inverse_bits)`
        Reciprocal.
    triple : :py:`In(params.inverse_bits)`
        ``3 * inverse`` modulo its width; read by style ``lut`` alone.
    q : :py:`Out(signed(params.word_bits))`
        Word of the element that went in three moves before.
    """

    #: Moves from ``x`` to ``q``.
    STAGES = 3

    def _ports(self, params):
        return {
            "advance": In(1),
            "x": In(signed(SCALE_BITS)),
            "inverse": In(params.inverse_bits),
            "triple": In(params.inverse_bits),
            "q": Out(signed(params.word_bits)),
        }

    def _booth_rows(self, m, x):
        """Rows of ``|x| * inverse``, as (value, position); one register stage inside."""
        width = self._params.inverse_bits
        negative = x[-1]
        below = Cat(Const(0, 1), x)  # bit 3*k is the one below digit k
        rows, carry = [], None
        for digit in range(5):
            position = 3 * digit
            window = below[position:position + 4]
            # Magnitude 0 to 4, one-hot from 1 on, and the sign within |x|.
            folded = Signal(3, name=f"folded_{digit}")
            m.d.comb += folded.eq(window[:3] ^ window[3].replicate(3))
            odd = folded[0] ^ folded[1]
            select = Signal(4, name=f"select_{digit}", reset_less=True)
            minus = Signal(name=f"minus_{digit}", reset_less=True)
            with m.If(self.advance):
                m.d.sync += [
                    select.eq(Cat(odd & ~folded[2],
                                  Mux(folded[2], ~folded[0] & ~folded[1], folded[0] & folded[1]),
                                  odd & folded[2],
                                  folded.all())),
                    minus.eq(window[3] ^ negative),
                ]
            # Negative rows are ones' complements; the 1 that is missing stands three positions
            # below the next row.
            multiples = (self.inverse, self.inverse << 1, self.triple, self.inverse << 2)
            row = Signal(width - position, name=f"row_{digit}")
            chosen = Const(0, len(row))
            for pick, multiple in zip(select, multiples, strict=True):
                chosen = chosen | (multiple[:len(row)] & pick.replicate(len(row)))
            m.d.comb += row.eq(chosen ^ minus.replicate(len(row)))
            rows.append((row, 0) if digit == 0 else (Cat(carry, Const(0, 2), row), position - 3))
            carry = minus
        # The top digit is 0 or 1: |x| is below 2**15.
        top = Signal(reset_less=True)
        with m.If(self.advance):
            m.d.sync += top.eq(x[-1] ^ x[-2])
        row = Signal(width - 15, name="row_5")
        m.d.comb += row.eq(self.inverse & top.replicate(len(row)))
        return [*rows, (Cat(carry, Const(0, 2), row), 12)]

    def _partial_sums(self, m, x):
        """Two partial sums of ``|x| * inverse``, as (value, position); digits registered."""
        if self._params.multiplier_style != "dsp":
            rows = self._booth_rows(m, x)
            for half in (rows[:3], rows[3:]):
                lowest = half[0][1]
                yield tree_sum(value << (position - lowest) for value, position in half), lowest
        else:
            magnitude = Signal(SCALE_BITS - 1, reset_less=True)
            with m.If(self.advance):
                m.d.sync += magnitude.eq(Mux(x[-1], -x, x))
            middle = self._params.inverse_bits // 2
            for low, high in ((0, middle), (middle, self._params.inverse_bits)):
                yield magnitude * self.inverse[low:high], low

    def elaborate(self, platform):
        m = Module()
        width = self._params.inverse_bits

        x = Signal(signed(SCALE_BITS))
        m.d.comb += x.eq(saturate_symmetric(self.x, SCALE_BITS))

        # Digits (x_), partial sums (s_). Sums are modulo the product's width.
        x_negative = Signal(reset_less=True)
        s_negative = Signal(reset_less=True)
        with m.If(self.advance):
            m.d.sync += [x_negative.eq(x[-1]), s_negative.eq(x_negative)]
        sums = []
        for value, position in self._partial_sums(m, x):
            register = Signal(width - position, name=f"s_{position}", reset_less=True)
            with m.If(self.advance):
                m.d.sync += register.eq(value)
            sums.append(register << position)

        # Product, rounding and sign.
        product = Signal(width)
        m.d.comb += product.eq(sums[0] + sums[1])
        whole = product[SCALE_BITS:]
        round_up = product[SCALE_BITS - 1]
        with m.If(self.advance):
            m.d.sync += self.q.eq((Cat(whole, Const(0, 1)) ^ s_negative.replicate(len(whole) + 1))
                                  + (round_up ^ s_negative))

        return m
