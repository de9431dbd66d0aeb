"""Width converter of streams."""

import functools
import math
import operator

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


__all__ = ["Gearbox"]


class Gearbox(wiring.Component):
    """Cuts a string of bits that comes in words of one width into words of another.

    The string is packed from bit 0 of the first word on; ``last`` marks its final word, and the
    next string begins afresh. What is then left below a whole output word is dropped, or, with
    ``pad``, padded with zeros to one. ``o.last`` marks the word that the last input completes or
    pads; without ``pad`` an input may come last that completes none, and then there is no mark.

    An input word is taken or an output word given every cycle, whichever is narrower, from one
    string to the next as well. While ``o`` is stalled, words are taken until an output word is
    complete. ``i.ready`` depends on ``o.ready``.

    Parameters
    ----------
    width_in, width_out : :class:`int`
        Bits of a word; their greatest common divisor is the unit that words are moved by.
    pad : :class:`bool`
        Pad the last word of a string.
    short_in : :class:`int` or ``None``
        If given, input words have a bit ``short``, and with it only so many bits.

    Members
    -------
    i : :py:`In(stream.Signature({bits, last}))`, or ``{bits, last, short}``
    o : :py:`Out(stream.Signature({bits, last}))`
    """

    def __init__(self, width_in, width_out, *, pad=False, short_in=None):
        widths = {"Width_in": width_in, "Width_out": width_out}
        if short_in is not None:
            widths["Short_in"] = short_in
        for name, width in widths.items():
            if not isinstance(width, int) or isinstance(width, bool) or width < 1:
                raise TypeError(f"{name} must be an integer of at least 1, not {width!r}")
        if short_in is not None and short_in > width_in:
            raise ValueError(f"Short_in must be at most {width_in}, not {short_in}")
        self._widths, self._pad = (width_in, width_out, short_in), pad
        self._unit = math.gcd(*widths.values())
        word_in = {"bits": width_in, "last": 1}
        if short_in is not None:
            word_in["short"] = 1
        super().__init__({
            "i": In(stream.Signature(data.StructLayout(word_in))),
            "o": Out(stream.Signature(data.StructLayout({"bits": width_out, "last": 1}))),
        })

    @property
    def latency(self):
        """Cycles from the transfer of a word that completes an output word to ``o.valid``."""
        return 1

    @property
    def throughput(self):
        width_in, width_out, _ = self._widths
        return f"{min(width_in, width_out)} bits a cycle"

    def _put_behind(self, m, kept, value, place):
        """``value`` at ``place`` units, in front of it ``kept``, above it zeros; without a place
        all of ``kept``. One AND gate a bit and place that can reach it."""
        unit, width = self._unit, len(kept)
        keep = Signal(width // unit)
        rest = Cat(Mux(bit, kept[index * unit:(index + 1) * unit], Const(0, unit))
                   for index, bit in enumerate(keep))
        m.d.comb += keep.eq(Cat(place[index + 1:].any() | ~place.any()
                                for index in range(len(keep))))
        # Whole words at a time: bit by bit would take the simulator longer to read than to run.
        shifted = [Mux(wanted, Cat(Const(0, at * unit), value)[:width], 0)
                   for at, wanted in enumerate(place)]
        return functools.reduce(operator.or_, shifted, rest)

    def elaborate(self, platform):
        m = Module()
        width_in, width_out, short_in = self._widths
        unit = self._unit
        units_in, units_out = width_in // unit, width_out // unit
        most = units_out - 1 + units_in

        # Bits that wait, the next output word first. A word is taken when fewer than an output
        # word will be left, and goes to `place`, behind what is left. There is nothing of value
        # above `level`, but zeros once a string has ended: then there is no place until its
        # final word goes, which takes what is behind it along.
        waiting = Signal(most * unit, reset_less=True)
        level = Signal(range(most + 1))
        place = Signal(units_out, init=1)
        ended = Signal()

        value = Signal(width_in)
        amount = Signal(range(units_in + 1), init=units_in)
        m.d.comb += [value.eq(self.i.p.bits), amount.eq(units_in)]
        if short_in is not None:
            with m.If(self.i.p.short):
                m.d.comb += [value.eq(self.i.p.bits[:short_in]), amount.eq(short_in // unit)]

        emit, accept = Signal(), Signal()
        rest = Signal(range(most + 1))
        m.d.comb += [
            emit.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(Mux(self.o.valid, self.o.ready & (
                self.o.p.last | (~ended & (level < 2 * units_out))), ~ended)),
            accept.eq(self.i.valid & self.i.ready),
            rest.eq(Mux(emit, Mux(self.o.p.last, 0, level - units_out), level)),
        ]
        next_level = Signal(range(most + 1))
        next_ended, next_valid, next_last = Signal(), Signal(), Signal()
        m.d.comb += [
            next_level.eq(rest + Mux(accept, amount, 0)),
            next_ended.eq(Mux(accept, self.i.p.last, ended & ~(emit & self.o.p.last))),
        ]
        if self._pad:
            m.d.comb += [
                next_valid.eq(next_ended | (next_level >= units_out)),
                next_last.eq(next_ended & (next_level <= units_out)),
            ]
            m.d.sync += [level.eq(next_level), ended.eq(next_ended)]
        else:
            m.d.comb += [
                next_valid.eq(next_level >= units_out),
                next_last.eq(next_ended & (next_level < 2 * units_out)),
            ]
            dropped = Signal()
            m.d.comb += dropped.eq(next_ended & ~next_valid)
            m.d.sync += [
                level.eq(Mux(dropped, 0, next_level)),
                ended.eq(next_ended & ~dropped),
            ]
        # In a cycle with an output word, the place is the one after that word has gone.
        next_place = Signal(range(most + 1))
        m.d.comb += next_place.eq(Mux(next_last | (next_ended & ~next_valid), 0,
                                      Mux(next_valid, next_level - units_out, next_level)))
        m.d.sync += [
            place.eq(Cat((next_place == index) & (next_last | ~next_ended | ~next_valid)
                         for index in range(units_out))),
            self.o.valid.eq(next_valid),
            self.o.p.last.eq(next_last & next_valid),
        ]
        kept = Signal.like(waiting)
        m.d.comb += kept.eq(Mux(self.o.valid, waiting >> width_out, waiting))
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += waiting.eq(self._put_behind(m, kept, value, place))
        m.d.comb += self.o.p.bits.eq(waiting)

        return m
