"""Element masks from tile probabilities and rescaled thresholds (APT 4.3)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .masks import mask_word


__all__ = ["MaskGenerator", "threshold_pair"]


def threshold_pair():
    """theta'_p and theta'_q of a row, U1.15 in 17 bits; 2**15 + 1 is "never"."""
    return data.StructLayout({"prune": 17, "quant": 17})


class MaskGenerator(AptComponent):
    """HP and LP masks of a tile, row by row.

    An element with probability P' has ``prun_bit = P' >= theta'_p`` and ``quant_bit = P' >=
    theta'_q``; ``HP = prun_bit & quant_bit`` and ``LP = prun_bit & ~quant_bit``. Its row's
    thresholds are at least 1, so elements with P' = 0 are in neither mask, and so is what pads the
    last word of a row, whatever it holds. P' above 1.0 is outside the contract and is compared
    like any other number.

    Each row takes one pair from ``thresholds`` and then ``params.vpu_words`` words from ``i``. The
    pair of the next row is taken while the last word of a row is, or at any time between rows, so
    that a pair which is waiting costs no cycle. One word a cycle; while ``o`` is stalled nothing
    moves. A word comes out one cycle after it went in.

    At the default parameters: sky130 9,120 um2; ECP5 40 LUT4, 256 CCU2C, 71 FF, 204 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes`` and ``tile_k`` matter.

    Members
    -------
    thresholds : :py:`In(stream.Signature(threshold_pair()))`
        Thresholds, one pair a row.
    i : :py:`In(stream.Signature(data.ArrayLayout(16, params.vpu_lanes)))`
        P' in U1.15 (0 to 2**15), a row in ``params.vpu_words`` words.
    o : :py:`Out(stream.Signature(mask_word(params.vpu_lanes)))`
        Masks, word for word.
    """

    def _ports(self, params):
        return {
            "thresholds": In(stream.Signature(threshold_pair())),
            "i": In(stream.Signature(data.ArrayLayout(16, params.vpu_lanes))),
            "o": Out(stream.Signature(mask_word(params.vpu_lanes))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a word on ``i`` to ``o.valid``, thresholds at hand."""
        return 1

    @property
    def throughput(self):
        return f"{self._params.vpu_lanes} elements a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        lanes, words = params.vpu_lanes, params.vpu_words

        # The thresholds of the row at hand.
        held = Signal()
        prune = Signal(17, reset_less=True)
        quant = Signal(17, reset_less=True)

        accept = Signal()
        last = Signal()
        advance = Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(advance & held),
            accept.eq(self.i.valid & self.i.ready),
            self.thresholds.ready.eq(~held | (accept & last)),
        ]
        with m.If(self.thresholds.ready):
            m.d.sync += [
                held.eq(self.thresholds.valid),
                prune.eq(self.thresholds.p.prune),
                quant.eq(self.thresholds.p.quant),
            ]

        # Where in its row the word is.
        if words > 1:
            word = Signal(range(words))
            m.d.comb += last.eq(word == words - 1)
            with m.If(accept):
                m.d.sync += word.eq(Mux(last, 0, word + 1))
        else:
            m.d.comb += last.eq(1)

        # Two comparisons an element. A threshold of 2**16 and more is beyond any P': taking its
        # top bit out of the comparators leaves them 16 bits wide.
        prun_bits, quant_bits, inside = Signal(lanes), Signal(lanes), Signal(lanes)
        for lane in range(lanes):
            m.d.comb += [
                prun_bits[lane].eq(~prune[16] & (self.i.p[lane] >= prune[:16])),
                quant_bits[lane].eq(~quant[16] & (self.i.p[lane] >= quant[:16])),
            ]
        real = params.tile_k - (words - 1) * lanes  # elements of the last word
        m.d.comb += inside.eq(Mux(last, (1 << real) - 1, (1 << lanes) - 1))

        masks = Signal(mask_word(lanes), reset_less=True)
        m.d.comb += self.o.p.eq(masks)
        with m.If(advance):
            m.d.sync += [
                self.o.valid.eq(accept),
                masks.hp.eq(prun_bits & quant_bits & inside),
                masks.lp.eq(prun_bits & ~quant_bits & inside),
            ]

        return m
