"""Bench of ``rescale``: rows of the committed tiles at a second step, random ones and corners."""

import cocotb

from verif.apt.row_vectors import real_query_tiles, rescale_payloads, some_query_tile
from verif.common.bench import FLOWS, Bench


OUTPUTS = ("o", "row_o", "final")


def some_tiles(bench, count):
    """Query tiles, some of fewer rows, of one to four key tiles."""
    rows = bench.params.tile_q
    return [some_query_tile(bench.params, bench.rng, max(1, rows - number % 2 * 3),
                            int(bench.rng.integers(1, 5))) for number in range(count)]


def send(bench, tiles):
    """Queue query tiles; returns what to expect by stream."""
    expected = {name: [] for name in OUTPUTS}
    for tile in tiles:
        payloads = rescale_payloads(tile, bench.params)
        bench.send("i", payloads["i"])
        for name, words in expected.items():
            words += payloads[name]
    return expected


async def check(bench, expected, distinct):
    limit = 90 * len(expected["o"])
    await bench.check("o", expected["o"], limit=limit, distinct=distinct)
    for name in OUTPUTS[1:]:
        await bench.check(name, expected[name], limit=limit, distinct=3)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    real = real_query_tiles(bench.params, 1)
    count = len(real) if flow == "full_speed" else 2
    await check(bench, send(bench, real[:count] + some_tiles(bench, 4)), 32)
    if flow == "full_speed":
        times = bench.agents["i"].times
        rows, key_tiles = real[0].maximum.shape
        before = rows * (key_tiles - 1)
        assert times[before] - times[0] == 13 * before, "rows had to wait"
        assert times[before + rows] - times[before] == 31 * rows, "last rows had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "starved")
    await bench.start()
    # In every step of a row's work, and while squares are taken.
    single = [tile for tile in some_tiles(bench, 30) if tile.maximum.shape[1] == 1]
    for number, cycles in enumerate((2, 4, 6, 9, 11, 12, 14, 15, 17, 20, 25, 29, 31, 33)):
        send(bench, single[number % len(single):])
        await bench.cycles(cycles)
        await bench.reset()
        await check(bench, send(bench, some_tiles(bench, 2)), 4)
        await bench.reset()
