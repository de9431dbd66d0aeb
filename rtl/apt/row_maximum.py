"""Running maximum of a row's logits."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .softmax_words import LOGIT_BITS, element


__all__ = ["NO_LOGIT", "RowMaximum"]

#: Maximum of a row without a computed element: the smallest logit.
NO_LOGIT = -(1 << (LOGIT_BITS - 1))


class RowMaximum(AptComponent):
    """Largest computed logit of a row, one key a cycle.

    Parameters
    ----------
    params : :class:`AptParams`
        Parameters of the engine; none matters.

    Members
    -------
    valid : :py:`In(1)`
        A key is at ``i``.
    first : :py:`In(1)`
        It is the row's first.
    i : :py:`In(element())`
    maximum : :py:`Out(signed(16))`
        Over the keys up to that of the cycle before; ``NO_LOGIT`` if none was computed.
    """

    def _ports(self, params):
        return {"valid": In(1), "first": In(1), "i": In(element()),
                "maximum": Out(signed(LOGIT_BITS))}

    @property
    def latency(self):
        return 1

    @property
    def throughput(self):
        return "one key a cycle"

    def elaborate(self, platform):
        m = Module()
        with m.If(self.valid & self.i.computed & (self.first | (self.i.z > self.maximum))):
            m.d.sync += self.maximum.eq(self.i.z)
        with m.Elif(self.valid & self.first):
            m.d.sync += self.maximum.eq(NO_LOGIT)
        return m
