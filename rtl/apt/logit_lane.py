"""A logit out of a dot product: times the scale of its tile, rounded and saturated."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .qk_words import LOGIT_BITS, MANTISSA_BITS, SHIFT_BITS


__all__ = ["LogitLane"]

#: Bits of a dot product's lower half, which is multiplied as an unsigned number: with a sign it
#: and the other half fit multipliers of 18 x 18 bits.
_LOW_BITS = 17


class LogitLane(AptComponent):
    """``z = sat16((acc * mantissa + (1 << (shift - 1))) >> shift)``, as numerics 4.6 has it.

    A free running pipeline: a logit a cycle, :attr:`latency` cycles after its operands. Two
    products (of 17 x 16 and of up to 18 x 17 bits where ``acc`` has up to 35), their sum, a shift
    by a multiple of eight, one by up to seven, rounding. Of what is shifted only as many bits are
    kept as the logit needs, and whether the others were no more than its sign.

    Parameters
    ----------
    params : :class:`AptParams`
        ``head_dim`` and ``segment_bits`` matter.

    Members
    -------
    acc : :py:`In(signed(params.logit_acc_bits))`
        Dot product.
    mantissa : :py:`In(16)`
    places : :py:`In(6)`
        ``shift - 1``, with ``shift`` in 1 to 63.
    z : :py:`Out(signed(16))`
        Logit, Q7.8.
    """

    #: Registers that ``acc`` goes through; none of them is at the input.
    STAGES = 5

    def _ports(self, params):
        params.check_quad()
        return {
            "acc": In(signed(params.logit_acc_bits)),
            "mantissa": In(MANTISSA_BITS),
            "places": In(SHIFT_BITS),
            "z": Out(signed(LOGIT_BITS)),
        }

    @property
    def latency(self):
        """Cycles from operands to ``z``."""
        return self.STAGES

    @property
    def throughput(self):
        return "1 logit a cycle"

    def elaborate(self, platform):
        m = Module()
        width = self._params.logit_acc_bits
        product_bits = width + MANTISSA_BITS
        low_bits = _LOW_BITS if width > _LOW_BITS + 1 else 0

        # Two products, and their sum.
        high = Signal(signed(product_bits - low_bits), reset_less=True)
        product = Signal(signed(product_bits), reset_less=True)
        mantissa = Cat(self.mantissa, C(0, 1)).as_signed()
        m.d.sync += high.eq(self.acc[low_bits:].as_signed() * mantissa)
        if low_bits:
            low = Signal(low_bits + MANTISSA_BITS, reset_less=True)
            m.d.sync += [
                low.eq(self.acc[:low_bits] * self.mantissa),
                product.eq(Cat(low[:low_bits], high + low[low_bits:])),
            ]
        else:
            m.d.sync += product.eq(high)
        places = [self.places]
        for stage in range(3):
            places.append(Signal(SHIFT_BITS, name=f"places_{stage}", reset_less=True))
            m.d.sync += places[-1].eq(places[-2])

        # `places` to the right; the bit below the logit is kept for rounding.
        coarse, coarse_fits, sign = self._shift(m, "coarse", product, places[2][3:], 8,
                                                LOGIT_BITS + 1 + 7, C(1, 1), product[-1])
        fine, fits, sign = self._shift(m, "fine", coarse, places[3][:3], 1,
                                       LOGIT_BITS + 1, coarse_fits, sign)

        # Half up; what is above the largest, also for rounding, is the largest.
        limit = Cat((~sign).replicate(LOGIT_BITS - 1), sign)
        at_top = ~sign & fine[:-1].all()
        logit = Signal(signed(LOGIT_BITS), reset_less=True)
        m.d.sync += logit.eq(Mux(fits & ~at_top, fine[1:] + fine[0], limit))
        m.d.comb += self.z.eq(logit)
        return m

    def _shift(self, m, name, value, count, unit, width, fits_before, sign):
        """One registered level of the shift: ``value >> unit * count``, its lowest ``width`` bits.

        Returns them, whether all above is sign, and the sign, behind the register.
        """
        kept = Signal(width, name=name, reset_less=True)
        fits, sign_out = (Signal(name=f"{name}_{what}", reset_less=True)
                          for what in ("fits", "sign"))
        choices = 1 << len(count)
        whole = Cat(value, sign.replicate(max(unit * (choices - 1) + width - len(value), 0)))
        # Bits that are not like the sign, from the top bit that a choice keeps on.
        odd = Signal(len(value), name=f"{name}_odd")
        m.d.comb += odd.eq(value ^ sign.replicate(len(value)))
        with m.Switch(count):
            for choice in range(choices):
                with m.Case(choice):
                    m.d.sync += [
                        kept.eq(whole[unit * choice:unit * choice + width]),
                        fits.eq(fits_before & ~odd[unit * choice + width - 1:].any()),
                    ]
        m.d.sync += sign_out.eq(sign)
        return kept, fits, sign_out
