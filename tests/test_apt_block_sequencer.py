"""Block sequencer: model against the masks, RTL against the model cycle by cycle, slots, resets."""

import functools
from collections import namedtuple
from itertools import pairwise

import numpy as np
import pytest
from amaranth import ResetInserter, Signal

from golden.apt import mask_decoder, mask_encoder
from golden.apt.block_sequencer import Block, blocks, code_words, issue
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds
from golden.dit.tiles import load_tiles
from rtl.apt.block_scan import BlockScan
from rtl.apt.block_sequencer import BlockSequencer
from rtl.apt.qk_words import SLOTS, qk_issue, qk_mark
from tests.sim import coin, drive, simulate


PARAMS = {
    "16_lanes": AptParams(tile_q=16),
    "4_lanes": AptParams(lanes=4, head_dim=16, tile_q=12, tile_k=48),
    "8_lanes": AptParams(lanes=8, head_dim=16, tile_q=12, tile_k=48),
    "16_lanes_dim_16": AptParams(head_dim=16, tile_q=12, tile_k=48),
    "dim_24": AptParams(lanes=8, head_dim=24, tile_q=12, tile_k=40),
    "dim_72": AptParams(multipliers=18, head_dim=72, tile_q=16, tile_k=64),
    "one_chunk": AptParams(head_dim=8, tile_q=12, tile_k=104),
    "one_block": AptParams(lanes=4, head_dim=64, tile_q=4, tile_k=8),
    "wide": AptParams(head_dim=32, tile_q=8, tile_k=512),
}
SMALL = [name for name in PARAMS if name not in ("16_lanes", "wide")]


@pytest.fixture(params=PARAMS)
def params(request):
    return PARAMS[request.param]


def tile(code, rows, keys, dense=False, refresh=False):
    return code, rows, keys, {"dense": dense, "refresh": refresh}


def random_code(params, rng, empty, hp=0.2):
    """Flag pairs, HP without V among them; some block rows are empty."""
    shape = params.row_blocks, params.key_blocks
    code = np.where(rng.random(shape) < empty, 0, np.where(rng.random(shape) < hp,
                                                           rng.choice([1, 3], shape), 2))
    code[rng.random(params.row_blocks) < 0.3] = 0
    return code.reshape(-1)


def mixed_tiles(params, seed, count=8):
    """Sparse and full tiles of every kind and size."""
    rng = np.random.default_rng(seed)
    made = []
    for index in range(count):
        rows = params.tile_q if index % 2 else int(rng.integers(1, params.tile_q + 1))
        keys = params.tile_k if index % 3 else int(rng.integers(1, params.tile_k + 1))
        code = random_code(params, rng, rng.choice([0.2, 0.7, 0.95]))
        made.append(tile(code, rows, keys, index % 8 == 5, index % 8 == 6))
    return made


def corner_tiles(params):
    none, high, full = (np.full(params.flags, pair) for pair in range(3))
    one = none.copy()
    one[-1] = 3
    return [
        tile(none, params.tile_q, params.tile_k),
        tile(high, params.tile_q, params.tile_k),
        tile(none, params.tile_q, params.tile_k, dense=True, refresh=True),
        tile(one, params.tile_q, params.tile_k),
        tile(one, params.tile_q, params.tile_k, refresh=True),
        tile(full, 1, params.tile_k),
        tile(full, params.tile_q, 1),
        tile(high, params.tile_q - 1, params.tile_k - 3),
        tile(full, 1, 1, dense=True),
        tile(full, 0, params.tile_k),
        tile(full, params.tile_q, 0, dense=True),
        tile(high, 1, 1),
    ]


@functools.cache
def packed(params, issued, mark):
    """The words ``o`` and ``mark`` of a cycle as integers; None where they are not valid."""
    o, m = qk_issue(params), qk_mark(params)
    if issued is not None:
        issued = o.const({
            "valid": 1, "first": issued.first, "shift": issued.shift, "last": issued.last,
            "low": issued.low,
            "k": {"key_block": issued.key_block, "lsb": issued.k_lsb, "step": issued.step,
                  "chunk": issued.chunk},
            "q": {"row_block": issued.row_block, "lsb": issued.q_lsb, "chunk": issued.chunk},
        }).as_value().value
    if mark is not None:
        mark = m.const({"valid": 1, **mark._asdict()}).as_value().value
    return issued, mark


def wanted(params, tiles):
    """Words of tiles, cycle by cycle."""
    return [[packed(params, *pair) for pair in issue(code, rows, keys, params, **kind)]
            for code, rows, keys, kind in tiles]


#: By cycle: pairs of words, ``idle``, slots in use; edges of transfers on ``tile``; pulses.
Result = namedtuple("Result", "cycles idle in_use times pulses")


def run(params, tiles, *, slots_back=None, code_gaps=None, tile_gaps=None):
    """What comes out for the tiles, with a few cycles after the end.

    ``slots_back`` are the chances that one of the slots in use is given back in a cycle; without
    it, each comes back as it is taken.
    """
    dut = BlockSequencer(params)
    result = Result([], [], [], [], [0, 0])
    expected_marks = sum(mark is not None for words in wanted(params, tiles) for _, mark in words)

    async def tile_source(ctx):
        await drive(ctx, dut.tile, [{"rows": rows, "keys": keys, **kind}
                                    for _, rows, keys, kind in tiles], tile_gaps, result.times)

    async def code_source(ctx):
        await drive(ctx, dut.code, [word for code, *_ in tiles
                                    for word in code_words(code, params)], code_gaps)

    async def watch(ctx):
        used, marks, spare, between = 0, 0, 4, True
        while spare:
            *_, o, mark, valid, marked, idle, low, high, end = await ctx.tick().sample(
                dut.o.as_value(), dut.mark.as_value(), dut.o.valid, dut.mark.valid, dut.idle,
                dut.lp_block, dut.hp_block, dut.mark.end)
            result.cycles.append((o if valid else None, mark if marked else None))
            result.idle.append(idle)
            assert not (idle and (valid or marked))
            result.pulses[0] += low
            result.pulses[1] += high
            assert not (low or high) or (valid and marked)
            marks += marked
            # A slot is in use from the first word of a block row to when it is given back.
            begun = (valid or marked) and between
            if valid or marked:
                between = marked and end
            used += begun
            assert used <= SLOTS
            result.in_use.append(used)
            back = bool(begun if slots_back is None else used and next(slots_back))
            used -= back
            ctx.set(dut.slot_free, int(back))
            spare -= idle and marks == expected_marks and len(result.times) == len(tiles)

    simulate(dut, tile_source, code_source, watch, cycles=400_000)
    return result


def check(params, tiles, result):
    """The words in their order, and the pulses."""
    want = [pair for words in wanted(params, tiles) for pair in words if pair != (None, None)]
    got = [pair for pair in result.cycles if pair != (None, None)]
    assert got == want
    work = [block for code, rows, keys, kind in tiles
            for block in blocks(code, rows, keys, params, **kind) if block.key_block is not None]
    assert result.pulses == [sum(not block.hp for block in work), sum(block.hp for block in work)]


def real_tiles(params):
    """Tiles of the emoji transformer, coded as the engine codes them."""
    cropped = [real.crop(params.tile_q, params.tile_k, 1) for real in load_tiles()[::2]]
    return [tile(mask_encoder.encode(*real.masks, BlockThresholds(), params), params.tile_q,
                 params.tile_k, refresh=index == 2) for index, real in enumerate(cropped)]


# The model

def test_model_walks_the_blocks_of_the_masks(params):
    """A block is worked on if, and as, the decoded masks have an element in it."""
    for code, rows, keys, kind in mixed_tiles(params, 1, 40) + corner_tiles(params):
        if kind["dense"]:
            hp = (np.arange(params.tile_q)[:, None] < rows) & (np.arange(params.tile_k) < keys)
            lp = np.zeros_like(hp)
        else:
            hp, lp = mask_decoder.decode(code, kind["refresh"], rows, keys, params)
        shape = params.row_blocks, 4, params.key_blocks, 8
        hp, lp = (mask.reshape(shape).any((1, 3)) for mask in (hp, lp))
        assert not (hp & lp).any()
        want = []
        for row in range((rows + 3) // 4):
            found = np.flatnonzero(hp[row] | lp[row]).tolist()
            want += [Block(row, key, bool(hp[row, key]), key == found[-1])
                     for key in found] or [Block(row, None, False, True)]
        assert [*blocks(code, rows, keys, params, **kind)] == want


def test_model_in_full():
    """A block of each precision: every cycle, by hand."""
    params = AptParams(lanes=8, multipliers=16, head_dim=16, tile_q=8, tile_k=16)
    words = [*issue([0, 2, 3, 0], 8, 16, params)]
    passes = [(0, 0), (1, 0), (0, 1), (1, 1)]
    want = []
    for step in (0, 1):
        want += [(None, None), (None, None),
                 ((0, 1, step, 0, 0, 0, 1, 0, 0, 1), None),
                 ((0, 1, step, 1, 0, 0, 0, 0, 1, 1), (0, 1, step, step, 0))]
    for step in (0, 1):
        for k_lsb, q_lsb in passes:
            want.append(((1, 0, step, 0, k_lsb, q_lsb, int(k_lsb == q_lsb == 0), k_lsb, 0, 0),
                         None))
            last = k_lsb & q_lsb
            want.append(((1, 0, step, 1, k_lsb, q_lsb, 0, 0, last, 0),
                         (1, 0, step, step, 0) if last else None))
    assert words == want
    assert [*issue([0, 0, 0, 0], 5, 16, params)] == [(None, (0, 0, 0, 1, 1)),
                                                      (None, (1, 0, 0, 1, 1))]


def test_model_leaves_room_to_read_sums(params):
    """Between two marks of sums there are ``step_keys`` cycles, whatever came before."""
    for code, rows, keys, kind in mixed_tiles(params, 2):
        words = [*issue(code, rows, keys, params, **kind)]
        after, free = 0, 0
        for cycle, (_, mark) in enumerate(words):
            if mark is None:
                continue
            cost = 1 if mark.none else params.step_keys
            # Words queue for the read-out; sums never do.
            assert mark.none or free <= cycle
            free = max(free, cycle) + cost
            assert free - cycle <= 2 * params.step_keys
            assert cycle + 1 - after >= cost
            after = cycle + 1


# The RTL

def exact(params, tiles, result):
    """No idle cycle but the model's from a tile's first word to its last, and each tile starts
    ``latency`` cycles after it is taken."""
    cycles, idle, _, times, _ = result
    latency = BlockSequencer(params).latency
    for start, words in zip(times, wanted(params, tiles), strict=True):
        # `times` counts edges: the transfer was in cycle `start - 1`.
        begin = start - 1 + latency
        assert cycles[start:begin] == [(None, None)] * (latency - 1)
        assert cycles[begin:begin + len(words)] == words
        if words:
            assert not any(idle[start:begin + len(words)])
            assert idle[begin + len(words)] or len(words) < params.row_blocks - 1
    for (start, after), words in zip(pairwise(times), wanted(params, tiles), strict=False):
        # The next tile is taken in the first cycle of `idle`; the code of block rows beyond the
        # tile takes a cycle each.
        assert after - start <= max(latency + len(words), params.row_blocks + 3)


def test_rtl_matches_model_cycle_by_cycle(params):
    tiles = corner_tiles(params) + mixed_tiles(params, 3, 4 if params.tile_k > 256 else 8)
    result = run(params, tiles)
    check(params, tiles, result)
    exact(params, tiles, result)


def test_real_masks():
    params = AptParams()
    tiles = real_tiles(params)
    result = run(params, tiles)
    check(params, tiles, result)
    exact(params, tiles, result)
    # Without a bubble: cycles of work are those of blocks, and of block rows without any.
    (low, high), empty = result.pulses, sum(o is None and mark is not None
                                            for o, mark in result.cycles)
    needed = empty + params.qk_chunks * (low + 4 * high)
    assert sum(len(words) for words in wanted(params, tiles)) == needed
    assert low and high
    busy = sum(o is not None for o, _ in result.cycles)
    first, *_, last = (cycle for cycle, pair in enumerate(result.cycles) if pair != (None, None))
    # Between tiles: as many idle cycles as the first word takes.
    latency = BlockSequencer(params).latency
    assert last + 1 - first - needed == latency * (len(tiles) - 1)
    assert busy == needed - empty


def test_code_beyond_the_tile_is_taken_meanwhile():
    params = AptParams(tile_q=128, tile_k=24)
    code = np.full(params.flags, 3)
    code[2:6] = 2, 0, 0, 2
    tiles = [tile(code, 8, 24)] * 3
    result = run(params, tiles)
    check(params, tiles, result)
    exact(params, tiles, result)
    assert len(wanted(params, tiles)[0]) == 32 + 32 + 8 + 8
    assert np.diff(result.times).tolist() == [80 + BlockSequencer(params).latency] * 2


@pytest.mark.parametrize("name", SMALL)
def test_slots_withheld(name):
    params = PARAMS[name]
    tiles = mixed_tiles(params, 4, 5) + corner_tiles(params)
    result = run(params, tiles, slots_back=coin(0.02, 5))
    check(params, tiles, result)
    assert max(result.in_use) == SLOTS or params.row_blocks == 1
    check(params, tiles, run(params, tiles, slots_back=coin(0.2, 7), code_gaps=coin(0.8, 8),
                             tile_gaps=coin(0.9, 9)))


def test_no_slot_no_block_row():
    """Four block rows, empty or not, and no more, the fourth to its end; then one for each pulse,
    at once."""
    params = AptParams(lanes=4, head_dim=16, tile_q=32, tile_k=16)
    code = np.zeros(params.flags, int)
    code[2], code[6:8] = 2, (2, 1)
    dut = BlockSequencer(params)
    rows = []

    async def source(ctx):
        await drive(ctx, dut.tile, [{"rows": 32, "keys": 16}])

    async def code_source(ctx):
        await drive(ctx, dut.code, code_words(code, params))

    async def watch(ctx):
        async def cycles(count):
            for _ in range(count):
                *_, mark = await ctx.tick().sample(dut.mark)
                if mark.valid and mark.end:
                    rows.append(mark.row_block)
        await cycles(120)
        assert rows == [0, 1, 2, 3]
        for row in range(4, 8):
            assert not ctx.get(dut.idle)
            ctx.set(dut.slot_free, 1)
            await cycles(1)
            ctx.set(dut.slot_free, 0)
            await cycles(2)
            assert rows[-1] == row - 1
            await cycles(1)
            assert rows[-1] == row
        await cycles(1)
        assert ctx.get(dut.idle)

    simulate(dut, source, code_source, watch)


@pytest.mark.parametrize("name", ["4_lanes", "16_lanes_dim_16"])
def test_reset_in_mid_tile(name):
    """After a reset the sequencer is as new, wherever it was, slots included."""
    params = PARAMS[name]
    code = random_code(params, np.random.default_rng(10), 0.3)
    dut, reset = BlockSequencer(params), Signal()
    want = [(None, None)] * dut.latency
    want += wanted(params, [tile(code, params.tile_q, params.tile_k)])[0]

    async def testbench(ctx):
        for abort in (1, 2, 3, 4, 5, 6, 7, 9, 14, 23, 37, len(want) - 1, len(want)):
            ctx.set(dut.tile.p, {"rows": params.tile_q, "keys": params.tile_k})
            ctx.set(dut.tile.valid, 1)
            ctx.set(dut.code.valid, 1)
            left = [*code_words(code, params), 0]
            for expected in want[:abort]:
                ctx.set(dut.code.payload, left[0])
                *_, ready, valid, marked, o, mark = await ctx.tick().sample(
                    dut.code.ready, dut.o.valid, dut.mark.valid, dut.o.as_value(),
                    dut.mark.as_value())
                ctx.set(dut.tile.valid, 0)
                del left[:ready]
                assert (o if valid else None, mark if marked else None) == expected
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.code.valid, 0)
            assert ctx.get(dut.idle)
            for _ in range(3):
                *_, valid, marked, ready = await ctx.tick().sample(dut.o.valid, dut.mark.valid,
                                                                   dut.code.ready)
                assert not (valid or marked or ready)

    simulate(ResetInserter(reset)(dut), testbench)


def test_properties(params):
    dut = BlockSequencer(params)
    assert dut.params is params and dut.latency == 6 and BlockScan(params).latency == 3
    code = np.zeros(params.flags, int)
    code[0] = 1
    low, high = (len([*issue(pairs, 1, 8, params)]) for pairs in (2 * code, code))
    assert dut.throughput == (f"{low} cycles a block of low precision, {high} of high, "
                              "1 an empty block row")
    assert BlockScan(params).throughput == "a block, or a block row without blocks, a cycle"


@pytest.mark.parametrize("component", [BlockSequencer, BlockScan])
def test_other_dataflows_are_refused(component):
    with pytest.raises(ValueError, match=r"^AptParams\.codec must be block, not 'rowcol'$"):
        component(AptParams(codec="rowcol"))
    with pytest.raises(ValueError, match=r"^AptParams\.lanes must be "):
        component(AptParams(lanes=2))
