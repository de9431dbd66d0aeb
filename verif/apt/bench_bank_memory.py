"""Bench of ``bank_memory``: what was written comes back, segment by segment and bank by bank."""

import cocotb

from golden.apt.dp_mac import split
from golden.dit.tiles import load_tiles
from verif.common.bench import FLOWS, Bench


def contents(bench):
    """A key tile of the real DiT as segments ``[segment][key][chunk][word]``, keys repeated."""
    p = bench.params
    tile = load_tiles()[0]
    mask = (1 << p.segment_bits) - 1
    words = {}
    for key in range(p.slots * p.lanes):
        codes = tile.k[key % len(tile.k)].astype(int)
        for dim in range(p.chunks * p.multipliers):
            code = int(codes[dim % len(codes)]) if dim < p.head_dim else 0
            words[key, dim] = max(-p.qmax, min(p.qmax, code >> (16 - p.word_bits)))
    msb, lsb = split([[words[key, dim] for dim in range(p.chunks * p.multipliers)]
                      for key in range(p.slots * p.lanes)], p)
    return [segments & mask for segments in (msb, lsb)]


def request(p, chunk, lsb, slots):
    return {"chunk": chunk, "lsb": lsb,
            "banks": [{"enable": int(slot is not None), "slot": slot or 0} for slot in slots]}


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def reads_back_what_was_written(dut, flow):
    bench = Bench(dut, flow)
    await bench.start()
    p, stored = bench.params, contents(bench)

    async def fill():
        for key in range(p.slots * p.lanes):
            for chunk in range(p.chunks):
                for lsb in (0, 1):
                    words = stored[lsb][key][chunk * p.multipliers:(chunk + 1) * p.multipliers]
                    bench.send("write", [{"bank": key % p.lanes, "slot": key // p.lanes,
                                          "chunk": chunk, "lsb": lsb, "words": words.tolist()}])
        while bench.agents["write"].pending:
            await bench.cycles(1)

    def reads(count):
        requests, expected = [], []
        for _ in range(count):
            chunk, lsb = int(bench.rng.integers(p.chunks)), int(bench.rng.integers(2))
            slots = [int(bench.rng.integers(p.slots)) if bench.rng.random() < 0.8 else None
                     for _ in range(p.lanes)]
            requests.append(request(p, chunk, lsb, slots))
            expected.append([
                [0] * p.multipliers if slot is None else
                stored[lsb][slot * p.lanes + bank]
                [chunk * p.multipliers:(chunk + 1) * p.multipliers].tolist()
                for bank, slot in enumerate(slots)])
        return requests, expected

    await fill()
    requests, expected = reads(300)
    bench.send("read", requests)
    await bench.check("o", expected, limit=300 * 20, distinct=100)

    # A reset in mid-operation drops the reads under way; the contents stay.
    requests, _ = reads(20)
    bench.send("read", requests)
    await bench.cycles(7)
    await bench.reset()
    requests, expected = reads(100)
    bench.send("read", requests)
    await bench.check("o", expected, limit=100 * 20, distinct=30)
