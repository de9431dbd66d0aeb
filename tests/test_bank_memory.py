"""``bank_memory`` in the built-in simulator: contents, latency, stalls, segment enables."""

import numpy as np
import pytest

from golden.apt.params import AptParams
from golden.common.bank_memory import place
from golden.common.bank_memory import read as golden_read
from rtl.common.bank_memory import BankMemory
from tests.sim import FLOWS, run_streams, simulate


SHAPES = [
    AptParams(lanes=3, multipliers=5, head_dim=12, tile_k=10, segment_bits=4),
    AptParams(lanes=4, multipliers=2, head_dim=2, tile_k=4, segment_bits=6),
]


def write(bank, slot, chunk, lsb, words):
    return {"bank": bank, "slot": slot, "chunk": chunk, "lsb": lsb, "words": words}


def read(chunk, lsb, slots):
    return {"chunk": chunk, "lsb": lsb,
            "banks": [{"enable": int(slot is not None), "slot": slot or 0} for slot in slots]}


def fill(params, rng):
    """Random segments of a key tile as the banks hold them, and the writes that put them there."""
    segments = rng.integers(0, 1 << params.segment_bits, (2, params.tile_k, params.head_dim))
    stored = place(segments, params)
    writes = [write(bank, slot, chunk, lsb, stored[lsb, bank, slot, chunk].tolist())
              for lsb, bank, slot, chunk in np.ndindex(stored.shape[:-1])]
    return stored, writes


def flat(params, banks):
    """Output payload as an integer."""
    words = [word for bank in banks for word in bank]
    return sum(int(word) << (index * params.segment_bits) for index, word in enumerate(words))


@pytest.mark.parametrize("table", [None, [4, 7, 2, 9, 0, 1, 3, -1, 8, 6, 5, -1]])
def test_every_key_lies_where_the_table_says(table):
    params = SHAPES[0]
    segments = np.arange(params.tile_k * params.head_dim).reshape(params.tile_k, params.head_dim)
    placed = place(segments, params, table)
    assert placed.shape == (3, 4, 3, 5)
    keys = table or [*range(10), -1, -1]
    for position, key in enumerate(keys):
        words = placed[position % 3, position // 3].reshape(-1)
        expected = segments[key].tolist() if key >= 0 else [0] * 12
        assert words.tolist() == [*expected, 0, 0, 0]


@pytest.mark.parametrize("segments, table, message", [
    (np.zeros((10, 11), int), None, r"^Segments must be \[\.\.\., 10, 12\], not \[10, 11\]$"),
    (np.zeros((10, 12), int), [0] * 12, r"^Table must hold each of 10 keys once in 12 positions$"),
])
def test_bad_contents(segments, table, message):
    with pytest.raises(ValueError, match=message):
        place(segments, SHAPES[0], table)


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=["odd", "small"])
def test_reads_back_what_was_written(params, flow):
    rng = np.random.default_rng(0)
    stored, writes = fill(params, rng)
    dut = BankMemory(params)
    reads, expected = [], []
    for _ in range(100):
        chunk, lsb = int(rng.integers(params.chunks)), int(rng.integers(2))
        slots = rng.integers(0, params.slots, params.lanes)
        enable = rng.random(params.lanes) < 0.7
        reads.append(read(chunk, lsb, [int(slot) if on else None
                                       for slot, on in zip(slots, enable, strict=True)]))
        expected.append(flat(params, golden_read(stored[lsb], chunk, slots, enable)))
    # A word that nothing wrote yet is undefined: read no bank until all are written.
    idle = 4 * len(writes)
    reads = [read(0, 0, [None] * params.lanes)] * idle + reads
    expected = [0] * idle + expected
    received, times = run_streams(dut, {"write": writes, "read": reads}, {"o": len(reads)},
                                  flow=flow)
    assert received["o"] == expected
    if flow == "full_speed":
        assert times["o"][0] - times["read"][0] == dut.latency
        assert np.diff(times["o"]).tolist() == [1] * (len(reads) - 1)


def test_a_low_precision_read_leaves_the_lsb_memories_alone():
    params = SHAPES[1]
    dut = BankMemory(params)
    seen = []

    async def testbench(ctx):
        await ctx.tick()
        ctx.set(dut.write.payload, write(0, 0, 0, 1, [5, 5]))
        ctx.set(dut.write.valid, 1)
        await ctx.tick()
        ctx.set(dut.write.valid, 0)
        ctx.set(dut.o.ready, 1)
        for lsb in (1, 0):
            ctx.set(dut.read.payload, read(0, lsb, [0, None, None, None]))
            ctx.set(dut.read.valid, 1)
            await ctx.tick()
            ctx.set(dut.read.valid, 0)
            await ctx.tick()
            seen.append(ctx.get(dut.o.payload[0][0]))
            await ctx.tick()

    simulate(dut, testbench, cycles=100)
    assert seen == [5, 0]


def test_a_write_in_the_cycle_of_a_read_shows_the_old_word():
    params = SHAPES[1]
    dut = BankMemory(params)
    seen = []

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for word in (1, 2):
            ctx.set(dut.write.payload, write(0, 0, 0, 0, [word, word]))
            ctx.set(dut.write.valid, 1)
            ctx.set(dut.read.payload, read(0, 0, [0, None, None, None]))
            ctx.set(dut.read.valid, word == 2)
            await ctx.tick()
        ctx.set(dut.write.valid, 0)
        ctx.set(dut.read.valid, 0)
        await ctx.tick()
        seen.append(ctx.get(dut.o.payload[0][0]))

    simulate(dut, testbench, cycles=100)
    assert seen == [1]


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        BankMemory(8)
