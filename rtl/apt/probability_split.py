"""P' as a probability word, in its two segments (numerics 4.8)."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from .component import AptComponent


__all__ = ["ProbabilitySplit"]


class ProbabilitySplit(AptComponent):
    """Segments of the word ``(P' * qmax + 2**14) >> 15``, for balanced segments.

    ``qmax`` is ``2**(w-1) - 2**(s-1) - 1`` with words of ``w`` bits and segments of ``s``, so the
    product is one number less another: no multiplier. The word is not negative, and neither is
    its MSB segment. One P' a cycle; nothing stops.

    Parameters
    ----------
    params : :class:`AptParams`
        ``segment_bits`` matters.

    Members
    -------
    p : :py:`In(16)`
        P' in U1.15.
    high : :py:`Out(params.segment_bits - 1)`
        MSB segment, ``stages`` cycles later.
    low : :py:`Out(signed(params.segment_bits))`
        LSB segment.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "p": In(16),
            "high": Out(params.segment_bits - 1),
            "low": Out(signed(params.segment_bits)),
        }

    @property
    def stages(self):
        """Cycles from ``p`` to the segments: terms, word, segments."""
        return 3

    latency = stages

    @property
    def throughput(self):
        return "one P' a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        segment, word_bits = params.segment_bits, params.word_bits

        more = Signal(15 + word_bits, reset_less=True)
        less = Signal(16 + segment, reset_less=True)
        product = Signal(15 + word_bits)
        word = Signal(word_bits - 1, reset_less=True)
        m.d.comb += product.eq(more - less)
        m.d.sync += [
            more.eq((self.p << (word_bits - 1)) + (1 << 14)),
            less.eq(self.p + (self.p << (segment - 1))),
            word.eq(product[15:]),
            # Rounded to the segments' boundary: below it the digits are signed.
            self.high.eq(word[segment:] + word[segment - 1]),
            self.low.eq(word[:segment].as_signed()),
        ]
        return m
