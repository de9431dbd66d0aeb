"""Bench of ``list_builder``: real tiles, random ones and corner cases, several back to back."""

import cocotb
from cocotb.triggers import RisingEdge

from verif.apt import softmax_tiles as stimulus
from verif.common.bench import FLOWS, Bench
from verif.common.payload import unpack


def send(bench, tiles):
    """Queue tiles; returns the words to expect on ``entry``, ``header`` and ``code``."""
    params = bench.params
    bench.send("tile", [{"rows": tile.rows, "keys": tile.keys, "dense": int(tile.dense),
                         **tile.counts._asdict()} for tile in tiles])
    bench.send("p", [word for tile in tiles for word in stimulus.probability_words(
        tile, params, none_p=0xffff)])
    bench.send("thresholds", [word for tile in tiles for word in stimulus.threshold_words(tile)])
    outputs = [stimulus.list_words(tile, params) for tile in tiles]
    return [[word for output in outputs for word in output[index]] for index in range(3)]


class Entries:
    """Watches ``entry``: what is not valid is shown as 0. Nothing stalls it."""

    def __init__(self, bench):
        self._dut = bench.dut
        self._layout = bench.manifest["ports"]["entry"]["shape"]
        rows = self._layout["fields"]["rows"]
        valid = rows["offset"] + rows["element"]["fields"]["valid"]["offset"]
        self._valid = [valid + row * rows["element"]["width"] for row in range(rows["length"])]
        self.words = []
        self.times = []
        cocotb.start_soon(self._run())

    async def _run(self):
        cycle = 0
        while True:
            await RisingEdge(self._dut.clk)
            cycle += 1
            value = self._dut.entry.value
            valid = [value[bit] for bit in self._valid]
            if self._dut.rst.value == 1:
                self.words, self.times = [], []
                continue
            assert all(bit in (0, 1) for bit in valid), f"valid is {valid}"
            if any(bit == 1 for bit in valid):
                # Rows that are not valid may hold anything.
                bits = int("".join(bit if bit in "01" else "0" for bit in str(value)), 2)
                word = unpack(self._layout, bits)
                word["rows"] = [row if row["valid"] else dict.fromkeys(row, 0)
                                for row in word["rows"]]
                self.words.append(word)
                self.times.append(cycle)


async def check(bench, entries, wanted):
    entry, header, code = wanted
    limit = 20 * len(bench.params.row_blocks * header) + 20 * len(entry) + 500
    await bench.check("header", header, limit=limit, distinct=2)
    await bench.check("code", code, limit=limit, distinct=2)
    assert len(set(map(str, entry))) > 8
    for index, (got, want) in enumerate(zip(entries.words, entry, strict=False)):
        assert got == want, f"entry[{index}]: {got} instead of {want}"
    assert len(entries.words) == len(entry), f"{len(entries.words)} entries, not {len(entry)}"
    bench.tally(len(entry))


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    entries = Entries(bench)
    tiles = stimulus.real_tiles(bench.params, [3]) + stimulus.corner_tiles(bench.params, bench.rng)
    await check(bench, entries, send(bench, tiles))


@cocotb.test()
async def starts_clean_after_a_reset(dut):
    bench = Bench(dut, "stalled")
    await bench.start()
    entries = Entries(bench)
    for cycles in (5, 29, 60, 111):
        send(bench, stimulus.corner_tiles(bench.params, bench.rng)[::-1])
        await bench.cycles(cycles)
        await bench.reset()
    tiles = [stimulus.random_tile(bench.params, bench.rng, density=0.9) for _ in range(2)]
    tiles.append(stimulus.random_tile(bench.params, bench.rng, dense=True, rows=4,
                                      keys=bench.params.tile_k))
    await check(bench, entries, send(bench, tiles))
