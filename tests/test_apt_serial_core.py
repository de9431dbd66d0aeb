"""Processor of the serial dataflow against its model, and its units against whole numbers."""

import numpy as np
import pytest

from gen.presets import APT_PRESETS
from rtl.apt.serial.assembler import assemble
from rtl.apt.serial.core import Core
from rtl.apt.serial.isa import Op, ShiftMode
from rtl.apt.serial.multiplier import Multiplier
from rtl.apt.serial.program import tables
from tests.serial_machine import Machine, mul_shifted
from tests.sim import collect, drive, simulate


PARAMS = APT_PRESETS["icebreaker"]
REGISTERS = [f"r{k}" for k in range(12)]

#: Puts all registers out, and ends.
DUMP = "".join(f"out {name}, #1\nsh #16\nmulu w, {name}, =1, trunc\nout w, #1\n"
               for name in REGISTERS) + "done =1\nend: jmp @end\n"


def run(source, *, words=(), data=(), seed=None):
    """Bytes written and ranges asked for, by the RTL and by the model; and cycles of both."""
    image = assemble(source, {})
    expected, ranges, feed = [], [], iter(data)
    machine = Machine(image, tables(PARAMS), words=words, read=lambda: next(feed),
                      request=lambda *which: ranges.append(which), write=expected.append,
                      v_key=2 * PARAMS.column_passes)
    machine.run_jobs(1)
    dut, got, got_ranges = Core(PARAMS, image), [], []
    rng = np.random.default_rng(seed)

    def gaps():
        return None if seed is None else iter(lambda: bool(rng.random() < 0.4), None)

    async def inputs(ctx):
        await drive(ctx, dut.job, list(words), gaps())

    async def bytes_in(ctx):
        await drive(ctx, dut.read, list(data), gaps())

    async def asked(ctx):
        ctx.set(dut.quiet, 1)
        ctx.set(dut.beats.ready, 1)
        for _ in ranges:
            *_, address, beats, write = await ctx.tick().sample(
                dut.beats.p.address, dut.beats.p.beats, dut.beats_write).until(dut.beats.valid)
            got_ranges.append((address, beats, write))

    cycles = []

    async def out(ctx):
        got.extend(await collect(ctx, dut.write, len(expected), gaps()))

    async def end(ctx):
        ctx.set(dut.done.ready, 1)
        count = 0
        while not cycles:
            *_, valid, status = await ctx.tick().sample(dut.done.valid, dut.done.p)
            count += 1
            if valid:
                assert status == machine.done[0]
                cycles.append(count)

    simulate(dut, inputs, bytes_in, asked, out, end)
    assert got == expected and got_ranges == ranges
    return cycles[0], machine.cycles


def constant(rng):
    value = int(rng.integers(-(1 << 31), 1 << 31)) >> int(rng.integers(0, 32))
    return f"={value & 0xffffffff}"


@pytest.mark.parametrize("seed", range(3))
def test_random_instructions(seed):
    """Everything between registers, with branches over each other and back in loops."""
    rng = np.random.default_rng(seed)
    lines = [f"add {name}, =0, {constant(rng)}" for name in REGISTERS]

    def pick():
        return REGISTERS[rng.integers(len(REGISTERS))]
    shifts = ("round", "q15", "trunc", "none")
    for number in range(250):
        d, a, b = pick(), pick(), pick()
        kind = rng.integers(12)
        if kind < 4:
            op = ("add", "sub", "and", "or", "xor", "max", "min")[rng.integers(7)]
            second = b if rng.random() < 0.6 else f"#{rng.integers(-128, 128)}"
            lines.append(f"{op} {d}, {a}, {second}")
        elif kind < 6:
            lines.append(f"{('mul', 'mulu', 'muls')[rng.integers(3)]} {d}, {a}, {b}, "
                         f"{shifts[rng.integers(4)]}")
        elif kind == 6:
            lines.append((f"sh #{rng.integers(64)}", f"shr {a}", f"shx {a}")[rng.integers(3)])
        elif kind == 7:
            lines.append((f"tab {d}, {a}, exp", f"tab {d}, {a}, log", f"tab {d}, {a}, log",
                          f"li {d}, #{rng.integers(-32768, 32768)}")[rng.integers(4)])
        elif kind == 8:
            lines += [f"{('beq', 'bne', 'blt', 'bge')[rng.integers(4)]} {a}, {b}, @skip{number}",
                      f"add {d}, {d}, #1", f"xor {d}, {d}, {a}", f"skip{number}:"]
        elif kind == 9:
            lines += [f"li count, #{rng.integers(1, 4)}", f"loop{number}: add {d}, {d}, {a}",
                      f"loop count, @loop{number}"]
        elif kind == 10:
            lines += [f"li p, #{rng.integers(0, 32000)}", f"st p, #{rng.integers(-128, 128)}, {a}",
                      f"stp p, {b}", f"ld {d}, p, #-1", f"ld {a}, p, #-1"]
        else:
            lines += [f"call link, @sub{number}", f"jmp @after{number}",
                      f"sub{number}: add {d}, {d}, #3", "jr link", f"after{number}:"]
    rtl, model = run("\n".join(lines) + "\n" + DUMP)
    # From reset to the first instruction, and the end.
    assert 0 <= rtl - model <= 4 + 2 * len(REGISTERS)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_jobs_and_bytes(seed):
    rng = np.random.default_rng(seed)
    run("""
        inj r0
        inj r1
        req r0, r1, #0
        in  r2, #0
        in  r3, #1
        in  r4, #2
        li  w, #100
        li  n, #5
        ins w, n
        ld  r5, w, #0
        ld  r6, w, #4
        req r1, r0, #1
        out r0, #0
        out r1, #1
    """ + DUMP, words=rng.integers(0, 1 << 32, 2).tolist(),
        data=rng.integers(0, 256, 21).tolist(), seed=seed)


def fill(rng, count, base, bits):
    """Lines that put random words into memory."""
    return [f"add p, =0, ={base}"] + [
        f"stp p, {f'={int(value)}'}" for value in rng.integers(0, 1 << bits, count)]


@pytest.mark.parametrize("seed", range(2))
def test_products_of_segments(seed):
    """QK and PV with all flags, and what reads the sums."""
    rng = np.random.default_rng(seed)
    entries = [int(place) << 12 | int(rng.integers(1 << 12)) for place in rng.integers(0, 9, 9)]
    lines = [*fill(rng, 20, 500, 24), *fill(rng, 12, 16384 + 300, 24),
             f"add p, =0, ={16384 + 400}", *(f"stp p, ={entry}" for entry in entries)]
    lines += ["add x, =0, =500", "add q, =0, =16684", "add l, =0, =16784"]
    for row in range(4):
        lines += [f"li n, #{row}", "setr n", f"li n, #{int(rng.integers(1, 13))}", "setn n",
                  "mac x, q, first", "mac x, q, shift", "mac x, q, add last"]
        lines += [f"mula r{k}, #{k}, =1, none" for k in range(4)]
        lines += ["li n, #9", "setn n", "mac x, l, pv first", "setn =3",
                  "mac x, l, pv lsb shift last" if row else "mac x, l, pv lsb last", "ashl"]
        lines += [f"mula r{4 + k}, #{k}, =1, none" for k in range(4)]
        lines += [f"sh #{int(rng.integers(1, 12))}", "sett =-32768", "add z, =0, =20000",
                  "deq z, =40000, #3", "rdt r8", *(f"ld r{9 + k}, z, #{k}" for k in range(3)),
                  f"deq z, =65535, #{row}", "oup z, =30001", "add y, =0, =20100",
                  *(f"stp y, r{k}" for k in range(4)), "add y, y, #-4", "oup y, =32768"]
        lines += [f"xor r{k}, r{k}, r{k + 4}" for k in range(4)]
        lines += [f"ld r{k + 4}, z, #{k}" for k in range(4)]
        lines += [f"ld w, y, #{row}", "xor r0, r0, w"]
    run("\n".join(lines) + "\n" + DUMP)


@pytest.mark.parametrize("dense", [0, 1])
def test_powers_and_lists(dense):
    rng = np.random.default_rng(dense)
    base = 16384 + 900
    z = [-5 - int(value) for value in (*rng.integers(0, 4096, 14), 0, 70, 32000, 30000)]
    lines = [f"add p, =0, ={base}", *(f"stp p, ={value & 0xffffffff}" for value in z),
             "sett =-5", f"add p, =0, ={base}", "li n, #18", "exp r0, p, n"]
    lines += ["thr =900, =9000", f"add m, =0, ={16384 + 2000}", "setl m, p"]
    for k, count in enumerate((8, 7, 3)):
        lines += [f"li n, #{count}", f"li v, #{100 * k}", f"list r{1 + k}, v, n, #{dense}"]
    lines += ["rdl r4, #0", "rdl r5, #1", "sub n, r4, r5"]
    lines += ["next: ld w, r5, #0", "xor r6, r6, w", "add r6, r6, r6", "add r5, r5, #1",
              "loop n, @next", *(f"ld r{7 + k}, p, #{k}" for k in range(4))]
    run("\n".join(lines) + "\n" + DUMP)


def test_multiplier():
    """Products of all signs and lengths, one a cycle."""
    rng = np.random.default_rng(0)
    for op, mode in ((Op.MUL, ShiftMode.ROUND), (Op.MULU, ShiftMode.TRUNC),
                     (Op.MULS, ShiftMode.ROUND), (Op.MULS, ShiftMode.Q15)):
        dut = Multiplier()
        edges = [0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x8000, 0x7fff]
        a = edges + (rng.integers(0, 1 << 32, 200) >> rng.integers(0, 32, 200)).tolist()
        b = [0xffff] * len(edges) + rng.integers(0, 1 << 16, 200).tolist()
        got = []

        async def bench(ctx, dut=dut, op=op, mode=mode, a=a, b=b, got=got, shift=7):
            ctx.set(dut.is_unsigned, op & 1)
            ctx.set(dut.saturate, op >> 1 & 1)
            ctx.set(dut.mode, mode)
            ctx.set(dut.shift, shift)
            for x, y in [*zip(a, b, strict=True), *[(0, 0)] * dut.latency]:
                ctx.set(dut.a, x)
                ctx.set(dut.b, y)
                *_, result = await ctx.tick().sample(dut.result)
                got.append(result)

        simulate(dut, bench)
        assert dut.latency == 3
        assert got[3:] == [mul_shifted(op, mode, x, y, 7) & 0xffffffff
                           for x, y in zip(a, b, strict=True)]
