"""Helpers for the built-in simulator."""

import contextlib

import numpy as np
from amaranth.sim import Simulator


__all__ = ["FLOWS", "coin", "drive", "collect", "run_streams", "simulate"]

#: Idle and stall probabilities of the flow settings: full speed, starved, stalled, both.
FLOWS = {"full_speed": (0.0, 0.0), "starved": (0.5, 0.0), "stalled": (0.0, 0.6),
         "both": (0.3, 0.3)}


def coin(probability, seed):
    """Endless coin flips, seeded."""
    rng = np.random.default_rng(seed)
    while True:
        yield bool(rng.random() < probability)


async def drive(ctx, stream, payloads, gaps=None, times=None):
    """Put every payload on ``stream``; a payload stays up until its transfer.

    Appends the cycle of each transfer to ``times``, if given.
    """
    cycle = 0
    for payload in payloads:
        while gaps is not None and next(gaps):
            await ctx.tick()
            cycle += 1
        ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        ready = 0
        while not ready:
            *_, ready = await ctx.tick().sample(stream.ready)
            cycle += 1
        if times is not None:
            times.append(cycle)
        ctx.set(stream.valid, 0)


async def collect(ctx, stream, count, gaps=None, times=None):
    """Take ``count`` payloads as integers and check that the producer holds while stalled."""
    received, held, cycle = [], None, 0
    while len(received) < count:
        willing = gaps is None or not next(gaps)
        ctx.set(stream.ready, int(willing))
        *_, valid, payload = await ctx.tick().sample(stream.valid, stream.payload.as_value()
                                                     if hasattr(stream.payload, "as_value")
                                                     else stream.payload)
        cycle += 1
        if held is not None:
            assert valid, "valid dropped before a transfer"
            assert payload == held, "payload changed while stalled"
        held = None
        if valid and willing:
            received.append(payload)
            if times is not None:
                times.append(cycle)
        elif valid:
            held = payload
    ctx.set(stream.ready, 0)
    return received


def simulate(dut, *testbenches, cycles=100_000, vcd=None):
    """Run every testbench to its end; a hang is a failure after ``cycles``, not a wait.

    A waveform is written only on request: it costs more than the simulation itself.
    """
    finished = []

    def watched(testbench):
        async def wrapper(ctx):
            await testbench(ctx)
            finished.append(testbench)
        return wrapper

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for testbench in testbenches:
        sim.add_testbench(watched(testbench))
    with sim.write_vcd(str(vcd)) if vcd is not None else contextlib.nullcontext():
        for cycle in range(100, cycles + 100, 100):
            sim.run_until(cycle * 1e-6)
            if len(finished) == len(testbenches):
                return
    hung = [testbench.__name__ for testbench in testbenches if testbench not in finished]
    raise AssertionError(f"{cycles} cycles passed with {', '.join(hung)} still running")


def run_streams(dut, inputs, outputs, *, flow="full_speed", statics=None, cycles=100_000, seed=0):
    """Drive ``inputs`` (name -> payloads), take ``outputs`` (name -> count).

    Returns ``(received, times)``: payloads as integers by output name, and cycles of transfers by
    stream name, counted from the same edge. ``statics`` are static inputs.
    """
    idle, stall = FLOWS[flow]
    received, times = {}, {name: [] for name in (*inputs, *outputs)}
    testbenches = []
    for number, (name, payloads) in enumerate(inputs.items()):
        async def source(ctx, name=name, payloads=payloads, number=number):
            for member, value in (statics or {}).items():
                ctx.set(getattr(dut, member), value)
            gaps = coin(idle, (seed, number)) if idle else None
            await drive(ctx, getattr(dut, name), payloads, gaps, times[name])
        source.__name__ = f"source of {name}"
        testbenches.append(source)
    for number, (name, count) in enumerate(outputs.items()):
        async def sink(ctx, name=name, count=count, number=number):
            gaps = coin(stall, (seed, 100 + number)) if stall else None
            received[name] = await collect(ctx, getattr(dut, name), count, gaps, times[name])
        sink.__name__ = f"sink of {name}"
        testbenches.append(sink)
    simulate(dut, *testbenches, cycles=cycles)
    return received, times
