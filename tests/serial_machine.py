"""Model of the serial dataflow's processor: instructions, registers, memory, and cycles."""

from rtl.apt.serial.isa import MacFlags, Op, ShiftMode


__all__ = ["CYCLES", "MAC_CYCLES", "Machine", "mul_shifted"]

#: Cycles of operations that do not take one; a branch that is taken takes one more.
CYCLES = {Op.LD: 2, Op.TAB: 2, Op.MUL: 4, Op.MULU: 4, Op.MULS: 4, Op.MULA: 4}
#: Cycles of :attr:`Op.MAC` beyond its count.
MAC_CYCLES = 4

_PRODUCTS = (Op.MUL, Op.MULU, Op.MULS, Op.MULA)
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
    if op is Op.MULS:
        product = max(-(1 << 15), min((1 << 15) - 1, product))
    return _signed(product)


class Machine:
    """A processor with its memory.

    ``read()`` gives the next byte read, ``request(address, beats, write)`` and ``write(byte)``
    take what goes out, ``words`` are those of jobs. Registers and memory are signed.
    """

    def __init__(self, image, tables, *, words=(), read=None, request=None, write=None,
                 segment_bits=6, acc_bits=32, qmax=2015, v_key=32):
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
        self.qmax, self.v_key = qmax, v_key
        self.top = self.prune = self.quant = self.list_low = self.list_high = self.listed = 0
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
        self.cycles += self.count + (MAC_CYCLES - 1 if flags & MacFlags.LAST else 0)

    def _exp(self, at, count):
        total = 0
        for k in range(count):
            u = self.top - self.memory[at + k]
            places = u >> 8
            value = self.tables[u & 255]
            value = 0 if places > 15 else (value + (1 << places >> 1)) >> places
            self.memory[at + k] = value
            total += value
        self.cycles += 3 * count
        return total

    def _list(self, v, count, dense):
        counts = 0
        for _ in range(count):
            p = self.memory[self.listed]
            self.listed += 1
            valid, high = p >= self.prune, p >= self.prune and p >= self.quant
            counts += valid + (high << 16)
            word = (p * self.qmax + (1 << 14)) >> 15
            entry = v << 12 | (word & 63) << 6 | ((word + 32) >> 6) & 63
            if dense or high:
                self.list_high -= 1
                self.memory[self.list_high] = entry
            elif valid:
                self.memory[self.list_low] = entry
                self.list_low += 1
            self.cycles += 3 if dense or valid else 2
            v += self.v_key
        return counts

    def _update(self, at, factor):
        for k in range(4):
            t = mul_shifted(Op.MULA, ShiftMode.ROUND, self.acc[k], 1, self.shift)
            t = mul_shifted(Op.MUL, ShiftMode.Q15, t, factor, 0)
            self.memory[at + k] = _signed(self.memory[at + k] + t)
        self.cycles += 12

    def _logits(self, at, mantissa, count):
        for k in range(count):
            z = mul_shifted(Op.MULS, ShiftMode.ROUND, self.acc[k], mantissa, self.shift)
            self.memory[at + k] = z
            self.top = max(self.top, z)
        self.cycles += 2 + count

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
        elif op in _PRODUCTS:
            x = self.acc[a & 3] if op is Op.MULA else x
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
        if (op in (Op.JMP, Op.CALL, Op.JR) or (op is Op.BEQ and x == y) or (op is Op.BNE and x != y)
                or (op is Op.BLT and x < y) or (op is Op.BGE and x >= y)
                or (op is Op.LOOP and x != y)):
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
        elif op is Op.EXP:
            self.registers[d] = self._exp(x, y)
        elif op is Op.LIST:
            self.registers[d] = self._list(x, y, h & 1)
        elif op is Op.SETT:
            self.top = _signed(x, 16)
        elif op is Op.RDT:
            self.registers[d] = self.top
        elif op is Op.THR:
            self.prune, self.quant = x, y
        elif op is Op.SETL:
            self.list_low = self.list_high = x
            self.listed = y
        elif op is Op.RDL:
            self.registers[d] = self.list_high if h & 1 else self.list_low
        elif op is Op.OUP:
            self._update(x, y)
        elif op is Op.DEQ:
            self._logits(x, y, d + 1)
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
