"""Storer: words to panels through the memory port, at every flow, rates, resets, the port."""

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.hdl import ResetInserter
from amaranth.lib import wiring

from golden.apt import panels
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from rtl.apt.memory_port import MemoryPort
from rtl.apt.panel_port import StoreKind
from rtl.apt.storer import Storer
from rtl.common.stream import connect_streams
from tests.sim import coin, run_streams, simulate
from tests.test_apt_loader import FAST, SLOW, attach
from verif.common.memory_model import BurstMemory


SHAPES = [
    AptParams(lanes=4, multipliers=6, head_dim=20, tile_q=12, tile_k=16, beat_bytes=4),
    AptParams(lanes=4, multipliers=18, head_dim=72, tile_q=12, tile_k=48, beat_bytes=8,
              state_bits=8),
    AptParams(lanes=16, multipliers=18, head_dim=40, tile_q=12, tile_k=48),
    AptParams(lanes=8, multipliers=8, head_dim=10, tile_q=8, tile_k=24, beat_bytes=3,
              state_bits=8),
    AptParams(lanes=8, multipliers=2, head_dim=5, tile_q=4, tile_k=8, beat_bytes=1),
]
KINDS = {StoreKind.CODE: "code", StoreKind.STATE: "state", StoreKind.ROWS: "rows",
         StoreKind.O: "o"}


def ids(value):
    if isinstance(value, AptParams):
        return f"{value.lanes}x{value.multipliers}of{value.head_dim}in{value.beat_bytes}"
    return None


class Results:
    """What a step leaves, as words of tiles, and the memory that it is to make."""

    def __init__(self, params, tokens, seed=0):
        rng = np.random.default_rng(seed)
        self.params, self.layout = params, Layout(params, tokens)
        tiles = self.layout.query_tiles, self.layout.key_tiles
        half = 1 << (params.state_bits - 1)
        self.code = rng.integers(0, 4, (*tiles, params.flags))
        self.s = rng.integers(-half, half, (tokens, tiles[1]))
        self.c, self.reference = rng.integers(-1 << 15, 1 << 15, (2, tokens))
        self.o = rng.integers(-1 << 15, 1 << 15, (tokens, params.head_dim))
        images = {"code": panels.pack_code(self.code, self.layout),
                  "state": panels.pack_state(self.s, self.layout),
                  "rows": panels.pack_rows(self.c, self.reference, params),
                  "o": panels.pack_o(self.o, params)}
        self.base, at = {}, 3
        for name, image in images.items():
            self.base[name] = at
            at += len(image) // params.beat_bytes + 5
        self.empty = rng.integers(0, 256, at * params.beat_bytes).astype(np.uint8)
        self.full = self.empty.copy()
        for name, image in images.items():
            panel = getattr(self.layout, name)
            for tile, beats in enumerate(panel.beats):
                first = tile * panel.stride * params.beat_bytes
                start = self.base[name] * params.beat_bytes + first
                size = beats * params.beat_bytes
                self.full[start:start + size] = image[first:first + size]

    def command(self, kind, tile):
        panel = getattr(self.layout, KINDS[kind])
        return {"kind": kind, "address": self.base[KINDS[kind]] + tile * panel.stride,
                "words": panel.words[tile], "beats": panel.beats[tile]}

    def orders(self):
        return [(kind, tile) for kind, name in KINDS.items()
                for tile in range(len(getattr(self.layout, name).words))]

    def words(self, kind, tile):
        """Payloads of a tile's words."""
        p, layout = self.params, self.layout
        if kind in (StoreKind.CODE, StoreKind.STATE):
            i, j = divmod(tile, layout.key_tiles)
        else:
            i, j = tile, 0
        first, count = i * p.tile_q, layout.tile_rows[i]
        if kind is StoreKind.CODE:
            return [sum(pair << 2 * k for k, pair in enumerate(row))
                    for row in self.code[i, j].reshape(p.row_blocks, -1).tolist()]
        if kind is StoreKind.STATE:
            return [{"row": row, "s": int(self.s[first + row, j])} for row in range(count)]
        if kind is StoreKind.ROWS:
            return [{"row": row, "c": int(self.c[first + row]),
                     "reference": int(self.reference[first + row])} for row in range(count)]
        width, words = p.multipliers // 2, []
        for row in self.o[first:first + count].tolist():
            for left in range(0, p.head_dim, width):
                values = row[left:left + width]
                # What is beyond the row is not to be looked at.
                words.append({"values": values + [0x55] * (width - len(values)),
                              "keep": len(values), "last": 0})
        words[-1]["last"] = 1
        return words


class Storing(wiring.Component):
    """Storer before a memory port, with a reset for both."""

    def __init__(self, params, **options):
        self.storer, self.port, self.reset = Storer(params, **options), MemoryPort(params), Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.storer = ResetInserter(self.reset)(self.storer)
        m.submodules.port = ResetInserter(self.reset)(self.port)
        connect_streams(m, storer=self.storer.request, port=self.port.write_request)
        connect_streams(m, storer=self.storer.write, port=self.port.write_data)
        return m


def store(params, results, orders, *, timing=FAST, idle=0.0, seed=0, burst_beats=8, resets=(),
          cycles=60_000):
    """Run orders ``(kind, tile)``; in the cycles ``resets`` begin afresh.

    Returns the memory, kinds done in order, cycles of transfers and requests."""
    dut = Storing(params, burst_beats=burst_beats)
    memory = BurstMemory(results.empty.copy(), params.beat_bytes, timing=timing, seed=seed)
    inputs = {"command": [results.command(*order) for order in orders]}
    for kind, name in KINDS.items():
        inputs[name] = [word for which, tile in orders if which is kind
                        for word in results.words(kind, tile)]
    times = {name: [] for name in (*inputs, "write", "request")}
    done, log, over, state = [], [], [], {"epoch": 0}

    def source(name, number):
        async def feed(ctx):
            port = getattr(dut.storer, name)
            gaps = coin(idle, (seed, number))
            while not over:
                while ctx.get(dut.reset):
                    await ctx.tick()
                epoch = state["epoch"]
                for payload in inputs[name]:
                    while idle and next(gaps):
                        await ctx.tick()
                    ctx.set(port.payload, payload)
                    ctx.set(port.valid, 1)
                    ready = 0
                    while not ready and epoch == state["epoch"]:
                        *_, ready = await ctx.tick().sample(port.ready)
                    ctx.set(port.valid, 0)
                    if epoch != state["epoch"]:
                        break
                    times[name].append(state["cycle"] + 1)  # it is counted later in the cycle
                while epoch == state["epoch"] and not over:
                    await ctx.tick()
        feed.__name__ = f"source of {name}"
        return feed

    async def watch(ctx):
        waiting = list(resets)
        state["cycle"] = 0
        storer = dut.storer
        while len(done) < len(orders):
            *_, valid, kind, request, write = await ctx.tick().sample(
                storer.done.valid, storer.done.kind,
                dut.port.request.valid & dut.port.request.ready,
                dut.port.write.valid & dut.port.write.ready)
            state["cycle"] += 1
            done.extend([kind] * valid)
            times["request"] += [state["cycle"]] * request
            times["write"] += [state["cycle"]] * write
            if waiting and state["cycle"] == waiting[0]:
                waiting.pop(0)
                ctx.set(dut.reset, 1)
                await ctx.tick()
                state["epoch"] += 1
                await ctx.tick().repeat(2)
                for values in (*times.values(), done, log):
                    values.clear()
                ctx.set(dut.reset, 0)
                state["cycle"] = 0
        await ctx.tick().repeat(6)
        assert not ctx.get(dut.port.busy)
        over.append(True)

    async def memory_side(ctx):
        await attach(ctx, dut.port, dut.reset, memory, log, over)

    simulate(dut, *(source(name, number) for number, name in enumerate(inputs)), memory_side,
             watch, cycles=cycles)
    return memory, done, times, log


def check(results, orders, memory, done, log):
    assert np.array_equal(memory.data, results.full)
    beats = sum(results.command(*order)["beats"] for order in orders)
    assert memory.bytes_written == beats * results.params.beat_bytes and memory.bytes_read == 0
    for kind in StoreKind:
        assert done.count(kind) == sum(which is kind for which, _ in orders)
    for request in log:
        assert request.write and request.address % 8 + request.beats <= 8


@pytest.mark.parametrize("flow", ["full_speed", "starved", "slow_memory", "both"])
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_tiles_of_all_kinds(params, flow):
    results = Results(params, 29, seed=len(flow))
    rng = np.random.default_rng(len(flow))
    orders = [results.orders()[index] for index in rng.permutation(len(results.orders()))]
    memory, done, _, log = store(
        params, results, orders, idle=0.5 if flow in ("starved", "both") else 0,
        timing=SLOW if flow in ("slow_memory", "both") else FAST)
    check(results, orders, memory, done, log)
    assert (results.full != results.empty).sum() > 50


def test_resets_in_mid_burst():
    params = SHAPES[0]
    results = Results(params, 29, seed=3)
    orders = results.orders()
    memory, done, _, log = store(params, results, orders, timing=SLOW, idle=0.2,
                                 resets=[7, 20, 33, 61, 90, 150])
    assert np.array_equal(memory.data, results.full) and len(done) == len(orders)
    assert sum(request.beats for request in log) == sum(results.command(*order)["beats"]
                                                        for order in orders)


def test_latency_and_rate():
    # A word of O is a beat. Bursts are written back to back, three cycles apart.
    params = AptParams(tile_q=16, tile_k=16)
    results = Results(params, 32)
    dut = Storer(params, burst_beats=32)
    assert dut.latency == 5
    assert dut.throughput == "a word a cycle and kind, or a beat a cycle, whichever is narrower"
    orders = [(StoreKind.O, 0), (StoreKind.O, 1)]
    _, done, times, log = store(params, results, orders, burst_beats=32)
    beats = 2 * 16 * 64 * 16 // params.beat_bits
    assert len(times["write"]) == beats == len(times["o"]) and len(done) == 2
    first = log[0].beats
    # One cycle more in the port.
    assert times["request"][0] - times["o"][first - 1] == dut.latency + 1
    span = times["write"][-1] - times["write"][0]
    assert beats - 1 <= span <= beats - 1 + 3 * (len(log) - 1)
    assert np.diff(times["o"])[:2 * 32].max() == 1  # room for two bursts


def test_bursts_are_not_held_up_by_the_engine():
    # However slowly words come: once a burst is asked for, its beats come without a gap.
    params = AptParams(tile_q=16, tile_k=16, multipliers=8)
    results = Results(params, 16)
    _, _, times, log = store(params, results, [(StoreKind.O, 0)], idle=0.8)
    assert len(times["write"]) == sum(request.beats for request in log)
    at = 0
    for request in log:
        cycles = times["write"][at:at + request.beats]
        assert cycles == list(range(cycles[0], cycles[0] + request.beats))
        at += request.beats


def test_short_bursts_and_their_beats_keep_their_order():
    # Tiles of one beat, so that requests and beats get as far apart as they can.
    params = AptParams(tile_q=4, tile_k=16)
    results = Results(params, 64)
    orders = [order for order in results.orders() if order[0] is not StoreKind.O]
    inputs = {"command": [results.command(*order) for order in orders]}
    for kind, name in KINDS.items():
        inputs[name] = [word for which, tile in orders if which is kind
                        for word in results.words(kind, tile)]
    assert {command["beats"] for command in inputs["command"]} == {1}
    for flow in ("full_speed", "stalled"):
        received, _ = run_streams(Storer(params), inputs,
                                  {"request": len(orders), "write": len(orders)}, flow=flow)
        image = results.empty.reshape(-1, params.beat_bytes).copy()
        for request, beat in zip(received["request"], received["write"], strict=True):
            assert request >> 32 == 1
            image[request & 0xffff_ffff] = list(beat.to_bytes(params.beat_bytes, "little"))
        o = results.base["o"] * params.beat_bytes
        assert np.array_equal(image.reshape(-1)[:o], results.full[:o])


def test_kinds_do_not_wait_for_each_other():
    # O has its command first and its words last; everything else is stored before it ends.
    params = SHAPES[0]
    results = Results(params, 12)
    orders = [(StoreKind.O, 0), (StoreKind.ROWS, 0), (StoreKind.STATE, 0), (StoreKind.CODE, 0)]
    _, done, _, _ = store(params, results, orders)
    assert done[-1] is StoreKind.O and len(done) == 4


def test_errors():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Storer(8)
    message = r"^Burst beats must be a power of two in 1\.\.256, not 3$"
    with pytest.raises(ValueError, match=message):
        Storer(SHAPES[0], burst_beats=3)
    with pytest.raises(ValueError, match=r"^Burst beats must be at least 2, not 1$"):
        Storer(SHAPES[0], burst_beats=1)
    with pytest.raises(TypeError, match=r"^Burst beats must be an integer, not 8\.0$"):
        Storer(SHAPES[0], burst_beats=8.0)
    with pytest.raises(ValueError, match=r"^AptParams\.codec must be block, not 'rowcol'$"):
        Storer(AptParams(codec="rowcol"))
