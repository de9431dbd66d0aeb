"""Serial reciprocal of a scale word."""

from amaranth import *
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS

from .component import AptComponent


__all__ = ["Reciprocal", "reciprocal_latency"]


def reciprocal_latency(params):
    """:attr:`Reciprocal.latency` of these parameters, without building one."""
    return params.inverse_bits + 1


class Reciprocal(AptComponent):
    """Reciprocal of a tile's scale word: ``floor(qmax * 2**16 / A)`` (numerics 4.6).

    A restoring divider, one bit a cycle: one result every ``latency + 1`` cycles, or fewer words
    if ``o`` is stalled, as the result is held where it is computed. ``A = 0`` gives all ones.

    Parameters
    ----------
    params : :class:`AptParams`
        ``segment_bits`` and ``split`` matter.

    Members
    -------
    i : :py:`In(stream.Signature(SCALE_BITS))`
        ``A``, 0 to 32767.
    o : :py:`Out(stream.Signature(params.inverse_bits))`
        Reciprocals.
    """

    def _ports(self, params):
        return {
            "i": In(stream.Signature(SCALE_BITS)),
            "o": Out(stream.Signature(params.inverse_bits)),
        }

    @property
    def latency(self):
        """Cycles from the transfer of ``A`` to ``o.valid``."""
        return reciprocal_latency(self._params)

    @property
    def throughput(self):
        return f"one reciprocal every {self.latency + 1} cycles"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        bits = params.inverse_bits

        # The dividend leaves `quotient` at the top while the quotient's bits enter at the bottom.
        quotient = self.o.payload
        divisor = Signal(SCALE_BITS - 1, reset_less=True)
        remainder = Signal(SCALE_BITS - 1, reset_less=True)
        left = Signal(range(bits + 1))

        shifted = Signal(SCALE_BITS)
        difference = Signal(SCALE_BITS + 1)
        fits = Signal()
        m.d.comb += [
            shifted.eq(Cat(quotient[-1], remainder)),
            difference.eq(shifted - divisor),
            fits.eq(~difference[-1]),
            self.i.ready.eq((left == 0) & ~self.o.valid),
        ]
        with m.If(self.o.valid):
            m.d.sync += self.o.valid.eq(~self.o.ready)
        with m.Elif(left != 0):
            m.d.sync += [
                remainder.eq(Mux(fits, difference, shifted)),
                quotient.eq(Cat(fits, quotient[:-1])),
                left.eq(left - 1),
                self.o.valid.eq(left == 1),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += [
                divisor.eq(self.i.payload),
                remainder.eq(0),
                quotient.eq(params.qmax << SCALE_BITS),
                left.eq(bits),
            ]

        return m
