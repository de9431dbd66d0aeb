"""Bench of ``sd_mpu``: tiles and short heads over steps, slow memories, refusals and aborts."""

import cocotb
from cocotb.triggers import with_timeout

from golden.apt.job import JOB_WORDS
from verif.apt.heads import drifting_heads, hard_steps, tile_heads
from verif.common.bench import FLOWS, Bench
from verif.common.memory_model import BurstMemory, MemoryAgent, Timing
from verif.engine.plan import Plan


#: The memory for each flow of the other streams.
TIMINGS = {
    "full_speed": Timing(latency=(5, 5)),
    "starved": Timing(latency=(20, 90), throttle=(0.2, 0.0, 0.6)),
    "stalled": Timing(latency=(10, 40), throttle=(0.5, 0.8, 0.2), requests=1),
    "on_valid": Timing(latency=(1, 60), throttle=(0.3, 0.3, 0.3), requests=2),
}
DONE, REFUSED, ABORTED = range(3)


class EngineBench(Bench):
    """The engine with its memory; jobs of a :class:`Plan` are given one after another."""

    def __init__(self, dut, flow, plan):
        super().__init__(dut, flow, others=("request", "write", "read"))
        self.plan = plan(self)
        self.memory = BurstMemory(self.plan.memory(), self.params.beat_bytes,
                                  timing=TIMINGS[flow], seed=int(self.rng.integers(1 << 30)))
        self._agent = None

    async def start(self):
        await super().start(abort_jobs=0)

    async def reset(self, cycles=2):
        if self._agent is not None:
            self._agent.stop()
        await super().reset(cycles)
        self._agent = MemoryAgent(self.dut, self.memory).start()

    def send_job(self, number):
        first = number * JOB_WORDS
        self.send("job", self.plan.words[first:first + JOB_WORDS])

    async def wait_done(self, count, limit=2_000_000):
        await with_timeout(self.agents["done"].wait_for(count), limit * self.PERIOD, "ns")
        return self.agents["done"].received[-1]

    async def run(self):
        """Give all jobs one after another, and check each when it has ended."""
        for number in range(len(self.plan.jobs)):
            ended = len(self.agents["done"].received)
            self.send_job(number)
            assert await self.wait_done(ended + 1) == DONE
            self.tally(self.plan.check(number, self.memory.data))
        self.plan.check_rest(self.memory.data)


def _plan(bench, heads):
    plan = Plan(bench.params)
    for name, steps, settings in heads:
        for head, step in zip(steps, settings, strict=False):
            plan.add(name, head, step)
    return plan


def short_heads(bench):
    """Real tiles at two steps, and made heads of whole and odd sizes over several; fewer of them
    where the memory is slow."""
    params, rng = bench.params, bench.rng
    slow = bench.flow != FLOWS["full_speed"]
    heads = [(f"tile{number}", steps, hard_steps(params.tile_k))
             for number, steps in enumerate(tile_heads(params, 1 if slow else 2))]
    sizes = [(3, params.tile_k + 5, 4), (1, 1, 2)] if slow else [
        (params.tile_q + 5, params.tile_k + 11, 7), (1, 1, 2),
        (params.tile_q, 2 * params.tile_k, 2), (3, params.tile_k - 1, 3)]
    for queries, keys, steps in sizes:
        heads.append((f"{queries}x{keys}", drifting_heads(queries, keys, steps, params, rng),
                      hard_steps(keys)))
    return _plan(bench, heads)


def two_heads(bench):
    """Two tiles each way, in any shape."""
    params, rng = bench.params, bench.rng
    queries, keys = params.tile_q + 3, params.tile_k + 3
    return _plan(bench, [(name, drifting_heads(queries, keys, 2, params, rng), hard_steps(keys))
                         for name in ("first", "second")])


@cocotb.test()
@cocotb.parametrize(flow=list(FLOWS))
async def matches_model(dut, flow):
    bench = EngineBench(dut, flow, short_heads)
    await bench.start()
    await bench.run()


@cocotb.test()
async def asks_for_memory_soon(dut):
    """The first burst of a job comes when the manifest says."""
    bench = EngineBench(dut, "full_speed", two_heads)
    await bench.start()
    bench.send_job(0)
    job = bench.agents["job"]
    while len(job.times) < JOB_WORDS:
        await bench.cycles(1)
    while not dut.request__valid.value:
        await bench.cycles(1)
    latency = job.cycle - job.times[-1]
    assert latency == bench.manifest["latency"], f"latency is {latency}"
    await bench.wait_done(1)
    bench.tally(bench.plan.check(0, bench.memory.data))


@cocotb.test()
async def heads_follow_each_other(dut):
    """Jobs that do not depend on each other are given at once, with one that is refused."""
    bench = EngineBench(dut, "full_speed", two_heads)
    await bench.start()
    bad = list(bench.plan.words[:JOB_WORDS])
    bad[2] = 0
    bench.send_job(0)
    bench.send("job", bad)
    bench.send_job(2)
    await bench.wait_done(3)
    assert bench.agents["done"].received == [DONE, REFUSED, DONE]
    for number in (0, 2):
        bench.tally(bench.plan.check(number, bench.memory.data))
    bench.plan.check_rest(bench.memory.data)


@cocotb.test()
@cocotb.parametrize(kind=["abort", "reset"])
async def starts_again_after_an(dut, kind):
    """Jobs broken off at many moments, and given again without anything else."""
    bench = EngineBench(dut, "on_valid", two_heads)
    await bench.start()
    for cycles in (3, 90, 400, 1500):
        bench.send_job(0)
        await bench.cycles(cycles)
        if kind == "reset":
            await bench.reset()
            continue
        bench.agents["job"].stop()
        ended = len(bench.agents["done"].received)
        dut.abort_jobs.value = 1
        await bench.cycles(1)
        dut.abort_jobs.value = 0
        assert await bench.wait_done(ended + 1, 5000) in (DONE, ABORTED)
        if bench.agents["done"].received[-1] == DONE:
            assert await bench.wait_done(ended + 2, 5000) == ABORTED
        assert bench.memory.idle
        bench.agents["job"].start()
    await bench.run()
