"""TAFA state and rescaled thresholds of rows (APT 3.2)."""

from amaranth import *
from amaranth.lib import stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.common.arith import round_shift_half_up, saturate_symmetric

from .component import AptComponent
from .exp2 import Exp2
from .log2 import VALUE_BITS, Log2
from .row_words import row_mass, row_word, tafa_result, tafa_row


__all__ = ["Tafa"]

#: State word of a row without a computed element, also in 8 bits; the threshold that no P'
#: reaches.
_NONE, _NONE_8, _NEVER = -(1 << 15), -(1 << 7), (1 << 15) + 1
#: Fraction bits that 8-bit state has less than logits, and that codes of thresholds have more.
_COARSE, _FINER = 5, 3


class Tafa(AptComponent):
    """Thresholds from this step's row sums and the last step's state, and the next state.

    A row of a tile is worked on for ten cycles, a whole row for six; a whole row that is waiting
    goes first. Work begins only if the register of its result is empty, so a result that nobody
    takes holds up its own kind alone.

    Rows of a tile come in order from row 0. The rows of a query tile's last key tile must be in
    before its whole rows, and these before the rows of the next query tile but one: references of
    rows are kept in two halves. The other half is turned to by a row 0 that is ``first``, and
    for whole rows by a row 0.

    At the default parameters: 3,507 gates, 435 FF, 2,048 memory bits; ECP5 114 MHz.

    Parameters
    ----------
    params : :class:`AptParams`
        ``tile_q``, ``tile_k``, ``exp2`` and ``state_bits`` matter.

    Members
    -------
    i : :py:`In(stream.Signature(tafa_row(params)))`
        Rows of tiles.
    o : :py:`Out(stream.Signature(tafa_result(params)))`
        Thresholds and state of each.
    row_i : :py:`In(stream.Signature(row_mass(params)))`
        Whole rows, at the end of a query tile.
    row_o : :py:`Out(stream.Signature(row_word(params)))`
        ``c``, and the row's first ``s`` that is not minus infinity.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "i": In(stream.Signature(tafa_row(params))),
            "o": Out(stream.Signature(tafa_result(params))),
            "row_i": In(stream.Signature(row_mass(params))),
            "row_o": Out(stream.Signature(row_word(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a row of a tile to ``o.valid``."""
        return 10

    @property
    def row_latency(self):
        """Cycles from the transfer of a whole row to ``row_o.valid``."""
        return 6

    @property
    def throughput(self):
        return f"one row of a tile every {self.latency + 1} cycles"

    def _recalled(self, word, reference):
        """Stored state as ``s``, and whether it is minus infinity."""
        if self._params.state_bits == 16:
            return word, word == _NONE
        return saturate_symmetric((word << _COARSE) + reference, 16), word == _NONE_8

    def _stored(self, m, s, from_reference):
        """``s`` as it is stored."""
        if self._params.state_bits == 16:
            return s
        rounded = Signal(signed(13))
        m.d.comb += rounded.eq(round_shift_half_up(from_reference, _COARSE))
        return Mux(s == _NONE, _NONE_8, saturate_symmetric(rounded, 8))

    def _accept(self, m, tile, row, maximum, total):
        """Choice of what to work on; returns the step, whether the row is whole, and its half.

        That a result leaves is seen in the next cycle: else what takes results and what has rows
        would be in one path.
        """
        step = Signal(range(self.latency))
        whole, half = Signal(), Signal()
        tile_half, row_half = Signal(init=1), Signal(init=1)
        idle = Signal()
        m.d.comb += [
            idle.eq(step == 0),
            self.row_i.ready.eq(idle & ~self.row_o.valid),
            self.i.ready.eq(idle & ~self.o.valid & ~(self.row_i.valid & self.row_i.ready)),
        ]
        with m.If(~idle):
            m.d.sync += step.eq(step + 1)
        with m.Elif(self.row_i.valid & self.row_i.ready):
            next_half = row_half ^ (self.row_i.p.row == 0)
            m.d.sync += [step.eq(1), whole.eq(1), half.eq(next_half), row_half.eq(next_half),
                         row.eq(self.row_i.p.row), maximum.eq(self.row_i.p.maximum),
                         total.eq(self.row_i.p.total)]
        with m.Elif(self.i.valid & self.i.ready):
            next_half = tile_half ^ (self.i.p.first & (self.i.p.row == 0))
            m.d.sync += [step.eq(1), whole.eq(0), half.eq(next_half), tile_half.eq(next_half),
                         row.eq(self.i.p.row), maximum.eq(self.i.p.maximum),
                         total.eq(self.i.p.total), tile.eq(self.i.p)]
        return step, whole, half

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.exp2 = exp2 = Exp2(params)
        m.submodules.log2 = log2 = Log2(params)
        m.submodules.references = references = Memory(
            shape=signed(16), depth=2 << params.row_bits, init=[])
        write, read = references.write_port(), references.read_port()

        tile = Signal(tafa_row(params), reset_less=True)
        row = Signal(params.row_bits, reset_less=True)
        maximum = Signal(signed(16), reset_less=True)
        total = Signal(VALUE_BITS, reset_less=True)
        step, whole, half = self._accept(m, tile, row, maximum, total)
        m.d.comb += [
            exp2.advance.eq(1), log2.advance.eq(1), log2.value.eq(total),
            read.addr.eq(Cat(row, half)), read.en.eq(step == 1),
            write.addr.eq(Cat(row, half)), write.en.eq((step == 7) & ~whole),
        ]

        empty = Signal(reset_less=True)
        old_s = Signal(signed(16), reset_less=True)
        unknown = Signal(reset_less=True)
        rho = Signal(signed(17), reset_less=True)   # -log2 of it
        prune = Signal(signed(20), reset_less=True)
        quant = Signal(signed(20), reset_less=True)
        reference = Signal(signed(16), reset_less=True)
        mass = Signal(signed(17), reset_less=True)
        s = Signal(signed(16), reset_less=True)
        never = Signal(2, reset_less=True)
        from_reference = Signal(signed(17), reset_less=True)

        log2_total = Signal(signed(14))
        theta = Signal(17)
        word = Signal(signed(16))
        m.d.comb += [
            log2_total.eq(log2.log2 - (15 << 8)),
            write.data.eq(reference),
            theta.eq(exp2.value | (exp2.value == 0)),
            word.eq(Mux(empty, _NONE, saturate_symmetric(mass, 16))),
        ]
        recalled, none = self._recalled(tile.s, tile.reference)
        stored = self._stored(m, s, from_reference)
        exponent, u = Signal(signed(20)), Signal(16, reset_less=True)
        m.d.comb += [exponent.eq(Mux(step == 5, prune, quant)), exp2.u.eq(u)]
        m.d.sync += u.eq(exponent[:16] | exponent[16:19].any().replicate(16))

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.row_o.ready):
            m.d.sync += self.row_o.valid.eq(0)

        # Registers hold in the other steps; log2 is valid in step 4, exp2 in 8 and 9.
        with m.Switch(step):
            with m.Case(1):
                m.d.sync += [empty.eq(total == 0), old_s.eq(recalled), unknown.eq(none)]
            with m.Case(2):
                m.d.sync += [rho.eq(tile.c - old_s),
                             unknown.eq(unknown | empty | (tile.c == _NONE))]
            with m.Case(3):
                for register, code in ((prune, tile.code_prune), (quant, tile.code_quant)):
                    m.d.sync += register.eq((code >> _FINER) + code[_FINER - 1] - rho)
                m.d.sync += reference.eq(Mux(tile.first & ~whole, _NONE, read.data))
            with m.Case(4):
                m.d.sync += [prune.eq(prune - log2_total), quant.eq(quant - log2_total),
                             mass.eq(maximum + log2_total)]
            with m.Case(5):
                m.d.sync += [s.eq(word), never.eq(Cat(unknown | prune[-1], unknown | quant[-1]))]
                with m.If(whole):
                    m.d.sync += [self.row_o.valid.eq(1), step.eq(0), self.row_o.p.row.eq(row),
                                 self.row_o.p.c.eq(word), self.row_o.p.reference.eq(reference)]
            with m.Case(6):
                with m.If(reference == _NONE):
                    m.d.sync += reference.eq(s)
            with m.Case(7):
                m.d.sync += from_reference.eq(s - reference)
            with m.Case(8):
                m.d.sync += self.o.p.thresholds.prune.eq(
                    Mux(~tile.has_state, 1, Mux(never[0], _NEVER, theta)))
            with m.Case(9):
                m.d.sync += self.o.p.thresholds.quant.eq(
                    Mux(~tile.has_state, 1, Mux(never[1], _NEVER, theta)))
                m.d.sync += [self.o.p.row.eq(row), self.o.valid.eq(1), step.eq(0),
                             self.o.p.s.eq(stored)]
        return m
