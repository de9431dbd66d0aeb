"""Four segment products a cycle, and their sums."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..component import AptComponent
from .isa import BANK_BITS


__all__ = ["MacUnit"]

_LANES = 4


class MacUnit(AptComponent):
    """Adds up products of the four fields of words of bank 0 with a field of words of bank 1.

    Words of bank 1 come in order. In QK word ``k`` meets word ``base + k`` of bank 0: channel by
    channel four keys and one of four rows. In PV it is an entry of :class:`.list_unit.ListUnit`,
    which says where in bank 0 four columns of its key are, from ``base`` on.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    start : :py:`In(1)`
        Take ``base``, ``pv`` and ``field``; with ``clear`` or ``shift`` do this before the first
        product is added. The last word before must have come, at the latest now.
    base : :py:`In(14)`
    pv : :py:`In(1)`
    field : :py:`In(2)`
        The field of bank 1's word.
    clear, shift : :py:`In(1)`
        Accumulators become 0, or shift left by a segment, after all products before.
    shift_now : :py:`In(1)`
        They shift left at once; nothing may be under way.
    valid : :py:`In(1)`
        ``word1`` is the next word of bank 1.
    word1, word0 : :py:`In(32)`
        Words of the banks; ``word0`` that of ``address`` in the cycle before.
    address : :py:`Out(14)`
        To read in bank 0, if ``valid``.
    busy : :py:`Out(1)`
        Words are under way whose product is not in a register yet.
    sums : :py:`Out(...)`
    """

    def _ports(self, params):
        return {
            "start": In(1), "base": In(BANK_BITS), "pv": In(1), "field": In(2),
            "clear": In(1), "shift": In(1), "shift_now": In(1),
            "valid": In(1), "word1": In(32), "word0": In(32),
            "address": Out(BANK_BITS), "busy": Out(1),
            "sums": Out(data.ArrayLayout(self._sum_shape(params), _LANES)),
        }

    @staticmethod
    def _sum_shape(params):
        return signed(max(params.logit_acc_bits, params.sum_bits))

    @property
    def latency(self):
        """Cycles from ``valid`` to sums that have the product."""
        return 3

    @property
    def throughput(self):
        return "a word of bank 1 a cycle"

    def elaborate(self, platform):
        m = Module()
        bits = self._params.segment_bits

        base, pv, field = (Signal(BANK_BITS), Signal(), Signal(2))
        with m.If(self.start):
            m.d.sync += [base.eq(self.base), pv.eq(self.pv), field.eq(self.field)]
        with m.Elif(self.valid & ~pv):
            m.d.sync += base.eq(base + 1)
        m.d.comb += self.address.eq(
            base + (self.word1[2 * bits:2 * bits + BANK_BITS] & pv.replicate(BANK_BITS)))

        factor = Signal(signed(bits), reset_less=True)
        has_word, has_product = Signal(), Signal()
        m.d.sync += [
            factor.eq(self.word1[:_LANES * bits].word_select(field, bits)),
            has_word.eq(self.valid),
            has_product.eq(has_word),
        ]
        m.d.comb += self.busy.eq(self.valid | has_word)
        clear, shift = self.clear & self.start, self.shift & self.start
        for k in range(self.latency):
            before = clear, shift
            clear, shift = Signal(name=f"clear_{k}"), Signal(name=f"shift_{k}")
            m.d.sync += Cat(clear, shift).eq(Cat(before))
        for lane, total in enumerate(self.sums):
            product = Signal(signed(2 * bits), name=f"product_{lane}", reset_less=True)
            m.d.sync += product.eq(self.word0.word_select(lane, bits).as_signed() * factor)
            with m.If(clear):
                m.d.sync += total.eq(0)
            with m.Elif(shift | self.shift_now):
                m.d.sync += total.eq(total << bits)
            with m.Elif(has_product):
                m.d.sync += total.eq(total + product)
        return m
