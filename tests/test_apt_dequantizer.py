"""Dequantizer: logits against the model, read-out of sums as they are parked, marks that wait."""

import numpy as np
import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.lib import wiring

from golden.apt.block_sequencer import blocks, code_words
from golden.apt.params import AptParams
from golden.apt.vpu import dequantize
from rtl.apt.block_sequencer import BlockSequencer
from rtl.apt.dequantizer import Dequantizer
from rtl.apt.logit_lane import LogitLane
from rtl.apt.qk_words import SLOTS, qk_mark
from tests.sim import drive, simulate


PARAMS = {
    "default": AptParams(),
    "4_lanes": AptParams(lanes=4, head_dim=16, tile_q=12, tile_k=48),
    "8_lanes": AptParams(lanes=8, multipliers=18, head_dim=72, tile_q=12, tile_k=48),
    "one_block": AptParams(head_dim=256, tile_q=4, tile_k=8, lanes=8),
    "short_words": AptParams(segment_bits=3, head_dim=16, tile_q=8, tile_k=16),
}


@pytest.fixture(params=PARAMS)
def params(request):
    return PARAMS[request.param]


def worst(params):
    """The largest dot product: of words, or of high segments alone."""
    half = (1 << (params.segment_bits - 1)) - 1
    return params.head_dim * max(params.qmax ** 2, half * half << params.word_bits)


def operands(params, rng, count, places):
    """Accumulators [count, places], mantissas and shifts [count]: ends of ranges, ties, and
    logits near the largest."""
    mantissa = rng.integers(1 << 15, 1 << 16, count)
    special = rng.integers(0, 6, count)
    mantissa[special == 0], mantissa[special == 1], mantissa[special == 2] = 0, 0xffff, 0x8000
    shift = np.resize(np.arange(1, 64), count)
    top = worst(params)
    acc = rng.integers(-top, top + 1, (count, places)) >> rng.integers(
        0, params.logit_acc_bits, (count, places))
    # What lies about a logit of 2**15, -2**15 and 0 and a half.
    edge = rng.choice([1 << 16, -(1 << 16), 1, -1, 65535], (count, places)).astype(np.float64)
    near = np.ldexp(edge, shift[:, None] - 1) / np.maximum(mantissa, 1)[:, None]
    near = np.clip(near, -top, top).astype(np.int64) + rng.integers(-1, 2, (count, places))
    kind = rng.integers(0, 8, (count, places))
    acc = np.where(kind < 3, np.clip(near, -top, top), acc)
    acc[kind == 3], acc[kind == 4] = top, -top
    return acc, mantissa, shift


def test_the_worst_accumulators_fit(params):
    assert -1 << (params.logit_acc_bits - 1) <= -worst(params)
    assert worst(params) < 1 << (params.logit_acc_bits - 1)


def test_lane_matches_model(params):
    rng = np.random.default_rng(1)
    acc, mantissa, shift = operands(params, rng, 63 * 100, 1)
    acc = acc[:, 0]
    want = dequantize(acc, mantissa, shift).tolist()
    # The cases are there: saturated both ways, ties, and what is not saturated.
    assert {32767, -32768, 0} < set(want)
    assert sum(abs(value) < 32767 for value in want) > len(want) // 4
    product = acc * mantissa
    assert ((product & ((1 << shift) - 1)) == 1 << (shift - 1)).any()
    dut, got = LogitLane(params), []

    async def testbench(ctx):
        for operand in [*zip(acc.tolist(), mantissa.tolist(), shift.tolist(), strict=True),
                        *[(0, 0, 1)] * dut.latency]:
            ctx.set(dut.acc, operand[0])
            ctx.set(dut.mantissa, operand[1])
            ctx.set(dut.places, operand[2] - 1)
            *_, z = await ctx.tick().sample(dut.z)
            got.append(z)

    simulate(dut, testbench)
    assert got[dut.latency:] == want
    assert dut.throughput == "1 logit a cycle"


def test_lane_at_every_shift():
    """The ends of the accumulator and of the mantissa, and 0, at every shift."""
    params = AptParams()
    top = worst(params)
    cases = [(acc, mantissa, shift) for shift in range(1, 64)
             for mantissa in (0, 1, 0x8000, 0xffff)
             for acc in (-1 << (params.logit_acc_bits - 1), -top, -1, 0, 1, top,
                         (1 << (params.logit_acc_bits - 1)) - 1)]
    dut, got = LogitLane(params), []

    async def testbench(ctx):
        for acc, mantissa, shift in cases + cases[:dut.latency]:
            ctx.set(dut.acc, acc)
            ctx.set(dut.mantissa, mantissa)
            ctx.set(dut.places, shift - 1)
            *_, z = await ctx.tick().sample(dut.z)
            got.append(z)

    simulate(dut, testbench)
    assert got[dut.latency:] == dequantize(*np.array(cases).T).tolist()


# The component

def schedule(params, rng, count):
    """Marks by cycle, or None: sums as close as they may be, and with gaps; block rows without
    blocks alone, up to three while sums are read, and in long rows."""
    made, row, waits = [], 0, 0

    def put(**fields):
        nonlocal row
        made.append({"row_block": row, "key_block": 0, "step": 0, "end": 1, "none": 0, **fields})
        row = (row + made[-1]["end"]) % params.row_blocks

    while len(made) < count * params.step_keys:
        waits = 0
        key_block = int(rng.integers(params.key_blocks))
        made += [None] * (params.step_keys - 1)
        if rng.random() < 0.3:
            made += [None] * int(rng.integers(5))
        put(key_block=key_block, step=int(rng.integers(params.block_steps)),
            end=int(rng.integers(2)))
        if rng.random() < 0.5 and made[-1]["end"]:
            for _ in range(int(rng.integers(1, 4))):
                made += [None] * int(rng.integers(3) if rng.random() < 0.3 else 0)
                waits += 1
                put(none=1)
        if rng.random() < 0.1:
            made += [None] * params.step_keys
            for _ in range(9):
                put(none=1)
    return made


def run(params, marks, seed):
    """Checks the words of marks, sums of random operands, cycle by cycle."""
    rng = np.random.default_rng(seed)
    dut = Dequantizer(params)
    keys, width = params.step_keys, params.logit_acc_bits
    acc, mantissa, shift = operands(params, rng, len(marks), 4 * keys)
    z = dequantize(acc, mantissa[:, None], shift[:, None]).reshape(-1, 4, keys)
    total, want, free, waiting = len(marks) + 4 * keys + dut.latency, {}, 0, 0
    for cycle, mark in enumerate(marks):
        if mark is None:
            continue
        begin = max(free, cycle) + dut.latency
        if mark["none"]:
            waiting = max(waiting, begin - dut.latency - cycle)
            want[begin] = (mark["row_block"], None, 1, 1, None)
            free = begin - dut.latency + 1
            continue
        assert begin == cycle + dut.latency, "sums must not wait"
        first = 8 * mark["key_block"] + mark["step"] * keys
        for key in range(keys):
            want[begin + key] = (mark["row_block"], first + key,
                                 int(mark["end"] and key == keys - 1), 0,
                                 z[cycle, :, key].tolist())
        free = cycle + keys
    # The sums in the order of the port: by owner, lane and key of the lane.
    images = [sum((int(value) & ((1 << width) - 1)) << width * place
                  for place, value in enumerate(row)) for row in acc]
    garbage = int.from_bytes(rng.bytes(4 * keys * width // 8), "little")
    got = {}

    async def testbench(ctx):
        hold = 0
        for cycle in range(total):
            mark = marks[cycle] if cycle < len(marks) else None
            hold -= 1
            ctx.set(dut.mark, {"valid": 1, **mark} if mark else {"valid": 0, "none": cycle & 1})
            if mark and not mark["none"]:
                ctx.set(dut.mantissa, int(mantissa[cycle]))
                ctx.set(dut.shift, int(shift[cycle]))
                ctx.set(dut.sums.as_value(), images[cycle])
                hold = keys
            else:
                ctx.set(dut.mantissa, cycle & 0xffff)
                ctx.set(dut.shift, cycle & 63)
                if hold <= 0:
                    ctx.set(dut.sums.as_value(), garbage)
            *_, o = await ctx.tick().sample(dut.o)
            if o.valid:
                got[cycle] = (o.row_block, None if o.none else o.key, o.end, o.none,
                              None if o.none else [o.z[row] for row in range(4)])

    simulate(dut, testbench)
    assert got == want
    return waiting


def test_matches_model(params):
    assert run(params, schedule(params, np.random.default_rng(2), 60), 3) > 0


def test_sums_back_to_back(params):
    """Every ``step_keys`` cycles, at every shift: a word in each cycle."""
    marks = []
    for index in range(70):
        marks.append({"row_block": index % params.row_blocks,
                      "key_block": index % params.key_blocks,
                      "step": index % params.block_steps, "end": index & 1, "none": 0})
        marks += [None] * (params.step_keys - 1)
    assert run(params, marks, 4) == 0


def test_three_block_rows_wait():
    params = PARAMS["default"]
    empty = [{"row_block": row, "key_block": 3, "step": 0, "end": 1, "none": 1}
             for row in (7, 2, 9)]
    sums = {"row_block": 6, "key_block": 5, "step": 0, "end": 1, "none": 0}
    # Right after the mark, and at the end of the read-out.
    assert run(params, [sums, *empty, *[None] * 7, sums, *[None] * 5, *empty, *[None] * 7, sums],
               5) == 7
    assert SLOTS == 4


class Chain(wiring.Component):
    """Sequencer and dequantizer as in the engine, with four cycles between."""

    def __init__(self, params):
        self.sequencer, self.dequantizer = BlockSequencer(params), Dequantizer(params)
        self.early = Signal(qk_mark(params))
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer, m.submodules.dequantizer = self.sequencer, self.dequantizer
        mark = self.sequencer.mark
        for stage in range(3):
            staged = self.early if stage == 2 else Signal(mark.shape(), name=f"mark_{stage}")
            m.d.sync += staged.eq(mark)
            mark = staged
        m.d.sync += self.dequantizer.mark.eq(mark)
        m.d.comb += self.sequencer.slot_free.eq(self.dequantizer.o.valid & self.dequantizer.o.end)
        return m


@pytest.mark.parametrize("name", ["8_lanes", "16_lanes", "one_chunk"])
def test_behind_the_sequencer(name):
    """Slots come back with the last word of a block row; all words come out, in order."""
    params = {"8_lanes": PARAMS["8_lanes"], "16_lanes": AptParams(tile_q=128, tile_k=32),
              "one_chunk": AptParams(head_dim=8, tile_q=128, tile_k=32)}[name]
    rng = np.random.default_rng(6)
    codes = []
    for empty in (0.3, 0.6, 0.85, 0.97):
        shape = params.row_blocks, params.key_blocks
        codes.append((rng.integers(1, 4, shape) * (rng.random(shape) > empty)).reshape(-1))
    chain = Chain(params)
    dut, want = chain.dequantizer, []
    for code in codes:
        for block in blocks(code, params.tile_q, params.tile_k, params):
            if block.key_block is None:
                want.append((block.row_block, None, 1))
            else:
                want += [(block.row_block, 8 * block.key_block + key, int(block.end and key == 7))
                         for key in range(8)]
    got = []

    async def tiles(ctx):
        ctx.set(dut.mantissa, 0x8000)
        ctx.set(dut.shift, 15)
        await drive(ctx, chain.sequencer.tile, [{"rows": params.tile_q, "keys": params.tile_k}]
                    * len(codes))

    async def code_source(ctx):
        await drive(ctx, chain.sequencer.code,
                    [word for code in codes for word in code_words(code, params)])

    async def lanes(ctx):
        while len(got) < len(want):
            *_, early, o = await ctx.tick().sample(chain.early, dut.o)
            if early.valid and not early.none:
                first = 8 * early.key_block + early.step * params.step_keys
                for owner in range(4):
                    for key in range(params.step_keys):
                        ctx.set(dut.sums[owner][key // 2][key % 2], first + key - owner)
            if o.valid:
                got.append((o.row_block, None if o.none else o.key, o.end))
                assert o.none or [o.z[row] for row in range(4)] == [o.key - row
                                                                    for row in range(4)]

    simulate(chain, tiles, code_source, lanes)
    assert got == want


def test_reset_while_reading():
    """Nothing of what was read or waited for comes out."""
    params = PARAMS["default"]
    dut, reset = Dequantizer(params), Signal()
    sums = {"valid": 1, "row_block": 1, "key_block": 2, "step": 0, "end": 1, "none": 0}

    async def testbench(ctx):
        for cycles in (1, 2, 4, 9, 12):
            ctx.set(dut.mark, sums)
            await ctx.tick()
            for row in (2, 3, 4):
                ctx.set(dut.mark, {**sums, "row_block": row, "none": 1})
                await ctx.tick()
            ctx.set(dut.mark, {"valid": 0})
            await ctx.tick().repeat(cycles)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for _ in range(dut.latency + 12):
                *_, valid = await ctx.tick().sample(dut.o.valid)
                assert not valid
            ctx.set(dut.mark, sums)
            await ctx.tick()
            ctx.set(dut.mark, {"valid": 0})
            words = []
            for _ in range(dut.latency + 12):
                *_, o = await ctx.tick().sample(dut.o)
                if o.valid:
                    words.append((o.row_block, o.key, o.end, o.none))
            assert words == [(1, 16 + key, int(key == 7), 0) for key in range(8)]

    simulate(ResetInserter(reset)(dut), testbench)


def test_properties(params):
    dut = Dequantizer(params)
    assert dut.params is params and dut.latency == 6 and dut.throughput == "1 key of 4 rows a cycle"


@pytest.mark.parametrize("component", [Dequantizer, LogitLane])
def test_other_dataflows_are_refused(component):
    with pytest.raises(ValueError, match=r"^AptParams\.split must be balanced, not 'truncate'$"):
        component(AptParams(split="truncate"))
