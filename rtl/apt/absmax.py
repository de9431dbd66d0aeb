"""Largest magnitude of a tile."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from golden.common.checks import ceil_div

from .component import AptComponent


__all__ = ["AbsMax", "absmax_latency", "element_word"]


def element_word(params):
    """One word of a tile of 16-bit VPU elements; ``last`` marks the tile's final word."""
    return data.StructLayout({
        "x": data.ArrayLayout(signed(SCALE_BITS), params.vpu_lanes),
        "last": 1,
    })


def _stages(lanes):
    """Sizes of the register stages of the maximum tree: one level of comparators, which also
    fold, then two each."""
    sizes = [ceil_div(lanes, 2)]
    while sizes[-1] > 1:
        sizes.append(ceil_div(sizes[-1], 4))
    return sizes


def absmax_latency(params):
    """:attr:`AbsMax.latency` of these parameters, without building one."""
    return len(_stages(params.vpu_lanes)) + 2


class AbsMax(AptComponent):
    """Scale word of a tile: ``A = max |x|``, -32768 counting as -32767 (numerics 4.6).

    ``vpu_lanes`` elements a cycle; ``A`` comes out :attr:`latency` cycles after the tile's last
    word. While ``o`` is stalled nothing moves, but words of the next tile are taken until its
    result is due.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes`` matters.

    Members
    -------
    i : :py:`In(stream.Signature(element_word(params)))`
        Words of a tile. Elements that pad a word must be 0.
    o : :py:`Out(stream.Signature(SCALE_BITS))`
        ``A``, one a tile.
    """

    def _ports(self, params):
        return {
            "i": In(stream.Signature(element_word(params))),
            "o": Out(stream.Signature(SCALE_BITS)),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a tile's last word to ``o.valid``."""
        return absmax_latency(self._params)

    @property
    def throughput(self):
        return f"{self._params.vpu_lanes} elements a cycle"

    def elaborate(self, platform):
        m = Module()

        # A key orders elements by magnitude without negating them: the ones' complement magnitude
        # |x| or |x| - 1, and below it the sign, which says what to add.
        keys = []
        for lane, x in enumerate(self.i.p.x):
            key = Signal(SCALE_BITS, name=f"key_{lane}")
            m.d.comb += key.eq(Cat(x[-1], x[:-1] ^ x[-1].replicate(SCALE_BITS - 1)))
            keys.append(key)

        def maximum(group, name):
            while len(group) > 1:
                a, b, *rest = group
                larger = Signal(SCALE_BITS, name=f"{name}_{len(group)}")
                m.d.comb += larger.eq(Mux(a > b, a, b))
                group = [*rest, larger]
            return group[0]

        # Maximum of a word.
        done = Signal()     # the tile's maximum is in `best`
        advance = Signal()
        m.d.comb += [
            advance.eq(~done | ~self.o.valid | self.o.ready),
            self.i.ready.eq(advance),
        ]
        valid, last = self.i.valid, self.i.p.last
        for stage, size in enumerate(_stages(self._params.vpu_lanes)):
            fan_in = 2 if stage == 0 else 4
            registers = []
            for index in range(size):
                register = Signal(SCALE_BITS, name=f"max_{stage}_{index}", reset_less=True)
                with m.If(advance):
                    m.d.sync += register.eq(maximum(keys[fan_in * index:fan_in * (index + 1)],
                                                    f"larger_{stage}_{index}"))
                registers.append(register)
            stage_valid = Signal(name=f"valid_{stage}")
            stage_last = Signal(name=f"last_{stage}", reset_less=True)
            with m.If(advance):
                m.d.sync += [stage_valid.eq(valid), stage_last.eq(last)]
            keys, valid, last = registers, stage_valid, stage_last

        # Maximum of the tile so far.
        best = Signal(SCALE_BITS)
        floor = Signal(SCALE_BITS)
        m.d.comb += floor.eq(Mux(done, 0, best))
        with m.If(advance):
            m.d.sync += done.eq(valid & last)
            m.d.sync += best.eq(Mux(valid & (keys[0] > floor), keys[0], floor))

        # Ones' complement magnitude to magnitude; that of -32768 stays 32767.
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(done),
                self.o.payload.eq(best[1:] + (best[0] & ~best[1:].all())),
            ]

        return m
