"""Instructions of the serial dataflow's processor: 32 bits, three register fields.

====== ======== =====================================================
bits   field    use
====== ======== =====================================================
0..7   ``b``    second operand: a register, or a signed immediate
8..15  ``a``    first operand: a register
16..23 ``d``    destination; flags of ``mac``; offset of ``st``
24..25 ``h``    variant; with ``d`` the target of a branch
26..31 ``op``   operation
====== ======== =====================================================

Registers have 32 bits, and there are 256 of them; constants are registers that nothing writes.
Memory has 32-bit words in two banks of 2**14; bit 14 of an address is the bank. ``EXP``, ``LIST``
and ``OUP`` work in bank 1 alone.
"""

import enum


__all__ = ["BANK_BITS", "MacFlags", "Op", "PROGRAM_BITS", "REGISTER_BITS", "ShiftMode", "Table",
           "encode"]

#: Bits of a register's number, of a program address, and of an address within a memory bank.
REGISTER_BITS, PROGRAM_BITS, BANK_BITS = 8, 10, 14


class Op(enum.IntEnum):
    """Operations. A and B are the operands, D the destination."""

    NOP = 0
    LI = 1      #: D = signed immediate of 16 bits, ``a`` above ``b``
    ADD = 2     #: with h = 1 B is the immediate, in these seven
    SUB = 3
    AND = 4
    OR = 5
    XOR = 6
    MAX = 7     #: signed
    MIN = 8
    LD = 10     #: D = memory[A + b]
    ST = 11     #: memory[A + d] = B
    STP = 12    #: memory[A] = B, register a = A + 1
    TAB = 13    #: D = table h at the low eight bits of A
    SH = 14     #: shift register = immediate
    SHR = 15    #: shift register = A
    SHX = 16    #: shift register = A >> 8; 63 from 16 on
    ASHL = 17   #: accumulators shift left by a segment
    SETN = 18   #: count register = A
    MAC = 19    #: count times: accumulators += fields of bank 0 times a field of bank 1
    SETR = 20   #: row register = A
    INJ = 21    #: D = next word of a job
    DONE = 22   #: a job has ended with status A
    REQ = 23    #: A = address, B = beats, h = 1: write
    IN = 24     #: D = the next h + 1 bytes read
    INS = 25    #: B words of three bytes read, to memory from A on
    OUT = 26    #: the lowest h + 1 bytes of A are written
    PHASE = 27  #: ``stages`` = immediate
    EVB = 28    #: count a block: h = 0 in low precision, h = 1 in high
    EVE = 29    #: count A elements, B of them in high precision
    EXP = 30    #: P' = 2**(A[k] - maximum) in place of B logits from A on; D = their sum
    LIST = 31   #: the next B of P' to the lists, keys from A on; D = counts; h = 1: dense
    SETT = 40   #: maximum = A
    RDT = 41    #: D = maximum
    THR = 42    #: thresholds A and B
    SETL = 43   #: lists begin at A, and P' at B
    RDL = 45    #: D = end of the list of low precision, or with h = 1 of high precision
    OUP = 44    #: four words from A on += accumulators, rounded by the shift register, times B
    DEQ = 46    #: d + 1 words from A on = accumulators times B, and the maximum of them
    # Products: D = A * B shifted right. Bit 0: A is unsigned, bit 1: saturate to 16 bits, bit 2: A
    # is the accumulator with the number a. B is 16 bits unsigned.
    MUL = 32
    MULU = 33
    MULS = 34
    MULA = 36
    # Branches, to the address in h and d.
    BEQ = 48
    BNE = 49
    BLT = 50    #: signed
    BGE = 51
    LOOP = 52   #: register a = A - B; branch where that is not 0
    JMP = 53
    CALL = 54   #: register a = the next address
    JR = 55     #: to A


class ShiftMode(enum.IntEnum):
    """How far a product is shifted: by the shift register, with half a unit added or cut off, by
    15 with half a unit added, or not at all."""

    ROUND = 0
    Q15 = 1
    TRUNC = 2
    NONE = 3


class Table(enum.IntEnum):
    """Tables of :attr:`Op.TAB`: ``2**-x``, ``log2(1 + x)``, and chords (16 bases, 16 slopes)."""

    EXP = 0
    LOG = 1
    CHORD = 2


class MacFlags(enum.IntFlag):
    """Flags of :attr:`Op.MAC`.

    Without ``PV`` bank 0 is read from A on and bank 1 from B on, and the row register says which
    of the four fields of the latter is the factor. With it bank 1 holds list entries, that say
    which words of bank 0 follow A, and ``LSB`` takes the lower segment of P'. ``LAST`` waits for
    the sums; without it the next operation but ``SETN`` must be another one.
    """

    FIRST = 1   #: clear the accumulators before
    SHIFT = 2   #: shift them left by a segment before
    PV = 4
    LSB = 8
    LAST = 16


def encode(op, d=0, a=0, b=0, h=0):
    """The word of an instruction; fields must be in range."""
    for name, value, bits in (("d", d, 8), ("a", a, 8), ("b", b, 8), ("h", h, 2)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"Field {name} of {op.name} must be in 0..{(1 << bits) - 1}, "
                             f"not {value}")
    return op << 26 | h << 24 | d << 16 | a << 8 | b
