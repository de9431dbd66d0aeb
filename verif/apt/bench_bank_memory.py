"""Bench of ``bank_memory``: what was written comes back, segment by segment and bank by bank."""

import cocotb
import numpy as np

from golden.apt.dp_mac import split
from golden.common.bank_memory import place, read
from golden.dit.tiles import load_tiles
from verif.common.bench import FLOWS, Bench


def contents(params):
    """Keys of a real tile as the banks hold them: ``[msb or lsb, bank, slot, chunk, word]``."""
    keys = load_tiles()[0].k.astype(np.int64)
    keys = np.resize(keys, (params.tile_k, keys.shape[1]))
    keys = np.resize(keys.T, (params.head_dim, params.tile_k)).T
    words = np.clip(keys >> (16 - params.word_bits), -params.qmax, params.qmax)
    mask = (1 << params.segment_bits) - 1
    return np.stack([place(segment, params) for segment in split(words, params)]) & mask


def random_reads(bench, stored, count):
    """Requests of random banks and slots, and what the model returns for each."""
    p, rng = bench.params, bench.rng
    requests, expected = [], []
    for _ in range(count):
        chunk, lsb = int(rng.integers(p.chunks)), int(rng.integers(2))
        slots, enable = rng.integers(0, p.slots, p.lanes), rng.random(p.lanes) < 0.8
        requests.append({"chunk": chunk, "lsb": lsb,
                         "banks": [{"enable": int(on), "slot": int(slot)}
                                   for on, slot in zip(enable, slots, strict=True)]})
        expected.append(read(stored[lsb], chunk, slots, enable).tolist())
    return requests, expected


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def reads_back_what_was_written(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    stored = contents(bench.params)
    bench.send("write", [
        {"bank": bank, "slot": slot, "chunk": chunk, "lsb": lsb,
         "words": stored[lsb, bank, slot, chunk].tolist()}
        for lsb, bank, slot, chunk in np.ndindex(stored.shape[:-1])])
    while bench.agents["write"].pending:
        await bench.cycles(1)
    requests, expected = random_reads(bench, stored, 300)
    bench.send("read", requests)
    await bench.check("o", expected, limit=300 * 20, distinct=100)

    # A reset in mid-operation drops the reads under way; the contents stay.
    requests, _ = random_reads(bench, stored, 20)
    bench.send("read", requests)
    await bench.cycles(7)
    await bench.reset()
    requests, expected = random_reads(bench, stored, 100)
    bench.send("read", requests)
    await bench.check("o", expected, limit=100 * 20, distinct=30)
