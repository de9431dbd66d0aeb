"""cocotb agents for the ready/valid streams of :mod:`amaranth.lib.stream`.

A stream member ``i`` of the top component is the ports ``i__payload``, ``i__valid`` and
``i__ready``. Nothing below the top is looked at: inner names are not stable.
"""

from collections import deque

import cocotb
from cocotb.triggers import Event, RisingEdge


__all__ = ["StreamSink", "StreamSource"]


class _Agent:
    def __init__(self, dut, prefix, gaps):
        self.name = prefix
        self.clk = dut.clk
        self.payload = getattr(dut, f"{prefix}__payload")
        self.valid = getattr(dut, f"{prefix}__valid")
        self.ready = getattr(dut, f"{prefix}__ready")
        self._gaps = gaps  # endless iterator of bool: idle this cycle?
        self._task = None
        self.cycle = 0     # clock edges seen since start
        self.times = []    # cycle of each transfer

    def start(self):
        self._task = cocotb.start_soon(self._run())
        return self

    def set_gaps(self, gaps):
        """Idle by another pattern from the next cycle on: one item is taken a cycle."""
        self._gaps = gaps

    def stop(self):
        """Stop driving, as a reset does to the other side; what was queued is dropped."""
        self._task.cancel()


class StreamSource(_Agent):
    """Drives packed payloads (ints); idles whenever ``gaps`` yields true.

    While idle it shows the payload's complement: a consumer that looks at the payload without
    ``valid`` is caught.
    """

    def __init__(self, dut, prefix, *, gaps):
        super().__init__(dut, prefix, gaps)
        self._queue = deque()
        self._ones = (1 << len(self.payload)) - 1
        self.valid.value = 0
        self.payload.value = 0

    def send(self, payload):
        self._queue.append(payload)

    @property
    def pending(self):
        return len(self._queue)

    def stop(self):
        super().stop()
        self._queue.clear()
        self.valid.value = 0

    async def _run(self):
        offered = None
        while True:
            await RisingEdge(self.clk)
            self.cycle += 1
            # Once asserted, `valid` and `payload` hold until a transfer (stream rule).
            if offered is not None:
                if self.ready.value == 0:
                    continue
                assert self.ready.value == 1, f"{self.ready._name} is {self.ready.value}"
                self._queue.popleft()
                self.times.append(self.cycle)
            if self._queue and not next(self._gaps):
                offered = self._queue[0]
                self.payload.value = offered
                self.valid.value = 1
            else:
                if offered is not None:
                    self.payload.value = self._ones ^ offered
                offered = None
                self.valid.value = 0


class StreamSink(_Agent):
    """Collects packed payloads (ints) and checks the producer's half of the protocol.

    With ``after_valid`` it raises ``ready`` only once it has seen ``valid``: a producer that
    waits for ``ready`` first then hangs instead of passing.
    """

    def __init__(self, dut, prefix, *, gaps, after_valid=False):
        super().__init__(dut, prefix, gaps)
        self.received = []
        self._after_valid = after_valid
        self._arrived = Event()
        self.ready.value = 0

    async def wait_for(self, count):
        """Return once ``count`` payloads have arrived in all."""
        while len(self.received) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def stop(self):
        super().stop()
        self.ready.value = 0

    async def _run(self):
        held = None  # payload that was offered and not yet taken
        while True:
            await RisingEdge(self.clk)
            self.cycle += 1
            valid, ready = self.valid.value, self.ready.value
            assert valid.is_resolvable, f"{self.valid._name} is {valid}"
            if held is not None:
                assert valid == 1, f"{self.valid._name} dropped before a transfer"
                assert self.payload.value == held, f"{self.payload._name} changed while stalled"
            held = None
            if valid == 1:
                payload = self.payload.value
                assert payload.is_resolvable, f"{self.payload._name} is {payload}"
                if ready == 1:
                    self.received.append(int(payload))
                    self.times.append(self.cycle)
                    self._arrived.set()
                else:
                    held = payload
            willing = held is not None if self._after_valid else True
            self.ready.value = int(willing and not next(self._gaps))
