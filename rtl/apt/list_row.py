"""One row of the list builder: its comparisons, its entries and its header."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from rtl.common.stream import travel_along

from .component import AptComponent
from .mask_generator import threshold_pair
from .probability_split import ProbabilitySplit


__all__ = ["ListRow"]


class ListRow(AptComponent):
    """Entries of one row, a key a cycle, and how many there are.

    High-precision entries fill the row's region from position 0 up, low-precision ones from the
    last position down. With ``dense`` every element inside is listed in high precision; the masks
    go by the thresholds nevertheless. One key a cycle; nothing stops.

    Parameters
    ----------
    params : :class:`AptParams`
        ``tile_k`` and ``segment_bits`` matter.

    Members
    -------
    thresholds : :py:`In(threshold_pair())`
        theta'_p and theta'_q, U1.15, at least 1.
    dense : :py:`In(1)`
    first : :py:`In(1)`
        The row begins: counts start at 0. A row without keys has it without ``inside``.
    p : :py:`In(16)`
        P' of a key, U1.15.
    inside : :py:`In(1)`
        There is a key, and its element is inside the tile.
    hp, v : :py:`Out(1)`
        The element in the planes of the masks, two cycles later.
    valid, position, high, low : :py:`Out`
        The entry, ``stages`` cycles later.
    n_valid, n_hp : :py:`Out(params.key_count_bits)`
        Entries up to and with that one.
    """

    def __init__(self, params):
        self._split = ProbabilitySplit(params)
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "thresholds": In(threshold_pair()),
            "dense": In(1), "first": In(1), "p": In(16), "inside": In(1),
            "hp": Out(1), "v": Out(1), "valid": Out(1), "position": Out(params.key_bits),
            "high": Out(params.segment_bits - 1), "low": Out(signed(params.segment_bits)),
            "n_valid": Out(params.key_count_bits), "n_hp": Out(params.key_count_bits),
        }

    @property
    def stages(self):
        """Cycles from ``p`` to the entry: comparisons, planes, entry."""
        return self._split.stages

    latency = stages

    @property
    def throughput(self):
        return "one key a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.split = split = self._split
        m.d.comb += [split.p.eq(self.p), self.high.eq(split.high), self.low.eq(split.low)]

        # Comparisons. A threshold of 2**16 and more is beyond any P'.
        prune, quant = self.thresholds.prune, self.thresholds.quant
        prun_bit, quant_bit, inside = Signal(), Signal(), Signal()
        m.d.sync += [
            prun_bit.eq(~prune[16] & (self.p >= prune[:16])),
            quant_bit.eq(~quant[16] & (self.p >= quant[:16])),
            inside.eq(self.inside),
        ]
        # Planes of the masks and of the list.
        listed, listed_hp = Signal(), Signal()
        m.d.sync += [
            self.hp.eq(inside & prun_bit & quant_bit),
            self.v.eq(inside & prun_bit),
            listed.eq(inside & (self.dense | prun_bit)),
            listed_hp.eq(inside & (self.dense | (prun_bit & quant_bit))),
        ]
        # Entries.
        first, = travel_along(m, Const(1), self.stages - 1, self.first)
        down = Signal(self._params.key_bits, reset_less=True)
        up, filled, top = (Signal.like(signal, name=name) for signal, name in
                           ((self.n_hp, "up"), (self.n_valid, "filled"), (down, "top")))
        m.d.comb += [
            up.eq(Mux(first, 0, self.n_hp)),
            filled.eq(Mux(first, 0, self.n_valid)),
            top.eq(Mux(first, self._params.tile_k - 1, down)),
        ]
        m.d.sync += [
            self.valid.eq(listed),
            self.position.eq(Mux(listed_hp, up, top)),
            self.n_hp.eq(up + listed_hp),
            self.n_valid.eq(filled + listed),
            down.eq(top - (listed & ~listed_hp)),
        ]
        return m
