"""Loader: panels through the memory port to words, at every flow, order, rates, resets."""

import numpy as np
import pytest
from amaranth import Module, Signal, Value
from amaranth.hdl import ResetInserter
from amaranth.lib import wiring

from golden.apt import panels
from golden.apt.dp_mac import split
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from rtl.apt.loader import Loader
from rtl.apt.memory_port import MemoryPort
from rtl.apt.panel_port import LoadKind, k_address, kv_part_bits, kv_parts, v_address
from rtl.common.stream import connect_streams
from tests.sim import coin, simulate
from verif.common.memory_model import BurstMemory, Request, Timing


SHAPES = [
    AptParams(lanes=4, multipliers=6, head_dim=20, tile_q=12, tile_k=16, beat_bytes=4),
    AptParams(lanes=4, multipliers=18, head_dim=72, tile_q=12, tile_k=24, beat_bytes=8),
    AptParams(lanes=16, multipliers=18, head_dim=72, tile_q=12, tile_k=24, state_bits=8),
    AptParams(lanes=8, head_dim=20, tile_q=12, tile_k=24, beat_bytes=3, state_bits=8),
    AptParams(lanes=8, multipliers=4, head_dim=5, tile_q=12, tile_k=16, beat_bytes=1),
]
NAMES = {LoadKind.Q: "q", LoadKind.K: "k", LoadKind.V: "v", LoadKind.CODE: "code",
         LoadKind.STATE: "state", LoadKind.ROWS: "rows"}
WRITES = ("q_write", "kv_write")
STREAMS = ("code", "state", "rows")
FAST = Timing()
SLOW = Timing(latency=(3, 60), throttle=(0.5, 0.5, 0.4), requests=2)


def ids(value):
    if isinstance(value, AptParams):
        return f"{value.lanes}x{value.multipliers}of{value.head_dim}in{value.beat_bytes}"
    return None


class Contents:
    """A head in memory, and what its tiles are to come out as."""

    def __init__(self, params, tokens, seed=0):
        rng = np.random.default_rng(seed)
        self.params, self.layout = params, Layout(params, tokens)
        layout = self.layout
        tiles = layout.query_tiles, layout.key_tiles
        half = 1 << (params.state_bits - 1)
        self.words = {name: rng.integers(-params.qmax, params.qmax + 1, (tokens, params.head_dim))
                      for name in "qkv"}
        self.scales = {name: rng.integers(0, 1 << 16, tiles[name != "q"]) for name in "qkv"}
        self.code = rng.integers(0, 4, (*tiles, params.flags))
        self.s = rng.integers(-half, half, (tokens, tiles[1]))
        self.c, self.reference = rng.integers(-1 << 15, 1 << 15, (2, tokens))
        images = {name: getattr(panels, f"pack_{name}")(self.words[name], self.scales[name],
                                                        params) for name in "qkv"}
        images |= {"code": panels.pack_code(self.code, self.layout),
                   "state": panels.pack_state(self.s, self.layout),
                   "rows": panels.pack_rows(self.c, self.reference, params)}
        self.base, at = {}, 5
        for name, image in images.items():
            self.base[name] = at
            at += len(image) // params.beat_bytes + 3
        self.data = rng.integers(0, 256, at * params.beat_bytes).astype(np.uint8)
        for name, image in images.items():
            first = self.base[name] * params.beat_bytes
            self.data[first:first + len(image)] = image

    def command(self, kind, tile, buffer):
        name = NAMES[kind]
        panel = getattr(self.layout, name)
        return {"kind": kind, "address": self.base[name] + tile * panel.stride,
                "words": panel.words[tile], "beats": panel.beats[tile], "buffer": buffer}

    def _operand(self, kind, tile, buffer):
        """Writes of a tile: fields of the address and segments, from the words themselves."""
        p, name = self.params, NAMES[kind]
        size = p.tile_q if kind is LoadKind.Q else p.tile_k
        part = np.pad(self.words[name][tile * size:(tile + 1) * size],
                      ((0, 8), (0, 2 * max(p.pv_width, p.qk_width))))
        rows = len(part) - 8
        segments = [x.tolist() for x in split(part, p)]
        if kind is not LoadKind.Q:
            return self._kv_writes(kind, rows, segments, buffer)
        writes = []
        for first in range(0, rows, 4):
            for lsb in range(2):
                for chunk in range(p.qk_chunks):
                    columns = slice(chunk * p.qk_width, (chunk + 1) * p.qk_width)
                    writes.append(({"row_block": first // 4, "chunk": chunk, "lsb": lsb,
                                    "buffer": buffer},
                                   [row[columns] for row in segments[lsb][first:first + 4]]))
        return writes

    def _kv_writes(self, kind, rows, segments, buffer):
        """Writes of K or V: the address, which part, and its bits."""
        p, writes = self.params, []

        def write(layout, where, values):
            bits = sum((value & (1 << p.segment_bits) - 1) << index * p.segment_bits
                       for index, value in enumerate(values))
            word = layout(p).const(where).as_bits()
            for part in range(kv_parts(p)):
                writes.append((word, int(kind is LoadKind.V), part,
                               bits >> part * kv_part_bits(p) & (1 << kv_part_bits(p)) - 1))
        if kind is LoadKind.V:
            for key in range(rows):
                for lsb in range(2):
                    for number in range(p.column_passes):
                        first = number * p.pv_width
                        write(v_address, {"pass_": number, "lsb": lsb, "key": key,
                                          "buffer": buffer},
                              segments[lsb][key][first:first + p.pv_width])
            return writes
        for first in range(0, rows, 8):
            for lsb in range(2):
                for step in range(8 // p.step_keys):
                    for chunk in range(p.qk_chunks):
                        top, left = first + step * p.step_keys, chunk * p.qk_width
                        write(k_address, {"chunk": chunk, "lsb": lsb, "buffer": buffer,
                                          "key_block": first // 8, "step": step},
                              [value for row in segments[lsb][top:top + p.step_keys]
                               for value in row[left:left + p.qk_width]])
        return writes

    def expected(self, kind, tile, buffer):
        """Output name to list of what a tile gives."""
        p, layout = self.params, self.layout
        if kind in (LoadKind.Q, LoadKind.K, LoadKind.V):
            name = NAMES[kind]
            return {WRITES[kind is not LoadKind.Q]: self._operand(kind, tile, buffer),
                    "scale": [(kind.value, buffer, int(self.scales[name][tile]))]}
        i, j = divmod(tile, layout.key_tiles) if kind is not LoadKind.ROWS else (tile, 0)
        first = i * p.tile_q
        if kind is LoadKind.CODE:
            pairs = self.code[i, j].reshape(p.row_blocks, -1).tolist()
            return {"code": [sum(pair << 2 * k for k, pair in enumerate(row)) for row in pairs]}
        rows = range(layout.tile_rows[i])
        if kind is LoadKind.STATE:
            return {"state": [(row, int(self.s[first + row, j])) for row in rows]}
        return {"rows": [(row, int(self.c[first + row]), int(self.reference[first + row]))
                         for row in rows]}


class Loading(wiring.Component):
    """Loader behind a memory port, with a reset for both."""

    def __init__(self, params, **options):
        self.loader, self.port, self.reset = Loader(params, **options), MemoryPort(params), Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.loader = ResetInserter(self.reset)(self.loader)
        m.submodules.port = ResetInserter(self.reset)(self.port)
        connect_streams(m, loader=self.loader.request, port=self.port.read_request)
        connect_streams(m, loader=self.loader.read, port=self.port.read_data)
        return m


async def attach(ctx, port, reset, memory, log, over):
    """A memory at a port until something is in ``over``; requests go to ``log``."""
    while not over:
        ctx.set(port.request.ready, memory.request_ready)
        ctx.set(port.write.ready, memory.write_ready)
        ctx.set(port.read.valid, memory.read_valid)
        ctx.set(port.read.payload, memory.read_beat)
        *_, resets, request_valid, request, write_valid, write, ready = await ctx.tick().sample(
            reset, port.request.valid, port.request.payload, port.write.valid,
            port.write.payload, port.read.ready)
        if resets:
            memory.reset()
            continue
        request = Request(request.write, request.address, request.beats)
        if request_valid and memory.request_ready:
            log.append(request)
        memory.edge(request if request_valid else None, write if write_valid else None, ready)


def plain(name, bits, shape):
    """A payload as the tests compare it."""
    if name == "code":
        return bits
    payload = shape.from_bits(bits)
    if name in WRITES:
        address, word = payload.address, payload.data
        if name == "kv_write":
            return address.word, address.v, payload.part, word
        names = shape.members["address"].members
        return {key: address[key] for key in names}, [list(row) for row in word]
    names = {"scale": ("kind", "buffer", "value"), "done": ("kind", "buffer"),
             "state": ("row", "s"), "rows": ("row", "c", "reference")}[name]
    values = [payload[key] for key in names]
    return tuple(int(getattr(value, "value", value)) for value in values)


async def collect_all(ctx, loader, received, times, stall, seed, over):
    """Collect all outputs, and check that streams hold while stalled."""
    gaps = {name: coin(stall, (seed, index)) for index, name in enumerate(STREAMS)}
    held, cycle = dict.fromkeys(STREAMS), 0
    wires = (*WRITES, "scale", "done")
    signals = [getattr(loader, name).valid for name in (*wires, *STREAMS)]
    payloads = [getattr(loader, name) for name in wires]
    payloads += [getattr(loader, name).payload for name in STREAMS]
    # As bits: to make views of them in every cycle takes longer than the simulation.
    signals += [Value.cast(payload) for payload in payloads]
    names = (*wires, *STREAMS)
    shapes = [payload.shape() for payload in payloads]
    while not over:
        ready = {name: int(not stall or not next(gaps[name])) for name in STREAMS}
        for name in STREAMS:
            ctx.set(getattr(loader, name).ready, ready[name])
        _, _, taken, asked, ordered, *rest = await ctx.tick().sample(
            loader.read.valid & loader.read.ready, loader.request.valid & loader.request.ready,
            loader.command.valid & loader.command.ready, *signals)
        cycle += 1
        for name, flag in (("read", taken), ("request", asked), ("command", ordered)):
            times[name] += [cycle] * flag
        for name, valid, bits, shape in zip(names, rest[:len(names)], rest[len(names):], shapes,
                                            strict=True):
            if not valid:
                assert held.get(name) is None, f"{name} dropped before a transfer"
                continue
            value = plain(name, bits, shape)
            if name in held:
                assert held[name] in (None, value), f"{name} changed while stalled"
                held[name] = None if ready[name] else value
                if not ready[name]:
                    continue
            received[name].append(value)
            times[name].append(cycle)


def load(params, contents, orders, *, timing=FAST, stall=0.0, idle=0.0, seed=0, resets=(),
         burst_beats=8, cycles=60_000):
    """Run orders ``(kind, tile, buffer)``; after each of ``resets`` cycles begin afresh.

    Returns what was received by output, cycles of transfers, requests, and the memory."""
    dut = Loading(params, burst_beats=burst_beats)
    memory = BurstMemory(contents.data.copy(), params.beat_bytes, timing=timing, seed=seed)
    names = (*WRITES, "scale", "done", *STREAMS)
    received = {name: [] for name in names}
    times = {name: [] for name in (*names, "read", "request", "command")}
    log, over = [], []
    commands = [contents.command(*order) for order in orders]

    async def order(ctx):
        async def send(limit=None):
            gaps, cycle = coin(idle, (seed, 9)), 0
            for command in commands:
                while idle and next(gaps):
                    await ctx.tick()
                ctx.set(dut.loader.command.payload, command)
                ctx.set(dut.loader.command.valid, 1)
                ready = 0
                while not ready:
                    *_, ready = await ctx.tick().sample(dut.loader.command.ready)
                    cycle += 1
                    if limit is not None and cycle >= limit:
                        return
                ctx.set(dut.loader.command.valid, 0)
            while limit is not None and cycle < limit:
                await ctx.tick()
                cycle += 1

        for limit in resets:
            await send(limit)
            ctx.set(dut.reset, 1)
            ctx.set(dut.loader.command.valid, 0)
            await ctx.tick().repeat(2)
            ctx.set(dut.reset, 0)
            for values in (*received.values(), *times.values(), log):
                values.clear()
        await send()
        while len(received["done"]) < len(orders):
            await ctx.tick()
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.port.busy)
        over.append(True)

    async def memory_side(ctx):
        await attach(ctx, dut.port, dut.reset, memory, log, over)

    async def outputs(ctx):
        await collect_all(ctx, dut.loader, received, times, stall, seed, over)

    simulate(dut, order, memory_side, outputs, cycles=cycles)
    return received, times, log, memory


def check(contents, orders, received):
    expected = {name: [] for name in received}
    for kind, tile, buffer in orders:
        for name, values in contents.expected(kind, tile, buffer).items():
            expected[name] += values
        expected["done"].append((kind.value, buffer))
    for name, values in expected.items():
        assert received[name] == values, name
    return expected


def all_orders(layout, seed=0):
    """The first and the last tile of every kind, shuffled, but for some tiles back to back."""
    rng = np.random.default_rng(seed)
    orders = [(kind, tile, int(rng.integers(2))) for kind, name in NAMES.items()
              for tile in (0, len(getattr(layout, name).words) - 1)]
    return [*(orders[index] for index in rng.permutation(len(orders))), *orders[-6:], orders[5]]


@pytest.mark.parametrize("flow", ["full_speed", "slow_memory", "stalled", "all"])
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_tiles_of_all_kinds(params, flow):
    contents = Contents(params, 29, seed=len(flow))
    orders = all_orders(contents.layout, len(flow))
    received, _, log, memory = load(
        params, contents, orders, timing=SLOW if flow in ("slow_memory", "all") else FAST,
        stall=0.6 if flow in ("stalled", "all") else 0, idle=0.5 * (flow == "all"))
    expected = check(contents, orders, received)
    assert all(len(expected[name]) > 10 for name in (*WRITES, *STREAMS))
    beats = sum(contents.command(*order)["beats"] for order in orders)
    assert memory.bytes_read == beats * params.beat_bytes and memory.bytes_written == 0
    assert sum(request.beats for request in log) == beats
    for request in log:
        assert not request.write and request.address % 8 + request.beats <= 8


def test_resets_in_mid_burst():
    params = SHAPES[0]
    contents = Contents(params, 29, seed=5)
    orders = all_orders(contents.layout)
    received, *_ = load(params, contents, orders, timing=SLOW, stall=0.3,
                        resets=[3, 9, 20, 47, 100, 160])
    check(contents, orders, received)


@pytest.mark.parametrize("kind", [LoadKind.K, LoadKind.V, LoadKind.Q])
def test_latency_and_rate(kind):
    # Parts of words of K and V are a beat of the default shape and words of Q one and a half.
    params = AptParams(tile_q=16, tile_k=16, head_dim=32)
    contents = Contents(params, 32)
    orders = [(kind, 0, 0), (kind, 1, 1), (kind, 0, 0)]
    latency = 40
    received, times, log, _ = load(params, contents, orders, burst_beats=32,
                                   timing=Timing(latency=(latency, latency)))
    check(contents, orders, received)
    dut = Loader(params)
    assert dut.throughput == "a beat or a word a cycle, whichever is narrower"
    assert times["request"][0] - times["command"][0] == dut.request_latency == 4
    name = WRITES[kind is not LoadKind.Q]
    first = 1 if kind is not LoadKind.Q else 2
    assert times[name][0] - times["read"][first] == dut.latency == 1
    assert times["scale"][0] - times["read"][0] == 1
    # Bursts are asked for ahead of data, so after the first latency beats come without a gap,
    # but for a cycle at the end of each tile.
    beats = sum(contents.command(*order)["beats"] for order in orders)
    assert len(log) > 4 and times["request"][2] < times["read"][0]
    assert times["read"][-1] - times["read"][0] == beats - 1 + len(orders) - 1
    last = len(received[name]) // len(orders) - 1
    assert times["done"][0] - times[name][last] == 1


def test_commands_are_taken_ahead():
    params = SHAPES[0]
    contents = Contents(params, 16)
    orders = [(LoadKind.CODE, 0, 0)] * 8
    _, times, _, _ = load(params, contents, orders, timing=Timing(latency=(60, 60)))
    # Two are with the reader and on the way to it, four wait in each queue.
    assert sum(cycle < times["read"][0] for cycle in times["command"]) >= 5


def test_words_of_padding_are_dropped():
    # 16 words of 8 bits to a beat, of which the tail tile has one.
    params = AptParams(tile_q=16, tile_k=16, state_bits=8)
    contents = Contents(params, 33)
    layout = contents.layout
    last = layout.query_tiles * layout.key_tiles - 1
    assert layout.state.words[last] == 1
    orders = [(LoadKind.STATE, last, 0), (LoadKind.STATE, 0, 1), (LoadKind.ROWS, 2, 0),
              (LoadKind.ROWS, 0, 0)]
    received, times, _, _ = load(params, contents, orders)
    check(contents, orders, received)
    assert times["done"][0] - times["state"][0] == 16


def test_errors():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
        Loader(8)
    message = r"^Burst beats must be a power of two in 1\.\.256, not 0$"
    with pytest.raises(ValueError, match=message):
        Loader(SHAPES[0], burst_beats=0)
    with pytest.raises(ValueError, match=r"^AptParams\.split must be balanced, not 'truncate'$"):
        Loader(AptParams(split="truncate"))
