"""Running maximum, sum and unit of O of rows (APT 2.3)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .exp2 import Exp2, shifted
from .log2 import VALUE_BITS
from .log2_fine import Log2Fine
from .row_words import factor_word, final_word, rescale_row, row_mass


__all__ = ["Rescale"]

#: Maximum of a row before its first element.
_NO_LOGIT = -(1 << 15)
#: Fraction bits of units, more than logits have, and those of U1.15.
_FINE_BITS, _TO_FINE, _ONE_BITS = 12, 4, 15
_LARGEST_PLACES = 62


def _row_state():
    return data.StructLayout({"maximum": signed(16), "total": VALUE_BITS, "unit": signed(21),
                              "begun": 1})


class Rescale(AptComponent):
    """Merges rows of tiles into the rows of a query tile, and says how O follows.

    A row of a tile is worked on for 13 cycles, and for 30 if it is the query tile's last: its
    output factor takes a logarithm by squares. One power of two and one multiplier serve in turn.
    Nothing begins before all results have been taken, in an earlier cycle.

    At the default parameters: 9,627 gates, 649 FF, 4,480 memory bits; ECP5 84 MHz with
    multipliers in DSP blocks.

    The results of a row that is ``last`` leave in the order ``o``, ``row_o``, ``final``.

    Parameters
    ----------
    params : :class:`AptParams`
        ``tile_q``, ``tile_k`` and ``segment_bits`` matter.

    Members
    -------
    i : :py:`In(stream.Signature(rescale_row(params)))`
        Rows of tiles, in any order; all tiles of a row in theirs.
    o : :py:`Out(stream.Signature(factor_word(params)))`
        What to do to O, for each.
    final : :py:`Out(stream.Signature(final_word(params)))`
        How O becomes the output, for each that is ``last``.
    row_o : :py:`Out(stream.Signature(row_mass(params)))`
        M and L of the same.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "i": In(stream.Signature(rescale_row(params))),
            "o": Out(stream.Signature(factor_word(params))),
            "final": Out(stream.Signature(final_word(params))),
            "row_o": Out(stream.Signature(row_mass(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a row to ``o.valid``."""
        return 8

    @property
    def row_latency(self):
        """Cycles from the transfer of a last row to ``row_o.valid``."""
        return 13

    @property
    def final_latency(self):
        """Cycles from the transfer of a last row to ``final.valid``."""
        return 30

    @property
    def throughput(self):
        return (f"one row every {self.row_latency} cycles, or {self.final_latency + 1} of the last "
                f"key tile")

    def _accept(self, m, tile):
        """Takes a row when all results are gone; returns the step of its work, 0 if there is none.

        A step ends each cycle, but the one that waits for the logarithm. That a result leaves is
        seen in the next cycle: else all that take results would be in one path with what waits.
        """
        step = Signal(range(18))
        free = Signal()
        results = (self.o, self.row_o, self.final)
        m.d.comb += [
            free.eq(~Cat(one.valid for one in results).any()),
            self.i.ready.eq((step == 0) & free),
        ]
        for one in results:
            with m.If(one.ready):
                m.d.sync += one.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [step.eq(1), tile.eq(self.i.p)]
        with m.Elif(step != 0):
            m.d.sync += step.eq(step + 1)
        return step

    def _powers(self, m, step, exp2, tile, old, tile_unit, output):
        """Factor of L and whether the tile's maximum is larger, from step 7 on; drives ``o``.

        The power of two is that of ``output`` if this is valid in step 14.
        """
        difference = Signal(signed(22), reset_less=True)
        size = Signal(22, reset_less=True)
        places = Signal(2 * (len(size) - _FINE_BITS), reset_less=True)
        now = places[len(places) // 2:]
        factor, larger = Signal(15, reset_less=True), Signal(reset_less=True)
        positive, power = Signal(), Signal(15)
        m.d.comb += [
            positive.eq(~difference[-1] & difference[:-1].any()),
            exp2.advance.eq(1),
            exp2.u.eq(size[:_FINE_BITS]),
            power.eq(Mux(now[4:].any(), 0, shifted(m, exp2.value[:15], now[:4]))),
        ]
        # The difference of maxima goes one step ahead of that of units.
        m.d.sync += [
            difference.eq(Mux(step == 2, (tile.maximum - old.maximum) << _TO_FINE,
                              tile_unit - old.unit)),
            size.eq(Mux(step == 14, output, Mux(difference[-1], -difference, difference))),
            places.eq(Cat(size[_FINE_BITS:], places)),
        ]
        with m.Switch(step):
            with m.Case(3):
                m.d.sync += larger.eq(positive)
            with m.Case(4):
                m.d.sync += self.o.p.scale_o.eq(positive)
            with m.Case(6):
                m.d.sync += factor.eq(power)
            with m.Case(7):
                m.d.sync += [self.o.valid.eq(1), self.o.p.row.eq(tile.row),
                             self.o.p.contributes.eq(tile.contributes),
                             self.o.p.begin.eq(tile.contributes & ~old.begun),
                             self.o.p.factor.eq(power)]
        return factor, larger

    def _merge(self, m, step, log2, tile, old, tile_unit, factor, larger):
        """Next state of the row, from step 12 on."""
        new = Signal(_row_state(), reset_less=True)
        empty, fresh = Signal(reset_less=True), Signal(reset_less=True)
        scaled_side, other = Signal(VALUE_BITS), Signal(VALUE_BITS)
        low, high = Signal(VALUE_BITS, reset_less=True), Signal(VALUE_BITS, reset_less=True)
        scaled = Signal(VALUE_BITS, reset_less=True)
        m.d.comb += [
            scaled_side.eq(Mux(larger, old.total, tile.total)),
            other.eq(Mux(larger, tile.total, old.total)),
            log2.a.eq(Mux(step == 7, scaled_side[:16], scaled_side[16:])),
            log2.b.eq(factor),
        ]
        with m.Switch(step):
            with m.Case(7):
                m.d.sync += [empty.eq(tile.total == 0), fresh.eq(old.total == 0)]
            with m.Case(8):
                m.d.sync += low.eq(log2.product)
            with m.Case(9):
                m.d.sync += high.eq(log2.product)
            with m.Case(10):
                m.d.sync += scaled.eq((high << 16 - _ONE_BITS) + low[_ONE_BITS:]
                                      + low[_ONE_BITS - 1])
            with m.Case(11):
                m.d.sync += [
                    new.total.eq(Mux(empty, old.total, Mux(fresh, tile.total, other + scaled))),
                    # Where there is nothing the maximum is the lowest that there is.
                    new.maximum.eq(Mux(larger, tile.maximum, old.maximum)),
                    new.unit.eq(Mux(tile.contributes & (~old.begun | self.o.p.scale_o),
                                    tile_unit, old.unit)),
                    new.begun.eq(old.begun | tile.contributes),
                ]
        return new

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.exp2 = exp2 = Exp2(params, _FINE_BITS)
        m.submodules.log2 = log2 = Log2Fine(params)
        m.submodules.rows = rows = Memory(shape=_row_state(), depth=1 << params.row_bits, init=[])
        write, read = rows.write_port(), rows.read_port()

        tile = Signal(rescale_row(params), reset_less=True)
        old = Signal(_row_state(), reset_less=True)
        tile_unit = Signal(signed(21), reset_less=True)
        step = self._accept(m, tile)
        # -log2 of what makes output of O: all but the logarithm of L in u.
        u, with_log2 = Signal(signed(24), reset_less=True), Signal(signed(24))
        factor, larger = self._powers(m, step, exp2, tile, old, tile_unit, with_log2)
        new = self._merge(m, step, log2, tile, old, tile_unit, factor, larger)

        constant = params.log2_qmax_squared - (_ONE_BITS << _FINE_BITS)
        places = Signal(signed(13))
        m.d.comb += [
            with_log2.eq(u + log2.log2),
            read.addr.eq(self.i.p.row), read.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(tile.row), write.data.eq(new), write.en.eq(step == 12),
            log2.value.eq(new.total), log2.start.eq((step == 12) & tile.last),
            places.eq((u >> _FINE_BITS) + _ONE_BITS),
        ]
        with m.Switch(step):
            with m.Case(1):
                m.d.sync += [
                    old.eq(read.data),
                    tile_unit.eq((tile.maximum << _TO_FINE) + tile.unit_v),
                ]
                with m.If(tile.first):
                    m.d.sync += [old.maximum.eq(_NO_LOGIT), old.total.eq(0), old.unit.eq(0),
                                 old.begun.eq(0)]
            with m.Case(12):
                m.d.sync += u.eq((new.maximum << _TO_FINE) - new.unit)
                with m.If(tile.last):
                    m.d.sync += [self.row_o.valid.eq(1), self.row_o.p.row.eq(tile.row),
                                 self.row_o.p.maximum.eq(new.maximum),
                                 self.row_o.p.total.eq(new.total)]
                with m.Else():
                    m.d.sync += step.eq(0)
            with m.Case(13):
                m.d.sync += u.eq(u + constant - (tile.shift << _FINE_BITS))
            with m.Case(14):
                with m.If(log2.done):
                    m.d.sync += u.eq(with_log2)
                with m.Else():
                    m.d.sync += step.eq(14)
            with m.Case(17):
                m.d.sync += [
                    self.final.valid.eq(1), step.eq(0),
                    self.final.p.row.eq(tile.row),
                    self.final.p.zero.eq(~new.begun | (new.total == 0)),
                    self.final.p.mantissa.eq(exp2.value),
                    self.final.p.places.eq(Mux(places < 1, 1, Mux(places > _LARGEST_PLACES,
                                                                  _LARGEST_PLACES, places))),
                ]
        return m
