"""Memory of the serial dataflow: two banks with one port each."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from .isa import BANK_BITS


__all__ = ["Bank"]


class Bank(wiring.Component):
    """Words of 32 bits with one port; a read gives its word in the next cycle.

    Contents are not defined at the beginning, as those of large memories of an FPGA are not. What
    was read stays until the next read.

    Parameters
    ----------
    words : :class:`int`
        How many at least, up to 2**14; higher address bits than these need are ignored.

    Members
    -------
    address : :py:`In(14)`
    enable, write : :py:`In(1)`
    data : :py:`In(32)`
    word : :py:`Out(32)`
    """

    def __init__(self, words):
        self._address_bits = max(1, ceil_log2(words))
        super().__init__({
            "address": In(BANK_BITS), "enable": In(1), "write": In(1), "data": In(32),
            "word": Out(32),
        })

    @property
    def latency(self):
        """Cycles from an address to its word."""
        return 1

    @property
    def throughput(self):
        return "a read or a write a cycle"

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=32, depth=1 << self._address_bits, init=[], attrs={"uninitialized": 1})
        read, write = words.read_port(), words.write_port()
        m.d.comb += [
            read.addr.eq(self.address), read.en.eq(self.enable & ~self.write),
            write.addr.eq(self.address), write.en.eq(self.enable & self.write),
            write.data.eq(self.data),
            self.word.eq(read.data),
        ]
        return m
