"""Memory behind a burst port: requests ``{write, address, beats}``, beats to write, beats read.

:class:`BurstMemory` is the model, one call a clock edge; :class:`MemoryAgent` is it in cocotb, on
the streams ``request``, ``write`` and ``read`` of a top component.
"""

import random
from collections import deque
from typing import NamedTuple

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge


__all__ = ["BurstMemory", "MemoryAgent", "Request", "Timing"]


class Request(NamedTuple):
    """A burst; the address counts beats."""

    write: int
    address: int
    beats: int

    @classmethod
    def unpack(cls, bits):
        """Of the bits of a request: ``write``, 32 of ``address``, the rest ``beats``."""
        return cls(bits & 1, bits >> 1 & 0xffff_ffff, bits >> 33)


class Timing(NamedTuple):
    """How fast the memory is."""

    latency: tuple = (1, 1)     #: fewest and most cycles from a read request to its first beat
    throttle: tuple = (0, 0, 0) #: probabilities of a cycle without request, write, read beat
    requests: int = 4           #: read requests, and write requests, that may be open at once


class BurstMemory:
    """Bytes that are read and written in bursts, and a check of the protocol.

    Bursts are 1 to ``largest`` beats within the memory. Beats to write come after their request,
    no more than it asked for. Data of reads come back in the order of requests. What is offered
    stays on offer until it is taken. A burst must not overlap an open one if either of them
    writes: their order is not defined.

    Parameters
    ----------
    data : uint8 array
        Contents, used in place; whole beats.
    beat_bytes : :class:`int`
        Bytes of a beat.
    timing : :class:`Timing`
    seed : :class:`int`
    largest : :class:`int`
        Beats of a burst at most.

    Attributes
    ----------
    request_ready, write_ready, read_valid, read_beat
        What the memory shows until the next edge.
    bytes_read, bytes_written, requests
        Counts since the beginning.
    """

    def __init__(self, data, beat_bytes, *, timing=Timing(), seed=0, largest=256):  # noqa: B008
        if data.dtype != np.uint8 or data.ndim != 1 or len(data) % beat_bytes:
            raise ValueError(f"Data must be whole beats of {beat_bytes} bytes of uint8")
        self.data, self.beat_bytes, self.largest = data, beat_bytes, largest
        self.timing, self._random = timing, random.Random(seed)
        self.bytes_read = self.bytes_written = self.requests = 0
        self.reset()

    def reset(self):
        """Forget open bursts; contents and counts stay."""
        self._cycle = 0
        self._reads, self._writes = deque(), deque()  # [first cycle, next beat, beats left]
        self._offered_request = self._offered_write = None
        self.request_ready = self.write_ready = self.read_valid = 0
        self.read_beat = 0

    @property
    def idle(self):
        return not (self._reads or self._writes or self.read_valid)

    def edge(self, request, write, read_ready):
        """A clock edge: the :class:`Request` and the beat on offer, or ``None``, and whether a
        beat that is read is taken."""
        self._cycle += 1
        for name, offered, now in (("Request", self._offered_request, request),
                                   ("Beat to write", self._offered_write, write)):
            assert offered in (None, now), f"{name} {offered} became {now} before it was taken"
        self._offered_request = None if self.request_ready else request
        self._offered_write = None if self.write_ready else write
        if self.read_valid and read_ready:
            self.read_valid = 0
            self.bytes_read += self.beat_bytes
        if write is not None:
            assert self._writes, "A beat to write without a request"
            if self.write_ready:
                self._put(write)
        if request is not None and self.request_ready:
            self._open(request)
        self._show()

    def _open(self, request):
        first, end = request.address, request.address + request.beats
        assert 1 <= request.beats <= self.largest, f"{request} is not 1..{self.largest} beats"
        assert end * self.beat_bytes <= len(self.data), f"{request} is beyond the memory"
        for mine, _, at, left in self._open_bursts():
            assert not (mine or request.write) or end <= at or at + left <= first, (
                f"{request} overlaps an open burst at {at}")
        self.requests += 1
        if request.write:
            self._writes.append([0, first, request.beats])
        else:
            latency = self._random.randint(*self.timing.latency)
            self._reads.append([self._cycle + latency - 1, first, request.beats])

    def _open_bursts(self):
        return [*((0, *burst) for burst in self._reads), *((1, *burst) for burst in self._writes)]

    def _beat(self, queue):
        """The bytes of the next beat of the first open burst, which is then past."""
        _, at, left = queue[0]
        if left == 1:
            queue.popleft()
        else:
            queue[0][1:] = at + 1, left - 1
        return self.data[at * self.beat_bytes:(at + 1) * self.beat_bytes]

    def _put(self, beat):
        self._beat(self._writes)[:] = np.frombuffer(
            beat.to_bytes(self.beat_bytes, "little"), np.uint8)
        self.bytes_written += self.beat_bytes

    def _show(self):
        stall_request, stall_write, stall_read = (
            bool(chance) and self._random.random() < chance for chance in self.timing.throttle)
        room = max(len(self._reads), len(self._writes)) < self.timing.requests
        self.request_ready = int(room and not stall_request)
        self.write_ready = int(not stall_write)
        if (not self.read_valid and self._reads and self._reads[0][0] <= self._cycle
                and not stall_read):
            self.read_beat = int.from_bytes(self._beat(self._reads).tobytes(), "little")
            self.read_valid = 1


class MemoryAgent:
    """A :class:`BurstMemory` on the memory port of a top component, in cocotb."""

    def __init__(self, dut, memory):
        self.memory = memory
        self._clk = dut.clk
        self._ports = {f"{name}_{part}": getattr(dut, f"{name}__{part}")
                       for name in ("request", "write", "read")
                       for part in ("valid", "ready", "payload")}
        self._task = None
        self._drive()

    def start(self):
        self._task = cocotb.start_soon(self._run())
        return self

    def stop(self):
        """Stop and forget open bursts, as the other side does in a reset."""
        self._task.cancel()
        self.memory.reset()
        self._drive()

    def _drive(self):
        for name in ("request_ready", "write_ready", "read_valid"):
            self._ports[name].value = getattr(self.memory, name)
        self._ports["read_payload"].value = self.memory.read_beat

    def _bit(self, name):
        value = self._ports[name].value
        assert value.is_resolvable, f"{name} is {value}"
        return int(value)

    def _offered(self, name):
        if not self._bit(f"{name}_valid"):
            return None
        value = self._ports[f"{name}_payload"].value
        assert value.is_resolvable, f"Payload of {name} is {value}"
        return int(value)

    async def _run(self):
        while True:
            await RisingEdge(self._clk)
            request = self._offered("request")
            self.memory.edge(None if request is None else Request.unpack(request),
                             self._offered("write"), self._bit("read_ready"))
            self._drive()
