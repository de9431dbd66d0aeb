"""Element lists of the serial dataflow."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from ..component import AptComponent
from .isa import BANK_BITS


__all__ = ["ListUnit"]

_ONE_BITS = 15
_P_BITS = 17


class ListUnit(AptComponent):
    """Decides which elements of a row are in PV, and makes their list entries.

    High precision goes into memory from the middle down, low precision from it up; so the words
    from ``high_end`` to ``low_end`` are the whole list, and its first part is high precision. A
    key takes two cycles, ``look`` and, if it is kept, ``put``.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    set_thresholds : :py:`In(1)`
    prune, quant : :py:`In(17)`
        Thresholds, U1.15.
    set_lists : :py:`In(1)`
        Both lists are empty, and begin at ``middle``.
    middle : :py:`In(14)`
    begin : :py:`In(1)`
        Counts begin anew, with a key whose V is at ``v``.
    v : :py:`In(14)`
    dense : :py:`In(1)`
        Every element is in PV, in high precision.
    word : :py:`In(16)`
        P' of the next key, with ``look``.
    look : :py:`In(1)`
    keep : :py:`Out(1)`
        With ``look``: the element gets an entry.
    put : :py:`In(1)`
        In the cycle after ``look``: ``entry`` is written at ``address``.
    next : :py:`In(1)`
        The last cycle of a key.
    address : :py:`Out(14)`
    entry : :py:`Out(26)`
    low_end, high_end : :py:`Out(14)`
    counts : :py:`Out(32)`
        Elements at or above the threshold ``prune`` since ``begin``, and in the upper half those
        of them at or above ``quant``; in the cycle after the key's ``look``.
    """

    def _ports(self, params):
        return {
            "set_thresholds": In(1), "prune": In(_P_BITS), "quant": In(_P_BITS),
            "set_lists": In(1), "middle": In(BANK_BITS), "begin": In(1), "v": In(BANK_BITS),
            "dense": In(1), "word": In(16), "look": In(1), "keep": Out(1), "put": In(1),
            "next": In(1), "address": Out(BANK_BITS),
            "entry": Out(2 * params.segment_bits + BANK_BITS),
            "low_end": Out(BANK_BITS), "high_end": Out(BANK_BITS), "counts": Out(32),
        }

    @property
    def latency(self):
        """Cycles from P' to its entry."""
        return 1

    @property
    def throughput(self):
        return "a key in two cycles"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        bits = params.segment_bits

        prune, quant = (Signal(_P_BITS, name=name, reset_less=True) for name in ("theta_prune",
                                                                               "theta_quant"))
        with m.If(self.set_thresholds):
            m.d.sync += [prune.eq(self.prune), quant.eq(self.quant)]
        valid, high = Signal(), Signal()
        m.d.comb += [
            valid.eq(self.word >= prune), high.eq(valid & (self.word >= quant)),
            self.keep.eq(valid | self.dense),
        ]

        # P' as a word of two segments.
        product = Signal(16 + params.word_bits, reset_less=True)
        to_high = Signal(reset_less=True)
        word, v = Signal(params.word_bits), Signal(BANK_BITS, reset_less=True)
        m.d.sync += product.eq(self.word * Const(params.qmax, params.word_bits))
        m.d.comb += [
            word.eq((product + (1 << _ONE_BITS >> 1)) >> _ONE_BITS),
            self.entry.eq(Cat((word[bits:] + word[bits - 1])[:bits], word[:bits], v)),
        ]

        below = Signal(BANK_BITS)
        m.d.comb += [below.eq(self.high_end - 1),
                     self.address.eq(Mux(to_high, below, self.low_end))]
        valid_count, high_count = Signal(4), Signal(4)
        m.d.comb += self.counts.eq(Cat(valid_count, C(0, 12), high_count))
        with m.If(self.look):
            m.d.sync += [
                to_high.eq(high | self.dense),
                valid_count.eq(valid_count + valid), high_count.eq(high_count + high),
            ]
        with m.If(self.begin):
            m.d.sync += [valid_count.eq(0), high_count.eq(0), v.eq(self.v)]
        with m.Elif(self.next):
            m.d.sync += v.eq(v + 2 * params.column_passes)
        with m.If(self.set_lists):
            m.d.sync += [self.low_end.eq(self.middle), self.high_end.eq(self.middle)]
        with m.Elif(self.put & to_high):
            m.d.sync += self.high_end.eq(below)
        with m.Elif(self.put):
            m.d.sync += self.low_end.eq(self.low_end + 1)
        return m
