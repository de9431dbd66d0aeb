"""Model of the serial dataflow's processor: instructions, registers, memory, and cycles."""

from rtl.apt.serial.isa import MacFlags, Op, ShiftMode


__all__ = ["CYCLES", "MAC_CYCLES", "Machine", "mul_shifted"]

#: Cycles of operations that do not take one; a branch that is taken takes one more.
CYCLES = {Op.LD: 2, Op.TAB: 2, Op.MUL: 4, Op.MULU: 4, Op.MULS: 4, Op.MULA: 4, Op.MULAS: 4}
#: Cycles of :attr:`Op.MAC` beyond its count.
MAC_CYCLES = 4

_SHIFTS = {ShiftMode.Q15: 15, ShiftMode.NONE: 0}


def _signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def mul_shifted(op, mode, a, b, shift):
    """What the multiplications give; ``a`` is signed but for :attr:`Op.MULU`."""
    a = a & 0xffff_ffff if op is Op.MULU else _signed(a)
    product = a * (b & 0xffff)
    shift = _SHIFTS.get(mode, shift)
    if mode != ShiftMode.TRUNC and shift:
        product += 1 << (shift - 1)
    product >>= shift
    if op in (Op.MULS, Op.MULAS):
        product = max(-(1 << 15), min((1 << 15) - 1, product))
    return _signed(product)


class Machine:
    """A processor with its memory.

    ``read()`` gives the next byte read, ``request(address, beats, write)`` and ``write(byte)``
    take what goes out, ``words`` are those of jobs. Registers and memory are signed.
    """

    def __init__(self, image, tables, *, words=(), read=None, request=None, write=None,
                 segment_bits=6, acc_bits=32):
        self.registers = [_signed(value) for value in image.registers]
        self.program = [(Op(word >> 26), word >> 24 & 3, word >> 16 & 255, word >> 8 & 255,
                         word & 255) for word in image.words]
        self.tables, self.words = tables, list(words)
        self.memory = [0x5a5a5a5a] * (1 << 15)
        self.read, self.request, self.write = read, request, write
        self.segment_bits, self.acc_bits = segment_bits, acc_bits
        self.acc, self.pc, self.cycles = [0] * 4, 0, 0
        self.shift = self.count = self.row = self.stages = 0
        self.done, self.blocks, self.elements = [], [0, 0], [0, 0]
        self.pv_passes = 0
        self.profile = {}

    def _field(self, word, k):
        return _signed(word >> k * self.segment_bits, self.segment_bits)

    def _mac(self, flags, a, b):
        pv = flags & MacFlags.PV
        if flags & MacFlags.FIRST:
            self.acc = [0] * 4
        if flags & MacFlags.SHIFT:
            self.shift_left()
        for k in range(self.count):
            word = self.memory[1 << 14 | (b + k) & 0x3fff]
            at = (a + (word >> 12 & 0x3fff if pv else k)) & 0x3fff
            factor = self._field(word, int(bool(flags & MacFlags.LSB)) if pv else self.row)
            for j in range(4):
                self.acc[j] += factor * self._field(self.memory[at], j)
        self.acc = [_signed(value, self.acc_bits) for value in self.acc]
        self.pv_passes += self.count if pv else 0
        self.cycles += self.count + MAC_CYCLES - 1

    def shift_left(self):
        self.acc = [_signed(value << self.segment_bits, self.acc_bits) for value in self.acc]

    def _in(self, count):
        self.cycles += count
        return sum(self.read() << 8 * k for k in range(count))

    def step(self):
        """One instruction; returns its operation."""
        op, h, d, a, b = self.program[self.pc]
        x, y = self.registers[a], self.registers[b]
        self.pc += 1
        self.cycles += CYCLES.get(op, 1)
        if op is Op.LI:
            self.registers[d] = _signed(a << 8 | b, 16)
        elif Op.ADD <= op <= Op.MIN:
            y = _signed(b, 8) if h else y
            self.registers[d] = _signed(
                x + y if op is Op.ADD else x - y if op is Op.SUB else x & y if op is Op.AND else
                x | y if op is Op.OR else x ^ y if op is Op.XOR else
                max(x, y) if op is Op.MAX else min(x, y))
        elif op >= Op.MUL and op <= Op.MULAS:
            x = self.acc[a & 3] if op in (Op.MULA, Op.MULAS) else x
            self.registers[d] = mul_shifted(op, ShiftMode(h), x, y, self.shift)
        elif op >= Op.BEQ:
            self._branch(op, a, x, y, h << 8 | d)
        else:
            self._other(op, h, d, a, b, x, y)
        return op

    def _branch(self, op, a, x, y, target):
        if op is Op.LOOP:
            self.registers[a] = _signed(x - y)
        elif op is Op.CALL:
            self.registers[a] = self.pc
        elif op is Op.JR:
            target = x & 0x3ff
        if (op in (Op.JMP, Op.CALL, Op.JR) or op is Op.BEQ and x == y or op is Op.BNE and x != y
                or op is Op.BLT and x < y or op is Op.BGE and x >= y
                or op is Op.LOOP and x != y):
            self.pc = target
            self.cycles += 1

    def _other(self, op, h, d, a, b, x, y):
        if op is Op.LD:
            self.registers[d] = self.memory[(x + _signed(b, 8)) & 0x7fff]
        elif op is Op.ST:
            self.memory[(x + _signed(d, 8)) & 0x7fff] = y
        elif op is Op.STP:
            self.memory[x & 0x7fff] = y
            self.registers[a] = x + 1
        elif op is Op.TAB:
            self.registers[d] = self.tables[h << 8 | x & 255]
        elif op is Op.PACK:
            self.registers[d] = _signed((y & 0x3fff) << 12 | (x & 63) << 6
                                        | ((x >> 6) + (x >> 5 & 1)) & 63)
        elif op is Op.SH:
            self.shift = b & 63
        elif op is Op.SHR:
            self.shift = x & 63
        elif op is Op.SHX:
            self.shift = 63 if x >> 12 else x >> 8 & 15
        elif op is Op.ASHL:
            self.shift_left()
        elif op is Op.SETN:
            self.count = x & 0x3fff
        elif op is Op.SETR:
            self.row = x & 3
        elif op is Op.MAC:
            self._mac(d, x, y)
        elif op is Op.INJ:
            self.registers[d] = _signed(self.words.pop(0))
        elif op is Op.DONE:
            self.done.append(x & 3)
        elif op is Op.REQ:
            self.request(x & 0xffff_ffff, y & 0xffff, h & 1)
        elif op is Op.IN:
            self.registers[d] = _signed(self._in(h + 1))
        elif op is Op.INS:
            for k in range(y & 0x3fff):
                self.memory[(x + k) & 0x7fff] = self._in(3)
        elif op is Op.OUT:
            self.cycles += h
            for k in range(h + 1):
                self.write(x >> 8 * k & 255)
        elif op is Op.PHASE:
            self.stages = b
        elif op is Op.EVB:
            self.blocks[h & 1] += 1
        elif op is Op.EVE:
            self.elements[0] += x
            self.elements[1] += y

    def run_jobs(self, count):
        """Until so many jobs have ended."""
        while len(self.done) < count:
            before, stages = self.cycles, self.stages
            self.step()
            self.profile[stages] = self.profile.get(stages, 0) + self.cycles - before
