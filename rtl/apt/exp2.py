"""Powers of two below one (numerics 4.8)."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .exp2_tables import GUARD_BITS, chords, halves, table


__all__ = ["Exp2", "shifted"]

_CHORD_BITS = 15


def shifted(m, value, places):
    """``value`` shifted right by 0 to 15 places, rounding half up.

    The value has 16 bits and is at most 2**15, or 15 bits and is at most 2**15 - 2, as chords are.
    The shifter keeps one bit below the cut, and that bit is the carry into an incrementer. Without
    a shift the carry is 0, and after one no carry comes to the top bit. The incrementer is a chain
    of half adders: in gates that is smaller than ``+``.
    """
    width = len(value) + 1
    kept = Cat(Const(0, 1), value)
    for level in range(4):
        moved = Signal(width, name=f"moved_{level}")
        m.d.comb += moved.eq(Mux(places[level], kept >> (1 << level), kept))
        kept = moved
    carry, bits = kept[0], []
    for index in range(1, width - 1):
        bits.append(kept[index] ^ carry)
        carry = carry & kept[index]
    return Cat(*bits, kept[width - 1])


class Exp2(AptComponent):
    """``2**-u`` in U1.15, of ``u >= 0``.

    With eight fraction bits ``u`` is UQ8.8 and the result is shifted by its integer part, rounded
    half up; from 16.0 on it is 0. With twelve, ``u`` is a fraction alone and the result is in
    ``2**14..2**15``; who needs the shift has :func:`shifted`.

    Two register stages, which move with ``advance``: the value of the fraction, and its shift;
    with twelve fraction bits the product with the slope, and the value. By ``params.exp2`` the
    eight fraction bits go to 16 chords or to a table of 256; the twelve go to the chords always. A
    chord with eight fraction bits is no multiplication: see
    :func:`rtl.apt.exp2_tables.halves`. One result a cycle.

    Gates without flip-flops: 957 by chords, 1,296 by table; 1,807 with twelve bits.

    Parameters
    ----------
    params : :class:`AptParams`
        ``exp2`` matters.
    fraction_bits : :class:`int`
        8 or 12.

    Members
    -------
    advance : :py:`In(1)`
        Registers move.
    u : :py:`In(16)`, or :py:`In(12)`
        Exponent.
    value : :py:`Out(16)`
        Power of the exponent that went in two moves before.
    """

    def __init__(self, params, fraction_bits=8):
        if fraction_bits not in (8, 12):
            raise ValueError(f"Fraction bits must be 8 or 12, not {fraction_bits!r}")
        self._fraction_bits = fraction_bits
        super().__init__(params)

    def _ports(self, params):
        return {
            "advance": In(1),
            "u": In(16 if self._fraction_bits == 8 else 12),
            "value": Out(16),
        }

    @property
    def stages(self):
        """Moves from ``u`` to ``value``."""
        return 2

    latency = stages

    @property
    def throughput(self):
        return "one power a cycle"

    def _by_halves(self, m, fraction):
        """Value on the chords, 15 bits, of eight fraction bits."""
        centres, distances = halves()
        chord, below = fraction[4:], fraction[2]
        # Steps from the middle of the half chord: t = 3, 2, 1, 0 above it, 4, 5, 6, 7 below.
        steps = fraction[:2] ^ (~below).replicate(2)
        centre = Signal(_CHORD_BITS + GUARD_BITS)
        distance = Signal(max(distances).bit_length())
        total = Signal(len(centre))
        m.d.comb += [
            centre.eq(Array(centres)[fraction[3:]]),
            distance.eq(Array(distances)[Cat(steps, chord)]),
            total.eq(centre + (distance ^ below.replicate(len(centre)))),
        ]
        return total[GUARD_BITS:]

    def _shifting(self, m):
        whole = self.u[8:]
        if self._params.exp2 == "table":
            value = Signal(16)
            m.d.comb += value.eq(Array(table())[self.u[:8]])
        else:
            value = self._by_halves(m, self.u[:8])

        mantissa = Signal(16, reset_less=True)
        places = Signal(4, reset_less=True)
        vanishes = Signal(reset_less=True)
        with m.If(self.advance):
            m.d.sync += [mantissa.eq(value), places.eq(whole), vanishes.eq(whole[4:].any())]

        power = Signal(16, reset_less=True)
        m.d.comb += self.value.eq(power)
        # On the chords every value has 15 bits, and the top one set.
        known = mantissa if self._params.exp2 == "table" else Cat(mantissa[:14], Const(1, 1))
        with m.If(self.advance):
            m.d.sync += power.eq(shifted(m, known, places))
            with m.If(vanishes):
                m.d.sync += power.eq(0)

    def _multiplying(self, m):
        base, slope = chords()
        chord, rest = self.u[8:], self.u[:8]
        start = Signal(_CHORD_BITS, reset_less=True)
        product = Signal(_CHORD_BITS + 8, reset_less=True)
        mantissa = Signal(_CHORD_BITS, reset_less=True)
        fall = Signal(_CHORD_BITS)
        m.d.comb += [self.value.eq(mantissa), fall.eq(product[12:])]
        with m.If(self.advance):
            m.d.sync += [
                start.eq(Array(base)[chord]),
                product.eq(Array(slope)[chord] * rest),
                # start - (fall + round) = start + ~fall + (1 - round)
                mantissa.eq(start + ~fall + ~product[11]),
            ]

    def elaborate(self, platform):
        m = Module()
        if self._fraction_bits == 8:
            self._shifting(m)
        else:
            self._multiplying(m)
        return m
