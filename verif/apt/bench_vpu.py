"""Bench of ``vpu``: real tiles, random ones and corner cases, several back to back."""

import cocotb

from verif.apt import softmax_tiles as stimulus
from verif.common.bench import FLOWS, Bench


def send(bench, tiles):
    """Queue tiles; returns the words to expect on ``p`` and on ``rows``."""
    params = bench.params
    bench.send("tile", [{"rows": tile.rows, "keys": tile.keys} for tile in tiles])
    words = [word for tile in tiles for word in stimulus.logit_words(tile, bench.rng)]
    bench.send("z", words)
    return ([word for tile in tiles for word in stimulus.probability_words(tile, params)],
            [word for tile in tiles for word in stimulus.row_words(tile)], len(words))


async def count_slots(bench, free):
    """Count slots given back."""
    while True:
        await bench.cycles(1)
        free[0] += int(bench.dut.slot_free.value)


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    free = [0]
    cocotb.start_soon(count_slots(bench, free))
    real = stimulus.real_tiles(bench.params, [3])
    p, rows, first = send(bench, real)
    # More of them where a tile has but a few words.
    count = max(4, 40 // (bench.params.row_blocks * bench.params.key_blocks))
    tiles = [stimulus.random_tile(bench.params, bench.rng) for _ in range(count)]
    more = send(bench, tiles + stimulus.corner_tiles(bench.params, bench.rng))
    p, rows, words = p + more[0], rows + more[1], first + more[2]
    await bench.check("p", p, limit=20 * max(len(p), words), distinct=16)
    await bench.check("rows", rows, limit=20 * len(rows) + 100, distinct=5)
    assert free[0] == len(rows), f"{free[0]} slots given back by {len(rows)} block rows"
    if flow == "full_speed" and bench.params.slice_keys > 1:
        # Empty block rows one after the other wait for slots: not those of real tiles.
        times = bench.agents["z"].times
        assert times[first - 1] - times[0] == first - 1, "logits had to wait"


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    for cycles in (5, 29, 60, 111):
        send(bench, stimulus.corner_tiles(bench.params, bench.rng)[::-1])
        await bench.cycles(cycles)
        await bench.reset()
    tiles = [stimulus.random_tile(bench.params, bench.rng) for _ in range(3)]
    p, rows, words = send(bench, tiles)
    await bench.check("p", p, limit=20 * max(len(p), words) + 500, distinct=1)
    await bench.check("rows", rows, limit=20 * len(rows) + 100, distinct=1)
