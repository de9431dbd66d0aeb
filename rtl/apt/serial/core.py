"""Processor of the serial dataflow."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.serial_shape import BANK_WORDS
from rtl.common.stream import connect_streams

from ..burst_splitter import beat_range
from ..component import AptComponent
from .alu import Alu
from .banks import Bank
from .byte_ports import ByteReader, ByteWriter
from .fetch import Fetch
from .instruction import LAST_STEP, Instruction
from .isa import BANK_BITS, Op, ShiftMode
from .list_unit import ListUnit
from .mac import MacUnit
from .multiplier import Multiplier
from .power_unit import PowerUnit
from .program import program
from .registers import Registers


__all__ = ["Core"]

_ALU = (Op.ADD, Op.SUB, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN)
_COMPARE = (Op.SUB, Op.MAX, Op.MIN, Op.BEQ, Op.BNE, Op.BLT, Op.BGE, Op.LOOP)
#: Operations that write register ``d``, and those that write register ``a``.
_WRITE_D = (Op.LI, *_ALU, Op.LD, Op.TAB, Op.INJ, Op.IN, Op.MUL, Op.MULU, Op.MULS,
            Op.MULA, Op.EXP, Op.LIST, Op.RDT, Op.RDL)
_WRITE_A = (Op.STP, Op.LOOP, Op.CALL)
#: Operations of the multiplier alone, and when their result is there.
_PRODUCTS = (Op.MUL, Op.MULU, Op.MULS, Op.MULA)
_PRODUCT = 3


class Core(AptComponent):
    """Runs :func:`.program.program`: an instruction a cycle, in three stages.

    *Fetch* reads the program, *read* the registers, *execute* does the rest; its result goes to
    the next instruction directly. A branch that is taken costs a cycle more. Loads and tables take
    two cycles, products four. Of the instructions that do more, ``MAC`` takes a cycle a word and
    one more, or four more to wait for the sums; ``DEQ`` three more than its words; ``EXP`` three
    cycles a word; ``LIST`` two a key, three if it is kept; ``OUP`` thirteen; ``INS`` three a word.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine, for which the program is made.
    image : :class:`~rtl.apt.serial.assembler.Image`, optional
        Another program.

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

    def __init__(self, params, image=None):
        self._image = image
        super().__init__(params)

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
        image = program(self._params) if self._image is None else self._image
        m.submodules.fetch = fetch = Fetch(image.words)
        m.submodules.registers = registers = Registers(image.registers)
        m.submodules.alu = Alu()
        m.submodules.multiplier = Multiplier()
        m.submodules.mac = MacUnit(self._params)
        m.submodules.power = PowerUnit(self._params)
        m.submodules.lists = ListUnit(self._params)
        m.submodules.reader = ByteReader()
        m.submodules.writer = ByteWriter()
        places = self._params.memory_map
        m.submodules.bank_0 = Bank(places.bank0_end)
        m.submodules.bank_1 = Bank(places.bank1_end - BANK_WORDS)

        now = Instruction(m, fetch, registers)
        go, write_a = Signal(), Signal()  # go: the instruction ends
        m.d.comb += [
            go.eq(~now.wait),
            fetch.advance.eq(go), registers.advance.eq(go),
            registers.number_b.eq(fetch.next[:8]), registers.number_a.eq(fetch.next[8:16]),
            write_a.eq(now.any(_WRITE_A)),
            registers.write.eq(now.any(_WRITE_D) | write_a),
            registers.number.eq(Mux(write_a, now.a, now.d)),
        ]
        with m.If(go):
            m.d.sync += now.step.eq(0)
        with m.Elif(now.again):
            m.d.sync += now.step.eq(1)
        with m.Elif(now.step != LAST_STEP):
            m.d.sync += now.step.eq(now.step + 1)

        self._sums(m, now)
        self._branches(m, now)
        self._products(m, now)
        self._memory(m, now)
        self._outside(m, now)
        self._wait(m, now)
        self._results(m, now)
        return m

    def _sums(self, m, now):
        """The adder serves addresses too."""
        alu = m.submodules.alu
        second = Signal(32)
        m.d.comb += [
            alu.op.eq(now.code), alu.subtract.eq(now.any(_COMPARE)),
            alu.x.eq(now.x), alu.y.eq(second), second.eq(now.y),
        ]
        with m.If(now.any((Op.LD, *_ALU)) & (now[Op.LD] | now.h[0])):
            m.d.comb += second.eq(now.b.as_signed())
        with m.If(now[Op.ST]):
            m.d.comb += second.eq(now.d.as_signed())
        with m.If(now[Op.STP]):
            m.d.comb += second.eq(1)
        with m.If(now[Op.DEQ]):    # results come three cycles after their operands
            m.d.comb += second.eq((now.step - _PRODUCT)[:2])
        with m.If(now[Op.OUP]):    # read in cycles 5, 7, 9, 11, written in the next
            m.d.comb += second.eq((now.step - 2 * _PRODUCT + 1)[1:3])

    def _branches(self, m, now):
        alu, fetch = m.submodules.alu, m.submodules.fetch
        m.d.comb += [
            fetch.target.eq(Mux(now[Op.JR], now.x, Cat(now.d, now.h))),
            fetch.branch.eq(now.any((Op.JMP, Op.CALL, Op.JR))
                            | (now[Op.BEQ] & alu.equal)
                            | (now.any((Op.BNE, Op.LOOP)) & ~alu.equal)
                            | (now[Op.BLT] & alu.less) | (now[Op.BGE] & ~alu.less)),
        ]

    def _products(self, m, now):
        """The multiplier's operands: registers, or accumulators, or (OUP) first these and then
        what became of them."""
        multiplier, mac, power = m.submodules.multiplier, m.submodules.mac, m.submodules.power
        shift, sums = Signal(6), Signal(2)
        with m.If(now[Op.SH]):
            m.d.sync += shift.eq(now.b)
        with m.If(now[Op.SHR]):
            m.d.sync += shift.eq(now.x)
        with m.If(now[Op.SHX]):
            m.d.sync += shift.eq(Mux(now.x[12:].any(), 63, now.x[8:12]))
        m.d.comb += [
            sums.eq(now.a),
            multiplier.a.eq(now.x), multiplier.b.eq(now.y),
            multiplier.is_unsigned.eq(now.code[0]), multiplier.saturate.eq(now.code[1]),
            multiplier.mode.eq(now.h), multiplier.shift.eq(shift),
        ]
        with m.If(now[Op.DEQ]):
            m.d.comb += sums.eq(now.step)
        with m.If(now.any((Op.MULA, Op.DEQ))):
            m.d.comb += multiplier.a.eq(mac.sums[sums].as_signed())
        with m.If(now[Op.OUP]):
            m.d.comb += sums.eq(now.step[1:])
            with m.If(now.step[0]):
                m.d.comb += [multiplier.a.eq(multiplier.result),
                             multiplier.mode.eq(ShiftMode.Q15)]
            with m.Else():
                m.d.comb += [multiplier.a.eq(mac.sums[sums].as_signed()), multiplier.b.eq(1),
                             multiplier.mode.eq(ShiftMode.ROUND)]

        # The largest logit.
        maximum = Signal(signed(16))
        z = multiplier.result[:16].as_signed()
        with m.If(now[Op.SETT]):
            m.d.sync += maximum.eq(now.x)
        with m.Elif(now[Op.DEQ] & (now.step >= _PRODUCT) & (z > maximum)):
            m.d.sync += maximum.eq(z)
        m.d.comb += [
            power.maximum.eq(maximum),
            power.table.eq(now.h), power.at.eq(now.x), power.read.eq(now[Op.TAB]),
        ]

    def _memory(self, m, now):
        """Who reads and writes the banks, and the words that go one after another."""
        alu, mac, multiplier = m.submodules.alu, m.submodules.mac, m.submodules.multiplier
        power, lists, reader = m.submodules.power, m.submodules.lists, m.submodules.reader
        banks = m.submodules.bank_0, m.submodules.bank_1
        words = banks[1].word
        index, left = Signal(BANK_BITS + 1), Signal(BANK_BITS)
        count, row = Signal(BANK_BITS), Signal(2)
        first = now.step == 0
        look, put, update = now.step == 2, now.step == 3, now.step >= 2 * _PRODUCT - 1
        loaded, next_word = Signal(), Signal()
        streaming, has_word = Signal(), Signal()
        m.d.sync += has_word.eq(streaming)
        m.d.comb += [
            now.last_word.eq(left == 1), now.words_left.eq(left != 0),
            loaded.eq(now[Op.INS] & reader.last),
            streaming.eq(now[Op.MAC] & ~first & now.words_left),
            next_word.eq(streaming | loaded | (now[Op.EXP] & put)
                         | (now[Op.LIST] & ((look & ~lists.keep) | put))),
            now.next_word.eq(next_word),
        ]

        place, data = Signal(BANK_BITS + 1), Signal(32)
        reading, writing = Signal(), Signal()
        m.d.comb += [place.eq(alu.total), data.eq(now.y)]
        with m.If(now[Op.STP]):
            m.d.comb += place.eq(now.x)
        with m.If(now.any((Op.INS, Op.EXP, Op.LIST))):
            m.d.comb += [place.eq(index), data.eq(reader.word)]
        with m.If(now[Op.EXP]):
            m.d.comb += data.eq(power.p)
        with m.If(now[Op.LIST] & put):
            m.d.comb += [place.eq(Cat(lists.address, 1)), data.eq(lists.entry)]
        with m.If(now[Op.DEQ]):
            m.d.comb += data.eq(multiplier.result)
        with m.If(now[Op.OUP]):
            m.d.comb += data.eq(words + multiplier.result)
        m.d.comb += [
            writing.eq(now.any((Op.ST, Op.STP)) | loaded
                       | (now.any((Op.EXP, Op.LIST)) & put)
                       | (now[Op.DEQ] & (now.step >= _PRODUCT))
                       | (now[Op.OUP] & update & ~now.step[0])),
            reading.eq((now[Op.LD] & first) | (now.any((Op.EXP, Op.LIST)) & (now.step == 1))
                       | (now[Op.OUP] & update & now.step[0])),
            now.bank.eq(place[-1]),
        ]
        for number, bank in enumerate(banks):
            m.d.comb += [
                bank.enable.eq((writing | reading) & (place[-1] == number)),
                bank.write.eq(writing), bank.address.eq(place), bank.data.eq(data),
            ]
        with m.If(streaming):
            m.d.comb += [banks[1].enable.eq(1), banks[1].address.eq(index)]
        with m.If(has_word):
            m.d.comb += [banks[0].enable.eq(1), banks[0].address.eq(mac.address)]

        with m.If(now[Op.SETN]):
            m.d.sync += count.eq(now.x)
        with m.If(now[Op.SETR]):
            m.d.sync += row.eq(now.x)
        with m.If(first & now[Op.MAC]):
            m.d.sync += [index.eq(now.y), left.eq(count)]
        with m.Elif(first & now.any((Op.INS, Op.EXP))):
            m.d.sync += [index.eq(now.x), left.eq(now.y)]
        with m.Elif(first & now[Op.LIST]):
            m.d.sync += left.eq(now.y)
        with m.Elif(now[Op.SETL]):
            m.d.sync += index.eq(now.y)
        with m.Elif(next_word):
            m.d.sync += [index.eq(index + 1), left.eq(left - 1)]

        pv = now.d[2]
        m.d.comb += [
            mac.start.eq(first & now[Op.MAC]), mac.base.eq(now.x), mac.pv.eq(pv),
            mac.field.eq(Mux(pv, now.d[3], row)),
            mac.clear.eq(now.d[0]), mac.shift.eq(now.d[1]), mac.shift_now.eq(now[Op.ASHL]),
            mac.valid.eq(has_word), mac.word0.eq(banks[0].word), mac.word1.eq(words),
            self.pv_pass.eq(streaming & pv),
            power.clear.eq(first), power.word.eq(words),
            power.look.eq(now[Op.EXP] & look), power.add.eq(now[Op.EXP] & put),
            lists.set_thresholds.eq(now[Op.THR]), lists.prune.eq(now.x), lists.quant.eq(now.y),
            lists.set_lists.eq(now[Op.SETL]), lists.middle.eq(now.x),
            lists.begin.eq(now[Op.LIST] & first), lists.v.eq(now.x), lists.dense.eq(now.h[0]),
            lists.word.eq(words), lists.look.eq(now[Op.LIST] & look),
            lists.put.eq(now[Op.LIST] & put), lists.next.eq(now[Op.LIST] & next_word),
        ]

    def _outside(self, m, now):
        """Jobs, bytes, counts."""
        reader, writer = m.submodules.reader, m.submodules.writer
        connect_streams(m, outer=wiring.flipped(self.read), inner=reader.i)
        connect_streams(m, outer=wiring.flipped(self.write), inner=writer.o)
        with m.If(now[Op.PHASE]):
            m.d.sync += self.stages.eq(now.b)
        m.d.comb += [
            reader.enable.eq(now[Op.IN] | (now[Op.INS] & (now.step != 0))),
            reader.more.eq(Mux(now[Op.INS], 2, now.h)),
            writer.start.eq(now[Op.OUT] & ~writer.busy),
            writer.more.eq(now.h[0]), writer.word.eq(now.x),
            self.beats.valid.eq(now[Op.REQ]),
            self.beats.p.address.eq(now.x), self.beats.p.beats.eq(now.y),
            self.beats_write.eq(now.h[0]),
            self.job.ready.eq(now[Op.INJ]),
            self.lp_block.eq(now[Op.EVB] & ~now.h[0]),
            self.hp_block.eq(now[Op.EVB] & now.h[0]),
            self.elements.eq(Mux(now[Op.EVE], now.x, 0)),
            self.hp_elements.eq(Mux(now[Op.EVE], now.y, 0)),
            now.ended.eq(now[Op.DONE] & ~self.done.valid & self.quiet & ~writer.busy),
        ]
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(now.ended):
            m.d.sync += [self.done.valid.eq(1), self.done.p.eq(now.x)]

    def _wait(self, m, now):
        """Whether the instruction goes on, and with which cycle."""
        mac, reader, writer = m.submodules.mac, m.submodules.reader, m.submodules.writer
        first = now.step == 0
        more = ~(now.next_word & now.last_word)
        m.d.comb += [
            now.again.eq(now.any((Op.EXP, Op.LIST)) & now.next_word),
            now.wait.eq(Cat(
                now.any((Op.LD, Op.TAB)) & first,
                now.any(_PRODUCTS) & (now.step != _PRODUCT),
                now[Op.DEQ] & (now.step != now.d[:2] + _PRODUCT),
                now[Op.OUP] & (now.step != 4 * _PRODUCT),
                now.any((Op.EXP, Op.LIST, Op.INS)) & more,
                now[Op.MAC] & Mux(now.d[4], first | now.words_left | mac.busy, more),
                now[Op.INJ] & ~self.job.valid,
                now[Op.DONE] & ~now.ended,
                now[Op.REQ] & ~self.beats.ready,
                now[Op.IN] & ~reader.last,
                now[Op.OUT] & writer.busy,
            ).any()),
        ]

    def _results(self, m, now):
        alu, power, lists = m.submodules.alu, m.submodules.power, m.submodules.lists
        data = m.submodules.registers.data
        sources = {
            (Op.LI,): Cat(now.b, now.a).as_signed(),
            (Op.LD,): Mux(now.bank, m.submodules.bank_1.word, m.submodules.bank_0.word),
            (Op.TAB,): power.entry,
            (Op.EXP,): power.sum,
            (Op.RDT,): power.maximum,
            (Op.LIST,): lists.counts,
            (Op.RDL,): Cat(Mux(now.h[0], lists.high_end, lists.low_end), 1),  # in bank 1
            _PRODUCTS: m.submodules.multiplier.result,
            (Op.INJ,): self.job.p,
            (Op.IN,): m.submodules.reader.word,
            (Op.CALL,): m.submodules.fetch.at,
        }
        m.d.comb += data.eq(alu.result)
        for ops, source in sources.items():
            with m.If(now.any(ops)):
                m.d.comb += data.eq(source)
