"""The instruction that the serial dataflow's processor executes, as its parts see it."""

from amaranth import *

from .isa import Op


__all__ = ["LAST_STEP", "Instruction"]

#: Where the count of an instruction's cycles stops.
LAST_STEP = 15


class Instruction:
    """The instruction that is executed: its fields, its operands, and what it waits for."""

    def __init__(self, m, fetch, registers):
        self.b, self.a, self.d = (fetch.now[8 * k:8 * k + 8] for k in range(3))
        self.h, self.code = fetch.now[24:26], fetch.now[26:]
        self.x, self.y = registers.a, registers.b
        self.step = Signal(range(LAST_STEP + 1))  # its cycle
        self.again = Signal()      # on with cycle 1
        self.wait = Signal()       # it does not end yet
        self.next_word = Signal()  # of those that it goes through
        self.last_word = Signal()
        self.words_left = Signal()
        self.bank = Signal()       # of its address
        self.ended = Signal()      # a job has
        self._is = {op: Signal(name=f"is_{op.name.lower()}") for op in Op}
        m.d.comb += [one.eq(fetch.valid & (self.code == op)) for op, one in self._is.items()]

    def __getitem__(self, op):
        return self._is[op]

    def any(self, ops):
        return Cat(self._is[op] for op in ops).any()
