"""The array: memories, owners and marks, against plain products of what was loaded."""

import numpy as np
import pytest

from golden.apt.dp_mac import split
from golden.apt.params import AptParams
from golden.apt.quad_shape import OWNERS
from rtl.apt.panel_port import k_address, kv_part_bits, kv_parts, q_address, v_address
from rtl.apt.quad import Quad
from rtl.apt.quad_array import QuadArray
from tests.sim import simulate


SHAPES = [
    AptParams(lanes=4, multipliers=2, head_dim=6, tile_q=8, tile_k=16, beat_bytes=1),
    AptParams(lanes=8, multipliers=6, head_dim=20, tile_q=8, tile_k=24, beat_bytes=3),
    AptParams(lanes=16, multipliers=4, head_dim=18, tile_q=12, tile_k=16),
    AptParams(lanes=16, multipliers=18, head_dim=72, tile_q=8, tile_k=24, beat_bytes=8),
]


def ids(params):
    return f"{params.lanes}x{params.multipliers}of{params.head_dim}in{params.beat_bytes}"


def number(layout, fields):
    """An address as the number that it is."""
    return layout.const(fields).as_bits()


def bits_of(values, width):
    return sum((int(value) & (1 << width) - 1) << index * width
               for index, value in enumerate(values))


class Contents:
    """Tiles of Q, K and V for both buffers, and the writes that load them."""

    def __init__(self, params, seed):
        rng = np.random.default_rng(seed)
        self.params = params

        def words(rows):
            return rng.integers(-params.qmax, params.qmax + 1, (2, rows, params.head_dim))
        self.q, self.k, self.v = words(params.tile_q), words(params.tile_k), words(params.tile_k)
        most = max(params.pv_width * params.column_passes, params.qk_width * params.qk_chunks)
        self.segments = {name: [split(np.pad(tile, ((0, 0), (0, most - params.head_dim))), params)
                                for tile in getattr(self, name)] for name in "qkv"}

    def kv_writes(self):
        p, of = self.params, self.segments
        for buffer in range(2):
            for lsb in range(2):
                for key_block in range(p.key_blocks):
                    for step in range(p.block_steps):
                        for chunk in range(p.qk_chunks):
                            first = key_block * 8 + step * p.step_keys
                            word = of["k"][buffer][lsb][first:first + p.step_keys,
                                                        chunk * p.qk_width:][:, :p.qk_width]
                            yield 0, number(k_address(p), {
                                "chunk": chunk, "step": step, "lsb": lsb,
                                "key_block": key_block, "buffer": buffer}), word
                for key in range(p.tile_k):
                    for pass_ in range(p.column_passes):
                        word = of["v"][buffer][lsb][key, pass_ * p.pv_width:][:p.pv_width]
                        yield 1, number(v_address(p), {
                            "pass_": pass_, "lsb": lsb, "key": key, "buffer": buffer}), word

    def q_writes(self):
        p = self.params
        for buffer in range(2):
            for lsb in range(2):
                for row_block in range(p.row_blocks):
                    for chunk in range(p.qk_chunks):
                        rows = self.segments["q"][buffer][lsb][4 * row_block:4 * row_block + 4]
                        yield ({"chunk": chunk, "lsb": lsb, "row_block": row_block,
                                "buffer": buffer},
                               rows[:, chunk * p.qk_width:][:, :p.qk_width].tolist())


async def fill(ctx, dut, contents):
    p = contents.params
    for v, word, values in contents.kv_writes():
        bits = bits_of(np.ravel(values), p.segment_bits)
        for part in range(kv_parts(p)):
            ctx.set(dut.kv_write, {
                "valid": 1, "address": {"word": word, "v": v}, "part": part,
                "data": bits >> part * kv_part_bits(p) & (1 << kv_part_bits(p)) - 1})
            await ctx.tick()
    ctx.set(dut.kv_write.valid, 0)
    for address, values in contents.q_writes():
        ctx.set(dut.q_write, {"valid": 1, "address": address, "data": values})
        await ctx.tick()
    ctx.set(dut.q_write.valid, 0)
    await ctx.tick()


def qk_steps(contents, rng):
    """Cycles of a step of a block in either precision, and the sums of its owners and keys."""
    p = contents.params
    buffers = {name: int(rng.integers(2)) for name in "kq"}
    row_block, key_block, step, hp = (int(rng.integers(n)) for n in (
        p.row_blocks, p.key_blocks, p.block_steps, 2))
    cycles = []
    for index, (of_q, of_k) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1)) if hp else ((0, 0),)):
        for chunk in range(p.qk_chunks):
            cycles.append({
                "valid": 1,
                "k": {"key_block": key_block, "lsb": of_k, "step": step, "chunk": chunk},
                "q": {"row_block": row_block, "lsb": of_q, "chunk": chunk},
                "first": int(not cycles), "shift": int(index in (1, 3) and chunk == 0),
                "last": 0, "low": int(not hp)})
    cycles[-1]["last"] = 1
    q = contents.q[buffers["q"]][4 * row_block:4 * row_block + 4]
    first = key_block * 8 + step * p.step_keys
    k = contents.k[buffers["k"]][first:first + p.step_keys]
    if not hp:
        q, k = (split(x, p)[0] << p.segment_bits for x in (q, k))
    mark = {"valid": 1, "row_block": row_block, "key_block": key_block, "step": step,
            "end": int(rng.integers(2)), "none": 0}
    return buffers, cycles, mark, (q @ k.T).reshape(OWNERS, p.owner_lanes, 2).tolist()


def pv_steps(contents, rng):
    """Cycles of a run of every owner, equally long, and the sums of their columns."""
    p = contents.params
    n, pass_, buffer = int(rng.integers(1, 6)), int(rng.integers(p.column_passes)), int(
        rng.integers(2))
    half = 1 << p.segment_bits - 1
    probabilities = rng.integers(-half, half, (OWNERS, n))
    keys, lsb = rng.integers(0, p.tile_k, (OWNERS, n)), rng.integers(0, 2, (OWNERS, n))
    tag = {"buffer": buffer, "row_block": int(rng.integers(p.row_blocks)), "pass_": pass_,
           "shift": int(rng.integers(3)), "row_first": int(rng.integers(2)),
           "row_last": int(rng.integers(2))}
    cycles = [[({"valid": 1, "key": int(keys[owner, k]), "lsb": int(lsb[owner, k]),
                 "pass_": pass_},
                {"valid": 1, "p": int(probabilities[owner, k]), "first": int(k == 0),
                 "last": int(k == n - 1), "tag": tag}) for owner in range(OWNERS)]
              for k in range(n)]
    sums = []
    for owner in range(OWNERS):
        v = np.stack([contents.segments["v"][buffer][low][key, pass_ * p.pv_width:][:p.pv_width]
                      for key, low in zip(keys[owner], lsb[owner], strict=True)])
        sums.append((probabilities[owner] @ v).reshape(p.owner_lanes, -1).tolist())
    return cycles, tag, sums


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_qk_and_pv_without_a_gap(params):
    rng = np.random.default_rng(3)
    contents, dut = Contents(params, 4), QuadArray(params)
    timeline, sums, runs = [], {}, {}
    run_latency = 1 + Quad(params).run_latency
    # No step is shorter than the read-out of what it follows.
    for operation in range(30):
        if operation % 3 == 2:
            cycles, tag, wanted = pv_steps(contents, rng)
            timeline += [{"pv": cycle} for cycle in cycles]
            runs[len(timeline) - 1 + run_latency] = tag, wanted
        else:
            buffers, cycles, mark, wanted = qk_steps(contents, rng)
            timeline += [{"qk": cycle, **buffers} for cycle in cycles]
            timeline[-1]["mark"] = mark
            sums[len(timeline) - 1 + dut.latency] = mark, buffers["k"], wanted
    seen_sums, seen_runs = {}, {}

    async def testbench(ctx):
        await fill(ctx, dut, contents)
        for cycle in range(len(timeline) + dut.latency + 2):
            if ctx.get(dut.sums_mark.valid):
                mark = {name: int(ctx.get(getattr(dut.sums_mark, name)))
                        for name in ("valid", "row_block", "key_block", "step", "end", "none")}
                seen_sums[cycle] = mark, ctx.get(dut.sums_buffer), [
                    [list(lane) for lane in owner] for owner in ctx.get(dut.sums)]
            if ctx.get(dut.run[0].valid):
                tag = ctx.get(dut.run[0].tag)
                assert all(ctx.get(dut.run[owner].tag) == tag for owner in range(OWNERS))
                seen_runs[cycle] = {name: tag[name] for name in runs_tag}, [
                    [list(lane) for lane in ctx.get(dut.run[owner].sums)]
                    for owner in range(OWNERS)]
            now = timeline[cycle] if cycle < len(timeline) else {}
            ctx.set(dut.qk, now.get("qk", {"valid": 0}))
            ctx.set(dut.mark, now.get("mark", {"valid": 0}))
            ctx.set(dut.k_buffer, now.get("k", 0))
            ctx.set(dut.q_buffer, now.get("q", 0))
            for owner in range(OWNERS):
                v, c = now["pv"][owner] if "pv" in now else ({"valid": 0}, {"valid": 0})
                ctx.set(dut.v[owner], v)
                ctx.set(dut.c[owner], c)
            await ctx.tick()

    runs_tag = ("buffer", "row_block", "pass_", "shift", "row_first", "row_last")
    simulate(dut, testbench)
    assert seen_sums == sums
    assert seen_runs == runs


@pytest.mark.parametrize(("beat_bytes", "lanes", "multipliers", "parts"), [
    (16, 16, 16, 3), (8, 16, 16, 6), (64, 16, 16, 1), (16, 16, 18, 3), (16, 4, 4, 1),
    (1, 4, 2, 2), (3, 8, 6, 3)])
def test_parts_take_a_beat_a_cycle(beat_bytes, lanes, multipliers, parts):
    params = AptParams(lanes=lanes, multipliers=multipliers, beat_bytes=beat_bytes)
    bits = params.pv_width * params.segment_bits
    assert kv_parts(params) == parts
    assert kv_parts(params) * kv_part_bits(params) == bits + -bits % 8
    assert kv_parts(params) == 1 or kv_part_bits(params) >= params.beat_bits


def test_addresses_of_k_and_v_fill_no_more_than_they_need():
    params = AptParams()
    assert k_address(params).size == v_address(params).size == 9
    assert q_address(params).size == 9


def test_what_it_states():
    dut = QuadArray(AptParams())
    assert dut.latency == 3 + 9
    assert dut.throughput == "a word of K and Q, or a word of V for each owner, a cycle"
    with pytest.raises(ValueError, match=r"^AptParams\.split must be balanced, not 'truncate'$"):
        QuadArray(AptParams(split="truncate"))
