"""Carry-save reduction of many bits of different weights to one sum."""

from amaranth import *


__all__ = ["Compressor", "dadda_depth", "reduced_heights"]


def _dadda_heights(height):
    # 2, 3, 4, 6, 9, 13, ...: what one level of adders can bring to the height before.
    heights = [2]
    while heights[-1] < height:
        heights.append(heights[-1] * 3 // 2)
    return heights


def dadda_depth(height):
    """Levels of full adders from ``height`` bits of one weight to two."""
    return len(_dadda_heights(height)) - 1


def reduced_heights(heights):
    """Bits of each weight after one :meth:`Compressor.reduce`."""
    carries = [0, *(height // 3 for height in heights[:-1])]
    return [height - 2 * (height // 3) + carry
            for height, carry in zip(heights, carries, strict=True)]


class Compressor:
    """Bits of weights ``2**0 .. 2**(width-1)`` in columns, summed modulo ``2**width``.

    A full adder makes two bits out of three, whatever their number is: as many are spent as there
    are bits to lose, and one carry-propagate adder is left for the end. The gates are written as
    exclusive or and majority, which is what the passes that look for full adders recognise.

    Parameters
    ----------
    m : :class:`Module`
        Where the adders go.
    width : :class:`int`
        Number of columns; carries out of the last are lost.
    """

    def __init__(self, m, width):
        self._m = m
        self._columns = [[] for _ in range(width)]
        self._cuts = 0
        self._adders = 0

    @property
    def heights(self):
        """Bits in each column."""
        return [len(column) for column in self._columns]

    def add(self, weight, bit):
        """Add one bit of weight ``2**weight``."""
        self._columns[weight].append(bit)

    def _full_adder(self, a, b, c):
        half = Signal(name=f"half_{self._adders}")
        total = Signal(name=f"sum_{self._adders}")
        carry = Signal(name=f"carry_{self._adders}")
        self._adders += 1
        self._m.d.comb += [
            half.eq(a ^ b),
            total.eq(half ^ c),
            carry.eq((a & b) | (half & c)),
        ]
        return total, carry

    def _half_adder(self, a, b):
        total = Signal(name=f"sum_{self._adders}")
        carry = Signal(name=f"carry_{self._adders}")
        self._adders += 1
        self._m.d.comb += [total.eq(a ^ b), carry.eq(a & b)]
        return total, carry

    def reduce(self):
        """One level of as many full adders as there are triples: the fewest bits for a cut."""
        columns, carries = [], []
        for column in self._columns:
            outputs = [self._full_adder(*column[k:k + 3]) for k in range(0, len(column) - 2, 3)]
            rest = column[len(column) - len(column) % 3:]
            columns.append([*carries, *(total for total, _ in outputs), *rest])
            carries = [carry for _, carry in outputs]
        self._columns = columns

    def cut(self, enable):
        """Register every bit; the registers follow when ``enable`` is high."""
        for weight, column in enumerate(self._columns):
            for k, bit in enumerate(column):
                register = Signal(name=f"cut{self._cuts}_{weight}_{k}", reset_less=True)
                with self._m.If(enable):
                    self._m.d.sync += register.eq(bit)
                column[k] = register
        self._cuts += 1

    def _limit(self, height):
        # Dadda's rule: only the adders that this level needs, so that the level count is least.
        columns, carries = [], []
        for column in self._columns:
            bits, outputs, carries = list(column), carries, []
            while (excess := len(bits) + len(outputs) - height) > 0:
                adder, inputs = ((self._half_adder, 2) if excess == 1 else (self._full_adder, 3))
                total, carry = adder(*bits[:inputs])
                bits = bits[inputs:]
                outputs.append(total)
                carries.append(carry)
            columns.append(bits + outputs)
        self._columns = columns

    def total(self):
        """The sum modulo ``2**width``: the levels that remain, then one adder."""
        for height in reversed(_dadda_heights(max(self.heights))[:-1]):
            self._limit(height)
        # The adder begins at the lowest column that has two bits.
        start = next((k for k, height in enumerate(self.heights) if height > 1),
                     len(self._columns))
        low, high = self._columns[:start], self._columns[start:]
        rows = [Cat(column[k] if k < len(column) else C(0, 1) for column in high) for k in (0, 1)]
        return Cat(*(column[0] if column else C(0, 1) for column in low),
                   (rows[0] + rows[1])[:len(high)])
