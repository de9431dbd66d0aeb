"""What every bench shares: manifest, clock and reset, flow settings, scoreboard, tally."""

import dataclasses
import itertools
import json
import os
import pathlib
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, with_timeout

from golden.apt.params import AptParams

from .agents import StreamSink, StreamSource
from .payload import pack, unpack


__all__ = ["FLOWS", "Bench", "Flow"]


@dataclasses.dataclass(frozen=True)
class Flow:
    """How eagerly the bench feeds and drains: probabilities of idling in a cycle."""

    idle: float = 0.0
    stall: float = 0.0
    after_valid: bool = False


#: The flow settings of every bench: parametrize the tests with ``flow=list(FLOWS)``. A name of at
#: most ten letters is shown in the names of the tests.
FLOWS = {
    "full_speed": Flow(),
    "starved": Flow(idle=0.5),
    "stalled": Flow(stall=0.7),
    "on_valid": Flow(idle=0.3, stall=0.3, after_valid=True),
}


def _coin(probability):
    """Endless coin flips from cocotb's seeded generator; none are spent on a sure thing."""
    if probability == 0:
        return itertools.repeat(False)
    return iter(lambda: random.random() < probability, None)


class Bench:
    """A device under test with an agent on each of its streams.

    ``params`` is the parameter object that the design was emitted with. ``rng`` is seeded by the
    run. Payloads are dicts, lists and integers; :meth:`check` compares unpacked ones in order.
    Streams in ``others`` are left to somebody else.
    """

    PERIOD = 10  # ns

    def __init__(self, dut, flow="full_speed", others=()):
        self.manifest = json.loads(pathlib.Path(os.environ["TILEWRIGHT_MANIFEST"]).read_text())
        self.params = AptParams(**self.manifest["params"])
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.dut, self.flow = dut, FLOWS[flow]
        self.checked = 0
        self._layouts = {name: port["payload"] for name, port in self.manifest["ports"].items()
                         if port["kind"] == "stream" and name not in others}
        self._directions = {name: self.manifest["ports"][name]["direction"]
                            for name in self._layouts}
        self.agents = {}

    async def start(self, **statics):
        """Start the clock, set static inputs, reset, and start an agent on every stream."""
        for name, value in statics.items():
            self.set_static(name, value)
        Clock(self.dut.clk, self.PERIOD, unit="ns").start()
        await self.reset()

    def set_static(self, name, value):
        getattr(self.dut, name).value = pack(self.manifest["ports"][name]["shape"], value)

    async def reset(self, cycles=2):
        """Reset in whatever state: agents forget what they had, received data are cleared."""
        for agent in self.agents.values():
            agent.stop()
        self.dut.rst.value = 1
        for name, direction in self._directions.items():
            getattr(self.dut, f"{name}__{'valid' if direction == 'in' else 'ready'}").value = 0
        await self.cycles(cycles)
        self.dut.rst.value = 0
        for name, direction in self._directions.items():
            if direction == "in":
                agent = StreamSource(self.dut, name, gaps=_coin(self.flow.idle))
            else:
                agent = StreamSink(self.dut, name, gaps=_coin(self.flow.stall),
                                   after_valid=self.flow.after_valid)
            self.agents[name] = agent.start()

    async def cycles(self, count):
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    def pack(self, stream, payload):
        return pack(self._layouts[stream], payload)

    def unpack(self, stream, bits):
        return unpack(self._layouts[stream], bits)

    def send(self, stream, payloads):
        """Queue payloads on an input stream."""
        for payload in payloads:
            self.agents[stream].send(self.pack(stream, payload))

    def received(self, stream):
        """Payloads that an output stream has delivered since the last reset."""
        return [self.unpack(stream, bits) for bits in self.agents[stream].received]

    async def check(self, stream, expected, *, limit, distinct=2):
        """Wait for exactly the expected payloads, in order, within ``limit`` cycles.

        Then nothing more may come for a while. ``distinct`` is how many different payloads the
        expectation must have, so that a collapsed stimulus cannot pass. Adds to the tally of
        checked outputs.
        """
        expected = [self.pack(stream, payload) for payload in expected]
        assert expected, f"{stream}: nothing expected, so nothing would be checked"
        kinds = len(set(expected))
        assert kinds >= distinct, f"{stream}: only {kinds} different payloads expected"
        sink = self.agents[stream]
        try:
            await with_timeout(sink.wait_for(len(expected)), limit * self.PERIOD, "ns")
        except TimeoutError:
            raise AssertionError(f"{stream}: {len(sink.received)} of {len(expected)} payloads "
                                 f"within {limit} cycles") from None
        await self.cycles(16)
        for index, (got, want) in enumerate(zip(sink.received, expected, strict=False)):
            assert got == want, (f"{stream}[{index}]: {self.unpack(stream, got)} "
                                 f"instead of {self.unpack(stream, want)}")
        assert len(sink.received) == len(expected), (
            f"{stream}: {len(sink.received)} payloads instead of {len(expected)}")
        self.tally(len(expected))

    def tally(self, count):
        """Count checked outputs; the runner fails a test that has counted none."""
        self.checked += count
        with open(os.environ["TILEWRIGHT_TALLY"], "a", encoding="utf-8") as file:
            file.write(f"{count}\n")
