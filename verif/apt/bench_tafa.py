"""Bench of ``tafa``: rows of the committed tiles at a second step, random ones and corners."""

import cocotb

from verif.apt.row_vectors import real_query_tiles, some_query_tile, tafa_payloads
from verif.common.bench import FLOWS, Bench


def some_tiles(bench, count):
    """Query tiles, some of fewer rows, of one to three key tiles."""
    rows = bench.params.tile_q
    return [some_query_tile(bench.params, bench.rng, max(1, rows - number % 2 * 3),
                            int(bench.rng.integers(1, 4))) for number in range(count)]


async def taken(bench):
    """Return once both inputs have nothing more to send."""
    while bench.agents["i"].pending or bench.agents["row_i"].pending:
        await bench.cycles(1)


async def send(bench, tiles):
    """Feed query tiles, each one's whole rows among the next one's rows; returns what to expect."""
    expected = {"o": [], "row_o": []}
    whole = []
    for tile in tiles:
        payloads = tafa_payloads(tile, bench.params)
        for name, words in expected.items():
            words += payloads[name]
        bench.send("row_i", whole)
        bench.send("i", payloads["i"])
        await taken(bench)
        whole = payloads["row_i"]
    bench.send("row_i", whole)
    return expected


async def check(bench, tiles, distinct):
    expected = await send(bench, tiles)
    limit = 60 * len(expected["o"])
    await bench.check("o", expected["o"], limit=limit, distinct=distinct)
    await bench.check("row_o", expected["row_o"], limit=limit, distinct=3)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    real = real_query_tiles(bench.params, 1)
    count = len(real) if flow == "full_speed" else 2
    await check(bench, real[:count] + some_tiles(bench, 4), 32)
    if flow == "full_speed":
        # The first query tile has no whole rows among its own.
        times = bench.agents["i"].times[:real[0].maximum.size]
        assert times[-1] - times[0] == 11 * (len(times) - 1), "rows had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "starved")
    await bench.start()
    # In every step of a row's work, before its half of the references is turned to and after, and
    # among whole rows. What is dropped began another half than what follows.
    for cycles in (1, 3, 4, 5, 7, 9, 11, 13, 20):
        payloads = [tafa_payloads(tile, bench.params) for tile in some_tiles(bench, 1)]
        bench.send("i", payloads[0]["i"])
        await bench.cycles(cycles)
        await bench.reset()
        await check(bench, some_tiles(bench, 2), 4)
        payloads = tafa_payloads(some_tiles(bench, 1)[0], bench.params)
        bench.send("row_i", payloads["row_i"])
        await bench.cycles(cycles)
        await bench.reset()
