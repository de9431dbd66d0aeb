"""Queue in block memory: order, fill, latency, throughput, errors."""

import numpy as np
import pytest

from rtl.common.block_fifo import BlockFifo
from tests.sim import FLOWS, run_streams, simulate


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("width, depth", [(5, 2), (11, 8)])
def test_order(width, depth, flow):
    payloads = np.random.default_rng(1).integers(0, 1 << width, 200).tolist()
    received, times = run_streams(BlockFifo(width, depth), {"i": payloads}, {"o": 200}, flow=flow)
    assert received["o"] == payloads
    if flow == "full_speed":
        assert times["o"][0] - times["i"][0] == BlockFifo(width, depth).latency
        assert np.diff(times["o"]).max() == np.diff(times["i"]).max() == 1
        assert BlockFifo(width, depth).throughput == "one payload a cycle"


@pytest.mark.parametrize("depth", [2, 8])
def test_holds_depth_and_one(depth):
    dut = BlockFifo(4, depth)
    assert dut.depth == depth
    taken = []

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        for cycle in range(3 * depth):
            ctx.set(dut.i.payload, cycle % 16)
            *_, ready = await ctx.tick().sample(dut.i.ready)
            taken.append(ready)

    simulate(dut, testbench)
    assert taken == [1] * (depth + 1) + [0] * (2 * depth - 1)


@pytest.mark.parametrize("depth, error, message", [
    (1, ValueError, r"^Depth must be a power of two from 2 on, not 1$"),
    (6, ValueError, r"^Depth must be a power of two from 2 on, not 6$"),
    (True, TypeError, r"^Depth must be an integer, not True$"),
    ("4", TypeError, r"^Depth must be an integer, not '4'$"),
])
def test_bad_depth(depth, error, message):
    with pytest.raises(error, match=message):
        BlockFifo(8, depth)
