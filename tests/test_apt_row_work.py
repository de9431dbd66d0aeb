"""Row work: sums and lengths of lists in, thresholds, factors and state out, as the models say."""

import numpy as np
import pytest
from amaranth import Cat

from golden.apt.log2 import log2_fine
from golden.apt.mask_generator import NEVER
from golden.apt.params import AptParams
from golden.apt.quad_shape import OWNERS
from golden.common.checks import ceil_div
from rtl.apt.rescale import Rescale
from rtl.apt.row_work import RowWork
from rtl.apt.tafa import Tafa
from tests.sim import FLOWS, coin, collect, drive, simulate
from verif.apt.row_vectors import (
    QueryTile,
    real_query_tiles,
    rescale_payloads,
    some_query_tile,
    tafa_payloads,
)


SHAPES = [
    AptParams(tile_q=12, tile_k=16, lanes=4, multipliers=4, head_dim=16),
    AptParams(tile_q=20, tile_k=24, state_bits=8, exp2="table"),
]


def ids(params):
    return f"{params.tile_q}x{params.tile_k}s{params.state_bits}"


def query_tiles(params, seed, count=5):
    """Query tiles of any number of rows and key tiles, with state and without."""
    rng = np.random.default_rng(seed)
    sizes = [params.tile_q, params.tile_q - 3, 1, params.tile_q - 8, params.tile_q - 5]
    return [some_query_tile(params, rng, sizes[k % len(sizes)], int(rng.integers(1, 4)))
            for k in range(count)]


def in_fours(values, row_block, fill):
    part = list(values[OWNERS * row_block:OWNERS * (row_block + 1)])
    return [int(x) for x in part] + [fill] * (OWNERS - len(part))


class Vectors:
    """What goes in and what must come out of query tiles, by stream."""

    def __init__(self, params, tiles, seed=0):
        rng = np.random.default_rng(seed)
        self.params, self.tiles = params, []
        self.sums, self.headers = [], []  # by tile
        self.expected = {name: [] for name in ("thresholds", "factor", "final", "state", "rows")}
        for one in tiles:
            self._add(one, rng)

    def _add(self, one, rng):
        params = self.params
        rows, key_tiles = one.maximum.shape
        tafa, rescale = tafa_payloads(one, params), rescale_payloads(one, params)
        outside = NEVER if one.has_state else 1
        for j in range(key_tiles):
            here = slice(j * rows, (j + 1) * rows)
            pairs = [list(word["thresholds"].values()) for word in tafa["o"][here]]
            self.tiles.append({
                "tile": {"rows": rows, "first": int(j == 0), "last": int(j == key_tiles - 1),
                         "has_state": int(one.has_state), "code_prune": one.codes[0],
                         "code_quant": one.codes[1], "shift": one.shift},
                "state": one.words[:, j].tolist() if one.has_state else [],
                "rows": (list(zip(one.c.tolist(), one.reference.tolist(), strict=True))
                         if one.has_state and j == 0 else []),
                "unit_v": int(log2_fine(max(int(one.a_v[j]), 1)))})
            # Of rows outside there is no element.
            blocks = ceil_div(rows, OWNERS)
            self.sums.append([{"row_block": b,
                               "maximum": in_fours(one.maximum[:, j], b, -1 << 15),
                               "total": in_fours(one.total[:, j], b, 0)} for b in range(blocks)])
            n_valid = np.where(one.contributes[:, j], rng.integers(1, params.tile_k + 1, rows), 0)
            n_hp = rng.integers(0, n_valid + 1)
            self.headers.append([{"row_block": b, "n_valid": in_fours(n_valid, b, 0),
                                  "n_hp": in_fours(n_hp, b, 0)}
                                 for b in range(params.row_blocks)])
            for b in range(blocks):
                four = pairs[OWNERS * b:OWNERS * (b + 1)]
                four += [[outside, outside]] * (OWNERS - len(four))
                self.expected["thresholds"].append([{"prune": prune, "quant": quant}
                                                    for prune, quant in four])
            self.expected["factor"] += rescale["o"][here]
            self.expected["state"] += [{"row": word["row"], "s": word["s"]}
                                       for word in tafa["o"][here]]
        self.expected["final"] += rescale["final"]
        self.expected["rows"] += tafa["row_o"]


def run(vectors, flow="full_speed", unit_delay=0):
    """The component fed with ``vectors``; cycles of what came, by stream.

    A tile is announced when the one two before is listed; headers of a block row follow its
    thresholds. Units of V come ``unit_delay`` cycles after their tile.
    """
    dut = RowWork(vectors.params)
    idle, stall = FLOWS[flow]
    received, times = {}, {name: [] for name in (*vectors.expected, "sums", "header", "listed")}
    announced, thresholds = [], []

    def gaps(chance, seed):
        return coin(chance, seed) if chance else None

    async def tiles(ctx):
        state_buffer = rows_buffer = 0
        for number, one in enumerate(vectors.tiles):
            while len(times["listed"]) < number - 1:
                await ctx.tick()
            for name, words, buffer in (("old_state", one["state"], state_buffer),
                                        ("old_rows", one["rows"], rows_buffer)):
                port = getattr(dut, name)
                for row, word in enumerate(words):
                    value = ({"s": word} if name == "old_state"
                             else {"c": word[0], "reference": word[1]})
                    ctx.set(port, {"valid": 1, "buffer": buffer, "row": row, **value})
                    await ctx.tick()
                ctx.set(port.valid, 0)
            state_buffer ^= bool(one["state"])
            rows_buffer ^= bool(one["rows"])
            await drive(ctx, dut.tile, [one["tile"]])
            announced.append(number)

    async def units(ctx):
        for number, one in enumerate(vectors.tiles):
            while len(announced) <= number:
                await ctx.tick()
            await ctx.tick().repeat(unit_delay + 1)
            await drive(ctx, dut.unit_v, [one["unit_v"]])

    async def sums(ctx):
        cycle = []
        for number, words in enumerate(vectors.sums):
            while len(announced) <= number:
                await ctx.tick()
            await drive(ctx, dut.sums, words, gaps(idle, (1, number)), cycle)

    async def headers(ctx):
        done = 0
        for words, sums in zip(vectors.headers, vectors.sums, strict=True):
            for b, word in enumerate(words):
                while b < len(sums) and len(thresholds) <= done + b:
                    await ctx.tick()
                await drive(ctx, dut.header, [word])
            done += len(sums)

    async def take_thresholds(ctx):
        for k in range(len(vectors.expected["thresholds"])):
            thresholds.extend(await collect(ctx, dut.thresholds, 1, gaps(stall, (2, k))))

    def sink(name):
        async def take(ctx):
            received[name] = await collect(ctx, getattr(dut, name), len(vectors.expected[name]),
                                           gaps(stall, (3, len(name))))
        take.__name__ = name
        return take

    async def watch(ctx):
        cycle = 0
        while len(times["listed"]) < len(vectors.tiles):
            watched = ("sums", "header", "thresholds", "factor")
            *_, listed, valid, ready = await ctx.tick().sample(
                dut.listed, *(Cat(getattr(getattr(dut, name), flag) for name in watched)
                              for flag in ("valid", "ready")))
            cycle += 1
            for k, name in enumerate(watched):
                if valid & ready & 1 << k:
                    times[name].append(cycle)
            if listed:
                times["listed"].append(cycle)

    simulate(dut, tiles, units, sums, headers, take_thresholds, watch,
             *(sink(name) for name in vectors.expected if name != "thresholds"))
    received["thresholds"] = thresholds
    for name, want in vectors.expected.items():
        shape = getattr(dut, name).p.shape()
        assert received[name] == [shape.const(word).as_bits() for word in want], name
    return dut, times


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_random_rows_match_the_models(params, flow):
    run(Vectors(params, query_tiles(params, 3)), flow)


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_real_rows_match_the_models(params):
    tiles = real_query_tiles(params, count=1)[:4]
    assert len({one.maximum.shape[0] for one in tiles} | {0}) > 1
    run(Vectors(params, tiles), "both")


def test_rows_without_an_element_and_tiles_that_keep_none():
    """All of a tile pruned, all of a tile not computed, and both in every place of a head."""
    params = SHAPES[0]
    rng = np.random.default_rng(8)
    tiles = []
    for pruned in ([0], [2], [0, 1, 2]):
        one = some_query_tile(params, rng, params.tile_q, 3)
        contributes = one.contributes.copy()
        contributes[:, pruned] = False
        tiles.append(one._replace(contributes=contributes))
        maximum, total = one.maximum.copy(), one.total.copy()
        maximum[:, pruned], total[:, pruned] = -1 << 15, 0
        tiles.append(one._replace(contributes=contributes, maximum=maximum, total=total))
    vectors = Vectors(params, tiles)
    assert not all(word["contributes"] for word in vectors.expected["factor"])
    assert {word["zero"] for word in vectors.expected["final"]} == {0, 1}
    run(vectors)


def test_late_units_of_v_hold_factors_and_nothing_else():
    """Eight block rows wait with their sums; thresholds go on."""
    params = SHAPES[1]
    rng = np.random.default_rng(9)
    vectors = Vectors(params, [some_query_tile(params, rng, params.tile_q, 2)])
    blocks = params.row_blocks
    assert blocks <= 8
    _, soon = run(vectors)
    _, late = run(vectors, unit_delay=1500)
    assert late["thresholds"][:blocks] == soon["thresholds"][:blocks]
    assert late["factor"][0] > 1500 > soon["factor"][params.tile_q - 1]


def test_throughput():
    """A block row in four times what its slower half states; last key tiles take longer."""
    params = AptParams(tile_q=40, tile_k=16, lanes=4, multipliers=4, head_dim=16)
    rng = np.random.default_rng(10)
    one = some_query_tile(params, rng, params.tile_q, 2)._replace(has_state=True)
    _, times = run(Vectors(params, [one]))
    blocks, tafa, rescale = params.row_blocks, Tafa(params), Rescale(params)
    factors = np.array(times["factor"])
    first, last = np.diff(factors[:params.tile_q]), np.diff(factors[params.tile_q:])
    assert set(first) == {rescale.row_latency} and set(last) == {rescale.final_latency + 1}
    sums = np.diff(times["sums"][:blocks])
    # While results are taken, TAFA sets the pace of the first block rows.
    assert set(sums[:3]) == {OWNERS * (tafa.latency + 1)}
    # A tile is listed two cycles after its last factor.
    assert times["listed"] == [factors[params.tile_q - 1] + 2, factors[-1] + 2]


def test_vectors_have_what_they_should():
    tiles = [one for params in SHAPES for one in query_tiles(params, 3)]
    assert {one.has_state for one in tiles} == {False, True}
    assert all(isinstance(one, QueryTile) for one in tiles)
    assert len({one.maximum.shape[1] for one in tiles}) > 1
    assert any((one.total == 0).all(1).any() for one in tiles)


def test_params_are_required():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        RowWork(8)
    assert RowWork(SHAPES[0]).params is SHAPES[0]
