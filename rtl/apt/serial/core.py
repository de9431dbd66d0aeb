"""Processor of the serial dataflow."""

from amaranth import *
from amaranth.lib import memory, stream
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2

from ..burst_splitter import beat_range
from ..component import AptComponent
from .banks import Bank
from .isa import BANK_BITS, PROGRAM_BITS, REGISTER_BITS, Op
from .mac import MacUnit
from .multiplier import Multiplier
from .program import program, tables


__all__ = ["Core"]

_ALU = (Op.ADD, Op.SUB, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN)
_COMPARE = (Op.SUB, Op.MAX, Op.MIN, Op.BEQ, Op.BNE, Op.BLT, Op.BGE, Op.LOOP)
#: Operations that write register ``d``, and those that write register ``a``.
_WRITE_D = (Op.LI, *_ALU, Op.PACK, Op.LD, Op.TAB, Op.INJ, Op.IN, Op.MUL, Op.MULU, Op.MULS,
            Op.MULA, Op.MULAS)
_WRITE_A = (Op.STP, Op.LOOP, Op.CALL)


class Core(AptComponent):
    """Runs :func:`.program.program`: an instruction a cycle, in three stages.

    *Fetch* reads the program, *read* the registers, *execute* does the rest; its result goes to
    the next instruction directly. A branch that is taken costs a cycle more. Loads and tables take
    two cycles, products four, and :attr:`.isa.Op.MAC` four more than its count.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine, for which the program is made.

    Members
    -------
    job : :py:`In(stream.Signature(32))`
        Words of jobs.
    done : :py:`Out(stream.Signature(2))`
        How each ended.
    beats : :py:`Out(stream.Signature(beat_range()))`
        Bytes to be read or written, with ``beats_write``.
    quiet : :py:`In(1)`
        No burst is left to be asked for.
    read : :py:`In(stream.Signature(8))`
    write : :py:`Out(stream.Signature(8))`
    stages : :py:`Out(8)`
        As the program says.
    lp_block, hp_block, pv_pass : :py:`Out(1)`
        Pulses to be counted.
    elements, hp_elements : :py:`Out(12)`
        Numbers to be counted.
    """

    def _ports(self, params):
        return {
            "job": In(stream.Signature(32)), "done": Out(stream.Signature(2)),
            "beats": Out(stream.Signature(beat_range())), "beats_write": Out(1),
            "quiet": In(1),
            "read": In(stream.Signature(8)), "write": Out(stream.Signature(8)),
            "stages": Out(8),
            "lp_block": Out(1), "hp_block": Out(1), "pv_pass": Out(1),
            "elements": Out(12), "hp_elements": Out(12),
        }

    @property
    def latency(self):
        """Cycles from an instruction's fetch to its result."""
        return 3

    @property
    def throughput(self):
        return "an instruction a cycle"

    def elaborate(self, platform):
        m = Module()
        image = program(self._params)

        go = Signal()              # the instruction in execute ends
        at = Signal(PROGRAM_BITS, init=(1 << PROGRAM_BITS) - 1)  # of the instruction in read
        fetch, branch, target = Signal(PROGRAM_BITS), Signal(), Signal(PROGRAM_BITS)
        read_valid, valid, now = Signal(), Signal(), Signal(32)
        m.submodules.code = code = memory.Memory(
            shape=32, depth=1 << ceil_log2(len(image.words)), init=image.words)
        instruction = code.read_port()
        m.d.comb += [
            fetch.eq(Mux(branch, target, at + 1)),
            instruction.addr.eq(fetch), instruction.en.eq(go),
        ]
        with m.If(go):
            m.d.sync += [at.eq(fetch), read_valid.eq(1), valid.eq(read_valid & ~branch),
                         now.eq(instruction.data)]

        number_b, number_a, number_d = (now[8 * k:8 * k + 8] for k in range(3))
        variant = now[24:26]
        operation = {}
        for op in Op:
            operation[op] = Signal(name=f"is_{op.name.lower()}")
            m.d.comb += operation[op].eq(valid & (now[26:] == op))

        def is_any(ops):
            return Cat(operation[op] for op in ops).any()

        step = Signal(2)           # cycle of the instruction; it stays at 3
        m.d.sync += step.eq(Mux(go, 0, step + (step != 3)))

        # Registers: two copies, read one instruction ahead.
        write_number, written, result = Signal(REGISTER_BITS), Signal(), Signal(32)
        write_a = Signal()
        m.d.comb += [
            write_a.eq(is_any(_WRITE_A)),
            written.eq(go & (is_any(_WRITE_D) | write_a)),
            write_number.eq(Mux(write_a, number_a, number_d)),
        ]
        operands = []
        last_result = Signal(32, reset_less=True)
        with m.If(go):
            m.d.sync += last_result.eq(result)
        for k, name in enumerate(("b", "a")):
            m.submodules[f"registers_{name}"] = registers = memory.Memory(
                shape=32, depth=1 << REGISTER_BITS, init=image.registers)
            write, read = registers.write_port(), registers.read_port()
            number = instruction.data[8 * k:8 * k + 8]
            m.d.comb += [
                write.addr.eq(write_number), write.data.eq(result), write.en.eq(written),
                read.addr.eq(number), read.en.eq(go),
            ]
            forward, operand = Signal(name=f"forward_{name}"), Signal(32, name=f"operand_{name}")
            with m.If(go):
                m.d.sync += forward.eq(written & (number == write_number))
            m.d.comb += operand.eq(Mux(forward, last_result, read.data))
            operands.append(operand)
        y, x = operands

        # Adder: sums, comparisons, addresses.
        immediate, second = Signal(signed(8)), Signal(32)
        compare, total = Signal(), Signal(33)
        m.d.comb += [
            immediate.eq(Mux(operation[Op.ST], number_d, number_b)),
            compare.eq(is_any(_COMPARE)),
            second.eq(y),
        ]
        with m.If(operation[Op.LD] | operation[Op.ST] | (is_any(_ALU) & variant[0])):
            m.d.comb += second.eq(immediate)
        with m.Elif(operation[Op.STP]):
            m.d.comb += second.eq(1)
        inverted = Signal(33)
        m.d.comb += [
            inverted.eq(second.as_signed() ^ compare.replicate(33)),
            total.eq(x.as_signed() + inverted + compare),
        ]
        less, equal = Signal(), Signal()
        m.d.comb += [less.eq(total[-1]), equal.eq(total[:32] == 0)]

        # Branches.
        m.d.comb += [
            target.eq(Mux(operation[Op.JR], x, now[16:26])),
            branch.eq(operation[Op.JMP] | operation[Op.CALL] | operation[Op.JR]
                      | (operation[Op.BEQ] & equal)
                      | ((operation[Op.BNE] | operation[Op.LOOP]) & ~equal)
                      | (operation[Op.BLT] & less) | (operation[Op.BGE] & ~less)),
        ]

        # Special registers.
        shift, count, row = Signal(6), Signal(BANK_BITS), Signal(2)
        with m.If(operation[Op.SH]):
            m.d.sync += shift.eq(number_b)
        with m.If(operation[Op.SHR]):
            m.d.sync += shift.eq(x)
        with m.If(operation[Op.SHX]):
            m.d.sync += shift.eq(Mux(x[12:].any(), 63, x[8:12]))
        with m.If(operation[Op.SETN]):
            m.d.sync += count.eq(x)
        with m.If(operation[Op.SETR]):
            m.d.sync += row.eq(x)
        with m.If(operation[Op.PHASE]):
            m.d.sync += self.stages.eq(number_b)

        m.submodules.mac = mac = MacUnit(self._params)
        products = is_any((Op.MUL, Op.MULU, Op.MULS, Op.MULA, Op.MULAS))
        m.submodules.multiplier = multiplier = Multiplier()
        m.d.comb += [
            multiplier.a.eq(Mux(operation[Op.MULA] | operation[Op.MULAS],
                                mac.sums[number_a[:2]], x.as_signed())),
            multiplier.b.eq(y),
            multiplier.is_unsigned.eq(now[26]), multiplier.saturate.eq(now[27]),
            multiplier.mode.eq(variant), multiplier.shift.eq(shift),
        ]

        m.submodules.tables = table = memory.Memory(
            shape=16, depth=768, init=tables(self._params))
        entry = table.read_port()
        m.d.comb += [entry.addr.eq(Cat(x[:8], variant)), entry.en.eq(operation[Op.TAB])]

        # Memory, for loads and stores, blocks of bytes, and products.
        index, left = Signal(BANK_BITS + 1), Signal(BANK_BITS)
        loading = Signal()         # a word of three bytes is complete
        place = Signal(BANK_BITS + 1)
        writing, reading, streaming = Signal(), Signal(), Signal()
        banks = []
        for number in range(2):
            m.submodules[f"bank_{number}"] = bank = Bank()
            banks.append(bank)
        word = Signal(24)
        m.d.comb += [
            place.eq(Mux(operation[Op.INS], index, Mux(operation[Op.STP], x, total))),
            writing.eq(operation[Op.ST] | operation[Op.STP] | loading),
            reading.eq(operation[Op.LD] & (step == 0)),
            streaming.eq(operation[Op.MAC] & (step != 0) & (left != 0)),
        ]
        for number, bank in enumerate(banks):
            m.d.comb += [
                bank.enable.eq((writing | reading) & (place[-1] == number)),
                bank.write.eq(writing),
                bank.address.eq(place),
                bank.data.eq(Mux(operation[Op.INS], word, y)),
            ]
        has_word = Signal()
        m.d.sync += has_word.eq(streaming)
        with m.If(operation[Op.MAC]):
            m.d.comb += [
                banks[1].enable.eq(streaming), banks[1].address.eq(index),
                banks[0].enable.eq(has_word), banks[0].address.eq(mac.address),
            ]
        start = operation[Op.MAC] & (step == 0)
        m.d.comb += [
            mac.start.eq(start), mac.base.eq(x), mac.pv.eq(number_d[2]),
            mac.field.eq(Mux(number_d[2], number_d[3], row)),
            mac.clear.eq(start & number_d[0]),
            mac.shift.eq(operation[Op.ASHL] | (start & number_d[1])),
            mac.valid.eq(has_word),
            mac.word0.eq(banks[0].word), mac.word1.eq(banks[1].word),
            self.pv_pass.eq(streaming & number_d[2]),
        ]
        with m.If(start):
            m.d.sync += [index.eq(y), left.eq(count)]
        with m.If(operation[Op.INS] & (step == 0)):
            m.d.sync += [index.eq(x), left.eq(y)]
        with m.If(streaming | loading):
            m.d.sync += [index.eq(index + 1), left.eq(left - 1)]

        # Bytes read: words of one to three.
        byte, before = Signal(2), Signal(16, reset_less=True)
        last_byte, taken = Signal(), Signal()
        wanted = Signal(2)
        m.d.comb += [
            wanted.eq(Mux(operation[Op.INS], 2, variant)),
            self.read.ready.eq(operation[Op.IN] | (operation[Op.INS] & (step != 0))),
            taken.eq(self.read.valid & self.read.ready),
            last_byte.eq(taken & (byte == wanted)),
            loading.eq(last_byte & operation[Op.INS]),
            word[:8].eq(Mux(wanted == 0, self.read.p, before[:8])),
            word[8:16].eq(Mux(wanted == 1, self.read.p, before[8:] & wanted[1].replicate(8))),
            word[16:].eq(self.read.p & wanted[1].replicate(8)),
        ]
        with m.If(taken):
            m.d.sync += byte.eq(Mux(last_byte, 0, byte + 1))
            with m.If(byte == 0):
                m.d.sync += before[:8].eq(self.read.p)
            with m.Else():
                m.d.sync += before[8:].eq(self.read.p)

        # Bytes written: one or two.
        bytes_left, out = Signal(2), Signal(16, reset_less=True)
        m.d.comb += [self.write.valid.eq(bytes_left != 0), self.write.p.eq(out[:8])]
        with m.If(self.write.valid & self.write.ready):
            m.d.sync += [bytes_left.eq(bytes_left - 1), out.eq(out[8:])]
        with m.If(operation[Op.OUT] & go):
            m.d.sync += [bytes_left.eq(variant + 1), out.eq(x)]

        ended = Signal()
        m.d.comb += [
            ended.eq(operation[Op.DONE] & ~self.done.valid & self.quiet & (bytes_left == 0)),
            self.beats.valid.eq(operation[Op.REQ]),
            self.beats.p.address.eq(x), self.beats.p.beats.eq(y),
            self.beats_write.eq(variant[0]),
            self.job.ready.eq(operation[Op.INJ]),
            self.lp_block.eq(operation[Op.EVB] & ~variant[0]),
            self.hp_block.eq(operation[Op.EVB] & variant[0]),
            self.elements.eq(x[:12] & operation[Op.EVE].replicate(12)),
            self.hp_elements.eq(y[:12] & operation[Op.EVE].replicate(12)),
        ]
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(ended):
            m.d.sync += [self.done.valid.eq(1), self.done.p.eq(x)]

        # When an instruction ends.
        waits = Signal()
        m.d.comb += [
            waits.eq(Cat(
                (operation[Op.LD] | operation[Op.TAB]) & (step == 0),
                products & (step != 3),
                operation[Op.MAC] & ((step == 0) | (left != 0) | mac.busy),
                operation[Op.INJ] & ~self.job.valid,
                operation[Op.DONE] & ~ended,
                operation[Op.REQ] & ~self.beats.ready,
                operation[Op.IN] & ~last_byte,
                operation[Op.INS] & ~(loading & (left == 1)),
                operation[Op.OUT] & (bytes_left != 0),
            ).any()),
            go.eq(~waits),
        ]

        # Results.
        m.d.comb += result.eq(total)
        with m.If(operation[Op.LI]):
            m.d.comb += result.eq(now[:16].as_signed())
        with m.If(operation[Op.AND]):
            m.d.comb += result.eq(x & second)
        with m.If(operation[Op.OR]):
            m.d.comb += result.eq(x | second)
        with m.If(operation[Op.XOR]):
            m.d.comb += result.eq(x ^ second)
        with m.If(operation[Op.MAX] | operation[Op.MIN]):
            m.d.comb += result.eq(Mux(less ^ operation[Op.MAX], x, second))
        with m.If(operation[Op.PACK]):
            m.d.comb += result.eq(Cat((x[6:12] + x[5])[:6], x[:6], y[:BANK_BITS]))
        with m.If(operation[Op.LD]):
            m.d.comb += result.eq(Mux(place[-1], banks[1].word, banks[0].word))
        with m.If(operation[Op.TAB]):
            m.d.comb += result.eq(entry.data)
        with m.If(products):
            m.d.comb += result.eq(multiplier.result)
        with m.If(operation[Op.INJ]):
            m.d.comb += result.eq(self.job.p)
        with m.If(operation[Op.IN]):
            m.d.comb += result.eq(word)
        with m.If(operation[Op.CALL]):
            m.d.comb += result.eq(at)
        return m
