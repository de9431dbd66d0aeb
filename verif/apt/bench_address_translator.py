"""Bench of ``address_translator``: real masks in the three placements, random ones and corners."""

import cocotb
import numpy as np

from golden.apt.address_translator import schedule, transfer_cycles
from golden.apt.placement import placement_tables
from golden.dit.tiles import load_tiles
from verif.apt.att import (
    SlotGaps,
    corner_tiles,
    line_payloads,
    random_tables,
    random_tiles,
    table_payloads,
    word_payloads,
)
from verif.common.bench import FLOWS, Bench


def real_tiles(params):
    """Valid elements of the committed tiles in the design's size, and their placement."""
    masks = []
    for tile in load_tiles():
        high, low = tile.crop(params.tile_q, params.tile_k, 1).masks
        masks.append(high | low)
    masks = np.stack(masks)
    assert masks.any() and not masks.all()
    return masks, placement_tables(masks, params)


def hard_tiles(params, rng, count=6):
    """Corners and random tiles, with placements that no rule would make."""
    masks = np.concatenate([corner_tiles(params), random_tiles(params, count, rng)])
    return masks, random_tables(params, len(masks), rng)


def send(bench, masks, tables):
    """Queue tiles; returns the lines to expect."""
    params = bench.params
    bench.send("i", word_payloads(masks, params, bench.rng))
    if params.placement != "modulo":
        bench.send("table", table_payloads(tables, params))
    return line_payloads(masks, params, params.window_qk, tables)


def limit(params, lines):
    """Cycles for a hang to show: words and lines, at the pace of the slowest flow."""
    return 12 * (lines + 40 * params.tile_q * params.slots) + 1000


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    expected = send(bench, *real_tiles(bench.params))
    expected += send(bench, *hard_tiles(bench.params, bench.rng))
    await bench.check("o", expected, limit=limit(bench.params, len(expected)), distinct=32)


@cocotb.test()
@cocotb.parametrize(paced=[False, True])
async def lines_leave_in_the_cycle_of_the_model(dut, paced):
    """Real tiles and corners back to back, into a sink that keeps a line for an issue slot."""
    bench = Bench(dut)
    await bench.start()
    params, sink = bench.params, bench.agents["o"]
    cycles = params.chunks if paced else 1

    def no_element(bits):
        return not any(bank["valid"] for bank in bench.unpack("o", bits)["banks"])

    sink.set_gaps(SlotGaps(cycles, lambda: sink.received, no_element))
    masks, tables = (np.concatenate(pair) for pair in zip(
        real_tiles(params), hard_tiles(params, bench.rng, 3), strict=True))
    expected = send(bench, masks, tables)
    await bench.check("o", expected, limit=cycles * limit(params, len(expected)), distinct=32)
    want = transfer_cycles(schedule(masks, params, params.window_qk, tables), cycles)
    first = bench.agents["i"].times[0]
    got = [time - first for time in sink.times]
    wrong = [index for index, pair in enumerate(zip(got, want.tolist(), strict=True))
             if pair[0] != pair[1]]
    assert not wrong, (f"line {wrong[0]} left in cycle {got[wrong[0]]} instead of "
                       f"{want[wrong[0]]}")


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    """Resets in the middle of a row, of a table and of a full line store."""
    bench = Bench(dut, "stalled")
    await bench.start()
    params = bench.params
    for cycles in (1, params.slots + 5, 2 * params.slots + 9, params.tile_q * params.slots // 2,
                   params.tile_q * params.slots + 7):
        send(bench, *real_tiles(params))
        await bench.cycles(cycles)
        await bench.reset()
    expected = send(bench, *hard_tiles(params, bench.rng, 2))
    await bench.check("o", expected, limit=limit(params, len(expected)), distinct=16)
