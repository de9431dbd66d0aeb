"""Memory model: data, time and protocol; and the memory port before it, also in cocotb."""

import itertools
import shutil

import cocotb
import numpy as np
import pytest
from amaranth import Signal
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotb_tools.runner import get_runner

from gen.verilog import verilog_text
from golden.apt.params import AptParams
from rtl.apt.memory_port import MemoryPort
from tests.sim import coin, collect, drive, simulate
from tests.test_apt_loader import attach
from verif.common.agents import StreamSink, StreamSource
from verif.common.memory_model import BurstMemory, MemoryAgent, Request, Timing
from verif.runner import simulator_environment


PARAMS = AptParams(beat_bytes=4)
SLOW = Timing(latency=(1, 40), throttle=(0.4, 0.4, 0.4), requests=3)


def memory(beats=64, **options):
    return BurstMemory(np.arange(4 * beats, dtype=np.uint16).astype(np.uint8), 4, **options)


def beat(at):
    return int.from_bytes(bytes(k % 256 for k in range(4 * at, 4 * at + 4)), "little")


# The model

def test_reads_come_after_the_latency_in_order():
    m = memory(timing=Timing(latency=(5, 5)))
    m.edge(None, None, 1)
    assert m.request_ready and m.write_ready and not m.read_valid and m.idle
    m.edge(Request(0, 7, 3), None, 1)
    m.edge(Request(0, 2, 1), None, 1)
    seen = []
    for _ in range(12):
        seen.append(m.read_beat if m.read_valid else None)
        m.edge(None, None, 1)
    assert seen == [None] * 3 + [beat(7), beat(8), beat(9), beat(2)] + [None] * 5
    assert m.bytes_read == 16 and m.requests == 2 and m.idle


def test_a_beat_stays_until_it_is_taken():
    m = memory()
    m.edge(None, None, 0)
    m.edge(Request(0, 3, 2), None, 0)
    for _ in range(4):
        assert m.read_valid and m.read_beat == beat(3) and not m.idle
        m.edge(None, None, 0)
    m.edge(None, None, 1)
    assert m.read_beat == beat(4) and m.bytes_read == 4


def test_writes():
    m = memory()
    m.edge(None, None, 0)
    m.edge(Request(1, 3, 2), None, 0)
    m.edge(None, 0x0403_0201, 0)
    m.edge(None, 0x0807_0605, 0)
    assert m.data[12:20].tolist() == [1, 2, 3, 4, 5, 6, 7, 8] and m.bytes_written == 8 and m.idle


@pytest.mark.parametrize("steps, message", [
    ([(Request(0, 0, 0), None)], r"^Request\(.*beats=0\) is not 1\.\.256 beats"),
    ([(Request(0, 0, 257), None)], r"is not 1\.\.256 beats"),
    ([(Request(0, 60, 5), None)], r"is beyond the memory"),
    ([(None, 5)], r"^A beat to write without a request"),
    ([(Request(1, 0, 1), None), (None, 5), (None, 5)], r"^A beat to write without a request"),
    ([(Request(1, 4, 4), None), (Request(0, 7, 1), None)], r"overlaps an open burst at 4"),
    ([(Request(0, 4, 4), None), (Request(1, 2, 4), None)], r"overlaps an open burst at"),
])
def test_protocol(steps, message):
    m = memory()
    m.edge(None, None, 0)
    with pytest.raises(AssertionError, match=message):
        for request, write in steps:
            m.edge(request, write, 0)


def test_offers_must_stay():
    for offers in ([Request(0, 1, 1), None], [Request(0, 1, 1), Request(0, 2, 1)]):
        m = memory()
        with pytest.raises(AssertionError, match=r"became .* before it was taken$"):
            for request in offers:  # nothing is taken before the second edge
                m.edge(request, None, 0)


def test_throttle_and_seed():
    def run(seed):
        m = memory(timing=SLOW, seed=seed)
        shown = []
        for _ in range(200):
            m.edge(Request(0, 1, 4) if m.request_ready else None, None, 1)
            shown.append((m.request_ready, m.write_ready, m.read_valid))
        return shown
    shown = np.array(run(1))
    assert run(1) == run(1) != run(2)
    assert np.all(shown.mean(axis=0) > 0.02) and np.all(shown.mean(axis=0) < 0.9)


def test_data_must_be_beats():
    with pytest.raises(ValueError, match=r"^Data must be whole beats of 4 bytes of uint8$"):
        BurstMemory(np.zeros(6, np.uint8), 4)


# The memory port

def traffic(count, seed):
    """Reads of the lower half and writes into the upper one, which do not meet."""
    rng = np.random.default_rng(seed)
    reads = [(int(rng.integers(0, 400)), int(rng.integers(1, 60))) for _ in range(count)]
    writes, at = [], 512
    for _ in range(count):
        size = int(rng.integers(1, 20))
        writes.append((at, size, [int(value) for value in rng.integers(0, 1 << 32, size)]))
        at += size + int(rng.integers(3))
    return reads, writes


def bursts(traffic):
    return [{"address": address, "beats": beats} for address, beats, *_ in traffic]


def run_port(reads, writes, *, timing=Timing(), stall=0.0, idle=0.0, seed=0):  # noqa: B008
    dut, m, log, over, received = MemoryPort(PARAMS), memory(1024, timing=timing), [], [], []
    ended = []

    def source(stream, payloads, number):
        async def feed(ctx):
            await drive(ctx, getattr(dut, stream), payloads,
                        coin(idle, (seed, number)) if idle else None)
            ended.append(stream)
        return feed

    async def sink(ctx):
        count = sum(beats for _, beats in reads)
        received.extend(await collect(ctx, dut.read_data, count,
                                      coin(stall, seed) if stall else None))
        while len(ended) < 3 or ctx.get(dut.busy):
            await ctx.tick()
        over.append(True)

    async def memory_side(ctx):
        await attach(ctx, dut, Signal(), m, log, over)

    simulate(dut, source("read_request", bursts(reads), 1),
             source("write_request", bursts(writes), 2),
             source("write_data", [beat for *_, beats in writes for beat in beats], 3),
             sink, memory_side, cycles=20_000)
    return m, log, received


@pytest.mark.parametrize("flow", [
    {}, {"timing": SLOW}, {"stall": 0.5}, {"idle": 0.6},
    {"timing": SLOW, "stall": 0.3, "idle": 0.3},
], ids=["full_speed", "slow_memory", "stalled", "starved", "all"])
def test_port(flow):
    reads, writes = traffic(16, len(flow))
    m, log, received = run_port(reads, writes, **flow)
    assert received == [beat(at) for address, beats in reads
                        for at in range(address, address + beats)]
    for address, beats, values in writes:
        stored = m.data[4 * address:4 * (address + beats)].tobytes()
        assert stored == b"".join(value.to_bytes(4, "little") for value in values)
    assert [request[1:] for request in log if not request.write] == reads
    assert [request[1:] for request in log if request.write] == [write[:2] for write in writes]


def test_turns():
    # With both waiting they take turns, and reads go on while a burst is written.
    reads, writes = [(0, 1)] * 40, [(512 + 8 * k, 4, [k] * 4) for k in range(6)]
    _, log, _ = run_port(reads, writes)
    kinds = "".join("RW"[request.write] for request in log)
    assert "WW" not in kinds and "RWR" in kinds and "RRRR" in kinds
    assert kinds.rindex("W") < 39
    assert MemoryPort(PARAMS).latency == 1
    assert MemoryPort(PARAMS).throughput == "a request a cycle, and a beat a cycle each way"


def test_reads_outstanding_are_bounded():
    dut, log, over = MemoryPort(PARAMS), [], []
    m = memory(1024, timing=Timing((300, 300), (0, 0, 0), 99))

    async def feed(ctx):
        ctx.set(dut.read_request.payload, {"address": 0, "beats": 64})
        ctx.set(dut.read_request.valid, 1)
        await ctx.tick().repeat(250)
        over.append(True)

    async def memory_side(ctx):
        await attach(ctx, dut, Signal(), m, log, over)

    simulate(dut, feed, memory_side)
    # One more may be on offer when the count is looked at.
    assert len(log) == MemoryPort.AHEAD // 64 + 1


def test_drain():
    reads = [(20, 3), (5, 1), (300, 9), (70, 2)]
    writes, ends = [(512, 1), (530, 4), (550, 7)], []
    for start in range(4, 90, 6):
        dut, m, log, over = MemoryPort(PARAMS), memory(1024, timing=SLOW), [], []

        def source(stream, payloads, dut=dut, over=over):
            async def feed(ctx):
                for payload in itertools.cycle(payloads):
                    port = getattr(dut, stream)
                    ctx.set(port.payload, payload)
                    ctx.set(port.valid, 1)
                    ready = 0
                    while not ready and not over:
                        *_, ready = await ctx.tick().sample(port.ready)
                    if over:
                        return
            return feed

        async def abort(ctx, dut=dut, m=m, over=over, log=log, start=start):
            ctx.set(dut.read_data.ready, 1)
            await ctx.tick().repeat(start)
            ctx.set(dut.drain, 1)
            ctx.set(dut.read_data.ready, 0)  # as a reset loader
            cycles = 0
            while ctx.get(dut.busy):
                *_, valid, taken = await ctx.tick().sample(
                    dut.read_data.valid,
                    dut.read_request.ready | dut.write_request.ready)
                assert not valid and not taken
                cycles += 1
            ends.append((cycles, len(log)))
            await ctx.tick().repeat(3)
            assert m.idle and not ctx.get(dut.request.valid) and not ctx.get(dut.write.valid)
            assert len(log) == ends[-1][1]
            assert m.bytes_written == 4 * sum(request.beats for request in log if request.write)
            ctx.set(dut.drain, 0)
            ctx.set(dut.read_data.ready, 1)
            await ctx.tick().repeat(40)
            assert len(log) > ends[-1][1]
            over.append(True)

        async def memory_side(ctx, dut=dut, m=m, log=log, over=over):
            await attach(ctx, dut, Signal(), m, log, over)

        simulate(dut, source("read_request", bursts(reads)),
                 source("write_request", bursts(writes)), source("write_data", [1, 2, 3]),
                 abort, memory_side, cycles=3000)
    assert max(cycles for cycles, _ in ends) > 20 and len({count for _, count in ends}) > 4


# The agent, in a simulator of Verilog

@cocotb.test()
async def agent_serves_the_port(dut):
    for name in ("read_request", "write_request", "write_data"):
        getattr(dut, f"{name}__valid").value = 0
    dut.drain.value = 0
    m = memory(1024, timing=SLOW, seed=5)
    agent = MemoryAgent(dut, m)
    Clock(dut.clk, 10, unit="ns").start()
    for reset in (1, 1, 0):
        dut.rst.value = reset
        await RisingEdge(dut.clk)
    agent.start()
    reads, writes = traffic(8, 3)
    never = itertools.repeat(False)
    sources = {name: StreamSource(dut, name, gaps=never).start()
               for name in ("read_request", "write_request", "write_data")}
    sink = StreamSink(dut, "read_data", gaps=never).start()
    for name, kind in (("read_request", reads), ("write_request", writes)):
        for address, beats, *_ in kind:
            sources[name].send(address | beats << 32)
    for *_, beats in writes:
        for value in beats:
            sources["write_data"].send(value)
    await sink.wait_for(sum(beats for _, beats in reads))
    while int(dut.busy.value) or any(source.pending for source in sources.values()):
        await RisingEdge(dut.clk)
    assert sink.received == [beat(at) for address, beats in reads
                             for at in range(address, address + beats)]
    for address, beats, values in writes:
        stored = m.data[4 * address:4 * (address + beats)].tobytes()
        assert stored == b"".join(value.to_bytes(4, "little") for value in values)
    assert m.requests == 16
    # A reset in the middle: both sides forget.
    sources["read_request"].send(5 | 9 << 32)
    for _ in range(4):
        await RisingEdge(dut.clk)
    for side in (*sources.values(), sink, agent):
        side.stop()
    assert m.idle


def test_agent(tmp_path):
    simulator = "icarus" if shutil.which("iverilog") else "verilator"
    (tmp_path / "memory_port.v").write_text(verilog_text(MemoryPort(PARAMS), "memory_port"))
    with simulator_environment(simulator):
        runner = get_runner(simulator)
        runner.build(sources=[tmp_path / "memory_port.v"], hdl_toplevel="memory_port",
                     build_dir=tmp_path / "sim", timescale=("1ns", "1ps"), always=True,
                     build_args=["-g2005"] if simulator == "icarus" else ["-Wno-fatal"],
                     log_file=tmp_path / "build.log")
        results = runner.test(test_module="tests.test_memory_model", hdl_toplevel="memory_port",
                              hdl_toplevel_lang="verilog", build_dir=tmp_path / "sim",
                              test_dir=tmp_path, results_xml=str(tmp_path / "results.xml"),
                              log_file=tmp_path / "test.log", timescale=("1ns", "1ps"))
    text = results.read_text()
    assert 'name="agent_serves_the_port"' in text
    assert "<failure" not in text and "<error" not in text, text
