"""The engine's runs: timeline, plans and, with ``full``, whole heads on the RTL."""

import dataclasses

import numpy as np
import pytest

from gen.presets import APT_PRESETS
from rtl.apt.datapath import STAGES
from verif.apt.heads import drifting_heads, hard_steps
from verif.engine.harness import Harness, Port
from verif.engine.plan import Plan
from verif.engine.report import run_heads
from verif.engine.timeline import timeline


TINY = APT_PRESETS["tiny"]
SERIAL = dataclasses.replace(APT_PRESETS["icebreaker"], tile_q=12, tile_k=40, head_dim=13,
                             state_bits=8, exp2="table")


def plan_of(params, seed=1):
    rng = np.random.default_rng(seed)
    plan = Plan(params)
    for name, queries, keys, steps in (("whole", 48, 48, 4), ("tails", 21, 37, 7),
                                       ("single", 1, 1, 2), ("long", 5, 150, 3)):
        for head, step in zip(drifting_heads(queries, keys, steps, params, rng), hard_steps(keys),
                              strict=False):
            plan.add(name, head, step)
    return plan


def test_timeline_shows_shares_of_columns():
    chart = timeline([(0, 0b10), (50, 0b00), (75, 0b11)], 100, width=4)
    rows = {line.split()[0]: line[11:] for line in chart.splitlines()[1:]}
    assert list(rows) == list(STAGES)
    assert rows["load"] == "   #" and rows["qk"] == "## #" and rows["store"] == "    "
    halves = timeline([(0, 1), (15, 0)], 40, width=2).splitlines()[1]
    assert halves.endswith("# ") or halves.endswith("+ ")


def test_a_plan_finds_wrong_and_stray_words():
    plan = plan_of(TINY)
    memory = plan.memory()
    with pytest.raises(AssertionError, match=r"^whole step 0: masks\[0, 0, 0\] is 1 instead of"):
        plan.check(0, memory)
    plan.check_rest(memory)
    memory[0] ^= 1
    with pytest.raises(AssertionError, match=r"^Byte 0 was written and belongs to no output"):
        plan.check_rest(memory)
    assert plan.after[:4] == [0, 1, 2, 3] and plan.after[4] == 0


@pytest.mark.full
@pytest.mark.parametrize("params", [TINY, SERIAL], ids=["tiny", "serial"])
def test_heads_over_steps_with_fast_and_slow_memory(params, tmp_path):
    """Heads of odd sizes, many seeds, memories of any speed, aborts at many moments."""
    harness = Harness(params, tmp_path / "engine")
    for seed, port in enumerate((Port(latency=2), Port(latency=90, jitter=200),
                                 Port(latency=10, jitter=30, idle_percent=70))):
        plan = plan_of(params, seed)
        run = harness.run(plan, port=port, seed=seed + 1)
        for number in range(len(plan.jobs)):
            assert plan.check(number, run.memory)
        plan.check_rest(run.memory)
    plan = plan_of(params)
    for abort_at in (70, 333, 1234, 5000, 20011):
        run = harness.run(plan, port=Port(latency=20, jitter=20), abort_at=abort_at)
        assert [status for _, status, _ in run.done].count(2) == 1
        for number in range(len(plan.jobs)):
            assert plan.check(number, run.memory)


@pytest.mark.full
@pytest.mark.parametrize("head", [(4, 1), (9, 2)], ids=lambda head: "layer{}head{}".format(*head))
def test_whole_heads_reach_their_targets(head):
    """Three steps of a head of the diffusion transformer, all queries, word for word."""
    rows, _, _ = run_heads(APT_PRESETS["ulx3s-85f"], whole=True, heads=(head,))
    assert [row.dense for row in rows] == [True, True, False]
    assert all(row.model_error <= 0.02 for row in rows)
    for row in rows[:2]:
        assert row.qk >= 0.97 and row.pv >= 0.97 and row.total <= 1 / 0.97
    masked = rows[2]
    assert masked.qk >= 0.97 and masked.pv >= 0.90 and masked.total <= 1.10
    assert masked.speed_up >= 0.90 * masked.bound
