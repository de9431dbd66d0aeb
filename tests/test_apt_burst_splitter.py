"""Burst splitter: every burst within its boundaries, in order, at its rate."""

import numpy as np
import pytest

from rtl.apt.burst_splitter import BurstSplitter
from tests.sim import run_streams


@pytest.mark.parametrize("burst_beats", [1, 4, 256])
def test_bursts(burst_beats):
    tiles = [(0, 1), (3, 1), (3, 2), (5, 300), (0xffff_ff00, 256), (256, 256), (7, 700), (0, 8)]
    expected = []
    for address, beats in tiles:
        while beats:
            count = min(beats, burst_beats - address % burst_beats)
            beats -= count
            expected.append(address | count << 32 | (beats == 0) << 41)
            address += count
    dut = BurstSplitter(burst_beats)
    received, times = run_streams(
        dut, {"i": [{"address": address, "beats": beats} for address, beats in tiles]},
        {"o": len(expected)})
    assert received["o"] == expected
    assert times["o"][0] - times["i"][0] == dut.latency == 2
    assert set(np.diff(times["o"])) <= {2, 3}
    assert dut.throughput == "a burst every two cycles, a tile's first one after three"
