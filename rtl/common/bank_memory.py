"""Banked memory of words cut into an MSB and an LSB segment."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from golden.apt.params import AptParams


__all__ = ["BankMemory"]


class BankMemory(wiring.Component):
    """One memory a lane for keys of a tile, each word in two segments of its own (APT 4.5).

    Bank ``b`` holds ``slots`` keys of ``head_dim`` words, ``multipliers`` words wide: the chunk
    at address ``slot * chunks + chunk``. The MSB and the LSB segments lie in separate memories,
    so a low-precision read touches the MSB memory alone (its LSB read enable stays low).

    A read gives every bank its own slot and returns one segment of one chunk of each enabled
    bank; a bank that is not enabled returns 0. One read and one write a cycle; :attr:`latency`
    cycles from the transfer of a read to ``o.valid``. While ``o`` is stalled no read is accepted
    and nothing is lost. A read of an address in the cycle in which it is written returns the old
    word. Contents are undefined until written.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape: ``lanes`` banks, ``slots``, ``head_dim``, ``multipliers`` and ``segment_bits``.

    Members
    -------
    write : :py:`In(stream)` of ``{bank, slot, chunk, lsb, words}``
        One chunk of one segment of one key; always accepted.
    read : :py:`In(stream)` of ``{chunk, lsb, banks: lanes x {enable, slot}}``
        A read of all banks.
    o : :py:`Out(stream)` of ``lanes x multipliers x segment_bits``
        The segments, bank by bank.
    """

    def __init__(self, params):
        if not isinstance(params, AptParams):
            raise TypeError(f"Params must be an AptParams, not {params!r}")
        self._params = params
        words = data.ArrayLayout(params.segment_bits, params.multipliers)
        super().__init__({
            "write": In(stream.Signature(data.StructLayout({
                "bank": params.bank_bits, "slot": params.slot_bits, "chunk": params.chunk_bits,
                "lsb": 1, "words": words,
            }))),
            "read": In(stream.Signature(data.StructLayout({
                "chunk": params.chunk_bits, "lsb": 1,
                "banks": data.ArrayLayout(data.StructLayout({
                    "enable": 1, "slot": params.slot_bits,
                }), params.lanes),
            }))),
            "o": Out(stream.Signature(data.ArrayLayout(words, params.lanes))),
        })

    @property
    def params(self):
        return self._params

    @property
    def latency(self):
        """Cycles from the transfer of a read to its result: memory, then output register."""
        return 2

    @property
    def throughput(self):
        return "one chunk of every bank a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params
        depth = p.slots * p.chunks
        width = p.multipliers * p.segment_bits

        # Both stages move together, whenever the output register is free or being emptied.
        advance = Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.read.ready.eq(advance),
            self.write.ready.eq(1),
        ]

        # Stage 1: the memories' own read registers; what was read travels beside them.
        read_valid = Signal()
        read_lsb = Signal(reset_less=True)
        read_enable = Signal(p.lanes, reset_less=True)
        with m.If(advance):
            m.d.sync += [
                read_valid.eq(self.read.valid),
                read_lsb.eq(self.read.p.lsb),
                read_enable.eq(Cat(bank.enable for bank in self.read.p.banks)),
            ]

        # Stage 2: one segment of each enabled bank into the output register.
        with m.If(advance):
            m.d.sync += self.o.valid.eq(read_valid)

        def address(slot, chunk):
            return slot * p.chunks + chunk if p.chunks > 1 else slot

        for number, bank in enumerate(self.read.p.banks):
            results = []
            for segment in ("msb", "lsb"):
                memory = Memory(shape=width, depth=depth, init=[])
                m.submodules[f"bank_{number}_{segment}"] = memory
                port, read = memory.write_port(), memory.read_port()
                wanted, written = (
                    stream_payload.lsb if segment == "lsb" else ~stream_payload.lsb
                    for stream_payload in (self.read.p, self.write.p))
                m.d.comb += [
                    port.addr.eq(address(self.write.p.slot, self.write.p.chunk)),
                    port.data.eq(self.write.p.words.as_value()),
                    port.en.eq(self.write.valid & written & (self.write.p.bank == number)),
                    read.addr.eq(address(bank.slot, self.read.p.chunk)),
                    read.en.eq(advance & self.read.valid & wanted & bank.enable),
                ]
                results.append(read.data)
            chosen = Mux(read_lsb, results[1], results[0])
            with m.If(advance & read_valid):
                m.d.sync += self.o.p[number].eq(Mux(read_enable[number], chosen, 0))

        return m
