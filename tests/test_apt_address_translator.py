"""Address translator: model against a greedy reference, RTL against the model, latency, errors."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

from golden.apt.address_translator import lines, schedule, transfer_cycles, utilisation
from golden.apt.params import AptParams
from golden.apt.placement import (
    balanced_tables,
    correlated_tables,
    modulo_tables,
    placement_tables,
    table_beats,
)
from rtl.apt.address_translator import AddressTranslator, att_line
from rtl.apt.mask_gather import MaskGather
from tests.sim import FLOWS, drive, run_streams, simulate
from verif.apt.att import (
    SlotGaps,
    corner_tiles,
    line_payloads,
    random_tables,
    random_tiles,
    table_payloads,
    word_payloads,
)


def make(lanes, tile_q, tile_k, placement="modulo", **fields):
    fields = {"block_rows": 1, "block_cols": 1, "window_qk": 1, "window_pv": 1, "head_dim": 7,
              "multipliers": 3, **fields}
    return AptParams(lanes=lanes, tile_q=tile_q, tile_k=tile_k, placement=placement, **fields)


#: (parameters, window): lanes and windows on and off powers of two, tails, one slot a bank.
CASES = [
    (make(3, 7, 10), 1),
    (make(3, 7, 10, "balanced"), 2),
    (make(4, 6, 16), 3),
    (make(5, 9, 23, "correlated"), 4),
    (make(4, 4, 4, "balanced"), 1),
    (make(2, 5, 13), 5),
    (make(7, 3, 17, "correlated"), 3),
    (make(2, 16, 33, "balanced"), 6),
]


def ids(value):
    if isinstance(value, AptParams):
        return f"{value.lanes}x{value.tile_q}x{value.tile_k}-{value.placement}"
    return str(value)


def greedy_lines(mask, table, lanes, window, skew):
    """Pop by pop: each bank offers its oldest element; who may pop is looked up in what is left.

    Independent of the model: no line numbers, only queues. An element may pop if its row is less
    than ``window`` after the oldest row left and its bank is not more than ``skew`` lines ahead
    when the row begins, which the model states as a bound on ``start``; so only schedules that
    the skew does not touch are compared.
    """
    assert skew is None
    queues = [[] for _ in range(lanes)]
    for row in range(mask.shape[0]):
        for position, key in enumerate(table):
            if mask[row, key]:
                queues[position % lanes].append((row, position // lanes))
    result = []
    while any(queues):
        oldest = min(queue[0][0] for queue in queues if queue)
        line = [queue[0] if queue and queue[0][0] < oldest + window else None
                for queue in queues]
        for queue, popped in zip(queues, line, strict=True):
            if popped is not None:
                queue.pop(0)
        result.append((oldest, line))
    return result or [(mask.shape[0] - 1, [None] * lanes)]


def unbounded(monkeypatch):
    monkeypatch.setattr(AptParams, "att_skew", lambda self, window: 10**6)


@pytest.mark.parametrize("params, window", CASES, ids=ids)
def test_model_matches_greedy_queues(params, window, monkeypatch):
    unbounded(monkeypatch)
    rng = np.random.default_rng(1)
    masks = np.concatenate([corner_tiles(params), random_tiles(params, 25, rng)])
    tables = random_tables(params, len(masks), rng)
    att = lines(masks, params, window, tables)
    want = [(tile, oldest, line) for tile, (mask, table) in enumerate(
        zip(masks, tables.tolist(), strict=True))
        for oldest, line in greedy_lines(mask, table, params.lanes, window, None)]
    assert len(want) == len(att.tile)
    for index, (tile, oldest, line) in enumerate(want):
        got = [(row, slot) if valid else None for valid, row, slot in zip(
            att.valid[index], att.row[index], att.slot[index], strict=True)]
        assert (att.tile[index], att.base[index], got) == (tile, oldest, line), index
    last = np.flatnonzero(np.diff([*att.tile, -1]))
    assert (np.flatnonzero(att.last) == last).all()


@pytest.mark.parametrize("params, window", CASES, ids=ids)
def test_every_element_once_within_the_window(params, window):
    """Of the schedule with its skew: what the unbounded greedy queues cannot show."""
    rng = np.random.default_rng(2)
    masks = np.concatenate([corner_tiles(params), random_tiles(params, 25, rng)])
    tables = random_tables(params, len(masks), rng)
    att = lines(masks, params, window, tables)
    line, bank = np.nonzero(att.valid)
    position = att.slot[line, bank] * params.lanes + bank
    seen = np.zeros(masks.shape, int)
    np.add.at(seen, (att.tile[line], att.row[line, bank], tables[att.tile[line], position]), 1)
    assert (seen == masks).all()
    assert (att.row[line, bank] < att.base[line] + window).all()
    for which in range(params.lanes):
        mine = line[bank == which], att.row[:, which], att.slot[:, which]
        key = [(att.tile[i], mine[1][i], mine[2][i]) for i in mine[0]]
        assert key == sorted(key)
    for index in range(len(att.tile)):  # base: the oldest row that is left
        later = (att.tile[line] == att.tile[index]) & (line >= index)
        if later.any():
            assert att.base[index] == att.row[line[later], bank[later]].min()


def test_fifo_depth_holds_any_schedule():
    """The lines open to a row never fill a FIFO, with one to begin and one to pop: no deadlock,
    and no bubble."""
    for lanes, tile_k in itertools.product((2, 3, 16), (16, 23, 128)):
        for window in (1, 2, 3, 4, 8, 64):
            params = make(lanes, 64, tile_k)
            depth, skew = params.att_depth(window), params.att_skew(window)
            assert 0 <= skew <= (window - 1) * params.slots
            assert depth & (depth - 1) == 0 and depth >= skew + params.slots + 2


def stimulus(params, window, count=10, seed=3):
    rng = np.random.default_rng(seed)
    masks = np.concatenate([corner_tiles(params), random_tiles(params, count, rng)])
    tables = random_tables(params, len(masks), rng)
    inputs = {"i": word_payloads(masks, params, rng)}
    if params.placement != "modulo":
        inputs["table"] = table_payloads(tables, params)
    expected = [att_line(params).const(line).as_value().value
                for line in line_payloads(masks, params, window, tables)]
    return masks, tables, inputs, expected


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params, window", CASES[:4], ids=ids)
def test_rtl_matches_model(params, window, flow):
    _, _, inputs, expected = stimulus(params, window)
    received, _ = run_streams(AddressTranslator(params, window), inputs, {"o": len(expected)},
                              flow=flow)
    assert received["o"] == expected
    assert len(set(expected)) > 10


@pytest.mark.parametrize("params, window", CASES[4:], ids=ids)
def test_rtl_matches_model_in_odd_shapes(params, window):
    _, _, inputs, expected = stimulus(params, window, count=4)
    received, _ = run_streams(AddressTranslator(params, window), inputs, {"o": len(expected)},
                              flow="both")
    assert received["o"] == expected


@pytest.mark.parametrize("window", [2, 3])
def test_bank_that_is_idle_for_long(window):
    """One bank has every row, another one element: how far its line is behind saturates."""
    params = make(3, 9, 10)
    key, masks = np.arange(10), np.zeros((9, 9, 10), bool)
    masks[..., key % 3 == 0] = True
    masks[np.arange(9), (3 * np.arange(9) + 4) % 9, 1] = True  # 16, 48 and 12 lines apart
    expected = [att_line(params).const(line).as_value().value
                for line in line_payloads(masks, params, window)]
    received, _ = run_streams(AddressTranslator(params, window),
                              {"i": word_payloads(masks, params)}, {"o": len(expected)})
    assert received["o"] == expected


@pytest.mark.parametrize("slot_cycles", [1, 3])
@pytest.mark.parametrize("params, window", [CASES[0], CASES[3], CASES[4], CASES[5]], ids=ids)
def test_every_line_leaves_in_the_cycle_of_the_model(params, window, slot_cycles):
    masks, tables, inputs, expected = stimulus(params, window)
    want = transfer_cycles(schedule(masks, params, window, tables), slot_cycles)
    dut, layout = AddressTranslator(params, window), att_line(params)
    times, received = {name: [] for name in inputs}, []

    def no_element(bits):
        return not any(bank.valid for bank in layout.from_bits(bits).banks)

    async def sink(ctx):
        gaps = SlotGaps(slot_cycles, lambda: [bits for _, bits in received], no_element)
        cycle = 0
        while len(received) < len(expected):
            ctx.set(dut.o.ready, not next(gaps))
            *_, valid, ready, bits = await ctx.tick().sample(dut.o.valid, dut.o.ready,
                                                             dut.o.payload.as_value())
            cycle += 1
            if valid and ready:
                received.append((cycle, bits))

    def source(name):
        async def testbench(ctx):
            await drive(ctx, getattr(dut, name), inputs[name], None, times[name])
        testbench.__name__ = name
        return testbench

    simulate(dut, sink, *map(source, inputs))
    assert [bits for _, bits in received] == expected
    assert [cycle - times["i"][0] for cycle, _ in received] == want.tolist()


@pytest.mark.parametrize("params, window", [CASES[0], CASES[2], CASES[3], CASES[4]], ids=ids)
def test_latency_and_throughput(params, window):
    """The last line of a tile that holds one element waits for the tile's end and nothing else;
    full masks go through at a word and a line a cycle."""
    dut = AddressTranslator(params, window)
    assert dut.throughput == f"{params.lanes} elements and one line a cycle"
    tables = random_tables(params, 3, np.random.default_rng(4))
    masks = np.zeros((3, params.tile_q, params.tile_k), bool)
    masks[0, 0, 0] = True
    inputs = {"i": word_payloads(masks[:1], params)}
    full = {"i": word_payloads(~masks & True, params)}
    if params.placement != "modulo":
        inputs["table"] = table_payloads(tables[:1], params)
        full["table"] = table_payloads(tables, params)
    _, times = run_streams(dut, inputs, {"o": 1})
    assert times["o"][0] - times["i"][-1] == dut.latency
    full["i"] = word_payloads(np.ones_like(masks), params)
    count = 3 * params.tile_q * params.slots
    _, times = run_streams(AddressTranslator(params, window), full, {"o": count})
    assert np.diff(times["i"]).max() == 1 and np.diff(times["o"]).max() == 1


def test_gather_latency_and_order():
    params = make(3, 4, 10, "balanced")
    rng = np.random.default_rng(5)
    masks = rng.random((2, 4, 10)) < 0.5
    tables = random_tables(params, 2, rng)
    dut = MaskGather(params)
    assert dut.throughput == "3 elements a cycle"
    received, times = run_streams(dut, {"i": word_payloads(masks, params, rng),
                                        "table": table_payloads(tables, params)},
                                  {"o": 2 * 4 * params.slots})
    assert received["o"] == word_payloads(
        np.take_along_axis(masks, tables[:, None, :], axis=2), params)
    assert times["o"][0] - times["i"][params.slots - 1] == dut.latency
    assert np.diff(times["o"]).max() == 1


def test_placement_rules_by_hand():
    """Four keys with 3, 1, 2, 2 elements on two banks."""
    params = make(2, 4, 4)
    mask = np.array([[1, 0, 0, 1], [1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
    assert modulo_tables(mask, params).tolist() == [[0, 1, 2, 3]]
    # By count: 0, 2, 3, 1. Snake: positions 0, 1, then 3, 2.
    assert balanced_tables(mask, params).tolist() == [[0, 2, 1, 3]]
    # 0 to bank 0; 2 shares two rows with it and goes to bank 1; 3 costs 4 + 3 in bank 0 and 2 in
    # bank 1; bank 1 is full then, so 1 goes to bank 0.
    assert correlated_tables(mask, params).tolist() == [[0, 2, 1, 3]]
    spread = np.array([[1, 0, 0, 1], [1, 0, 1, 1], [1, 0, 0, 0], [0, 1, 1, 0]])
    # By count: 0, 2, 3, 1. 2 costs 4 + 3 in bank 0; 3 costs 8 + 3 in bank 0 and 4 + 2 in bank 1.
    assert correlated_tables(spread, params).tolist() == [[0, 2, 1, 3]]
    # 0 has rows 0-4, 1 has 5-7, one to a bank; 2 has rows 0, 5, 6 and costs 4 + 5 in bank 0 but
    # 8 + 3 in bank 1: a row shared counts for four elements more in the bank.
    weighed = np.zeros((8, 4), int)
    weighed[:5, 0] = weighed[5:, 1] = weighed[[0, 5, 6], 2] = weighed[7, 3] = 1
    assert correlated_tables(weighed, make(2, 8, 4)).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("placement", ["modulo", "balanced", "correlated"])
@pytest.mark.parametrize("lanes, tile_k", [(3, 10), (16, 64), (7, 7)])
def test_placements_are_permutations(placement, lanes, tile_k):
    params = make(lanes, 5, tile_k, placement)
    masks = random_tiles(params, 20, np.random.default_rng(6))
    tables = placement_tables(masks, params)
    assert (np.sort(tables, axis=1) == np.arange(tile_k)).all()
    beats = table_beats(tables, params).reshape(20, -1, 2)
    assert (beats[:, :tile_k] @ [lanes, 1] == tables).all()
    # One by one as in a batch.
    assert (np.concatenate([placement_tables(mask, params) for mask in masks]) == tables).all()


def test_equal_columns_keep_their_order():
    params = AptParams(tile_k=128)
    table, = balanced_tables(np.ones((64, 128), bool), params)
    slots = np.arange(128).reshape(8, 16)
    slots[1::2] = slots[1::2, ::-1]
    assert (table == slots.reshape(-1)).all()


def test_placement_raises_utilisation():
    """Columns that all lie on one bank by their number: what the options are for."""
    mask = np.zeros((20, 64, 64), bool)
    mask[..., ::16] = True
    by = {placement: utilisation(mask, AptParams(tile_k=64, placement=placement), window=4)
          for placement in ("modulo", "balanced", "correlated")}
    assert by["modulo"] == pytest.approx(1 / 16, abs=0.005)
    assert by["balanced"] == by["correlated"] == pytest.approx(4 / 16, abs=0.005)


def test_model_is_quick():
    """Tiles in a batch: below a millisecond for a tile of 64 x 64."""
    params = AptParams(tile_k=64)
    masks = np.random.default_rng(7).random((100, 64, 64)) < 0.43
    tables = placement_tables(masks, params)
    best = min(timed(lambda: schedule(masks, params, 4, tables)) for _ in range(3))
    assert best < 0.1


def timed(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@pytest.mark.parametrize("masks, error, message", [
    (np.zeros((4, 4)), TypeError, r"^Value must have an integer dtype, not float64$"),
    (np.full((4, 4), 2), ValueError, r"^Mask must hold 0 and 1, not 2\.\.2$"),
    (np.zeros((4, 5), int), ValueError, r"^Mask must be \[tiles,\] 4 x 4, not \(4, 5\)$"),
])
def test_bad_masks(masks, error, message):
    with pytest.raises(error, match=message):
        lines(masks, make(2, 4, 4))


def test_bad_table_and_params():
    params = make(2, 4, 4)
    with pytest.raises(ValueError, match=r"^Table must be a permutation of 0\.\.3$"):
        table_beats(np.array([0, 1, 1, 3]), params)
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 3$"):
        lines(np.zeros((4, 4), int), 3)
    for component in (AddressTranslator, MaskGather):
        with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 3$"):
            component(3)


@pytest.mark.parametrize("window, error, message", [
    (0, ValueError, r"^Window must be in 1\.\.4, not 0$"),
    (5, ValueError, r"^Window must be in 1\.\.4, not 5$"),
    (True, TypeError, r"^Window must be an integer, not True$"),
    ("2", TypeError, r"^Window must be an integer, not '2'$"),
])
def test_bad_window(window, error, message):
    with pytest.raises(error, match=message):
        AddressTranslator(make(2, 4, 4), window)
    with pytest.raises(error, match=message):
        schedule(np.zeros((4, 4), int), make(2, 4, 4), window)


def test_window_comes_from_the_parameters():
    params = make(2, 4, 4, window_qk=3, window_pv=2)
    assert AddressTranslator(params).window == 3
    assert AddressTranslator(params, params.window_pv).window == 2
    assert AddressTranslator(params).params == dataclasses.replace(params)
