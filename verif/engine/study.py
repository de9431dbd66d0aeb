"""The diffusion transformer's own heads on the engine's RTL: cycles, utilisation, speed-up."""

import dataclasses
from typing import NamedTuple

import numpy as np

from golden.apt.attend import Step, quantize_head
from golden.apt.cycles import ideal, predict, work_of
from golden.apt.tafa import threshold_code
from golden.apt.thresholds import BlockThresholds
from golden.dit.capture import capture
from golden.dit.fixture import fixed_point
from golden.dit.heads import CATEGORY, SEED, STYLE, calibrate, masks_of, probabilities
from golden.studies.codec_front import BlockSweep
from golden.studies.count_fit import choose_counts

from .plan import Plan


__all__ = ["HEADS", "STEPS", "Row", "capture_heads", "rows_of", "study_plan"]

#: Consecutive steps: the first two are dense, the second makes the first masks with thresholds.
STEPS = (12, 13, 14)
#: Layer and head: one that spreads its attention, two that do not.
HEADS = ((0, 1), (4, 1), (9, 2))
#: Bounds for the count thresholds: mass lost, and high-precision mass demoted.
MAX_LOST, MAX_DEMOTED = 0.01, 0.20


class Row(NamedTuple):
    """What a step of a head took; cycles are the RTL's."""

    head: str
    step: int
    dense: bool
    checked: int        #: output words that equal the model's
    cycles: int
    qk: float           #: utilisation of the array in QK: ideal over measured cycles
    pv: float           #: and in PV
    total: float        #: cycles over ideal ones of both
    speed_up: float     #: over the dense step before
    bound: float        #: that the masks allow
    lost: float         #: mass valid by this step's thresholds that the old masks miss
    demoted: float      #: high-precision mass that they compute in low precision, of all of it
    model_error: float | None  #: of the cycle model, largest of QK, PV and total; quad dataflow


def capture_heads(on_step=None):
    """Q, K and V of the study's steps and layers."""
    return capture(category=CATEGORY, style=STYLE, seed=SEED, steps=STEPS,
                   layers=sorted({layer for layer, _ in HEADS}), on_step=on_step)


@dataclasses.dataclass(frozen=True)
class _Entry:
    step: int
    masks: tuple  # high, valid by direct thresholds, and P
    name: str


def _channels(x, params):
    return x[:, np.arange(params.head_dim) % x.shape[1]]


def study_plan(taken, params, *, heads=HEADS, queries=None):
    """A :class:`Plan` of heads over the captured steps, and what each job is.

    ``queries`` takes the first query rows alone, against all keys. Thresholds prune 57.3 % and keep
    9.1 % in high precision in each head and step; count thresholds are those of least cost that
    lose at most 1 % of the mass and demote at most 20 % of the high-precision mass.
    """
    plan, entries = Plan(params, one_by_one=True), []
    for layer, number in heads:
        sweep, steps = BlockSweep(params), []
        for step in taken.steps:
            q, k, v = (_channels(x, params) for x in taken.at(step, layer, number))
            p = probabilities(q, k)
            theta = calibrate(p)
            high, valid = masks_of(p, *theta)
            whole = (slice(len(p) // params.tile_q * params.tile_q),
                     slice(len(p) // params.tile_k * params.tile_k))
            sweep.add(p[whole], high[whole], valid[whole])
            steps.append((step, q, k, v, p, theta, high, valid))
        counts = BlockThresholds(**choose_counts(sweep, MAX_LOST, MAX_DEMOTED).thresholds)
        for index, (step, q, k, v, p, theta, high, valid) in enumerate(steps):
            (q, e_q), (k, e_k), (v, _) = map(fixed_point, (q, k, v))
            head = quantize_head(q[:queries], k, v, e_q, e_k, params)
            name = f"layer {layer} head {number}"
            plan.add(name, head, Step(codes=tuple(threshold_code(theta).tolist()),
                                      dense=index < 2, counts=counts))
            entries.append(_Entry(step, (high[:queries], valid[:queries], p[:queries]), name))
    return plan, entries


def _whole(tiles, name, layout):
    """A mask of all tiles of a head."""
    rows = [np.concatenate([getattr(tile, name) for tile in row], axis=1) for row in tiles]
    return np.concatenate(rows)[:layout.queries, :layout.tokens]


def _check_counters(name, counters, works, params):
    """What the engine counted is what the masks ask for."""
    flat = [work for row in works for work in row]
    elements, high = (sum(int(getattr(work, field).sum()) for work in flat)
                      for field in ("valid", "hp"))
    wanted = {"lp_blocks": sum(int(work.lp_blocks.sum()) for work in flat),
              "hp_blocks": sum(int(work.hp_blocks.sum()) for work in flat),
              "elements": elements, "hp_elements": high,
              "pv_passes": params.column_passes * (elements + 3 * high)}
    for counter, value in wanted.items():
        if counters[counter] != value:
            raise AssertionError(f"{name}: counter {counter} is {counters[counter]} instead of "
                                 f"{value}")


def rows_of(plan, entries, run, latency):
    """A :class:`Row` of each job of a run; :class:`AssertionError` if an output is wrong."""
    rows, before, dense_cycles = [], 0, {}
    for number, (job, entry) in enumerate(zip(plan.jobs, entries, strict=True)):
        done, _, counters = run.done[number]
        cycles, before = done - before, done
        tiles, dense = job.expected.tiles, job.step.dense
        works = work_of(tiles, job.layout, dense=dense)
        qk, pv = ideal(works, plan.params)
        error = None
        if plan.params.dataflow == "quad":
            predicted = predict(works, job.layout, dense=dense,
                                has_state=not job.first, latency=latency)
            error = max(abs(ratio - 1) for ratio in (
                predicted.qk / counters["qk"], predicted.pv / counters["pv"],
                predicted.total / cycles))
        _check_counters(f"{entry.name} step {entry.step}", counters, works, plan.params)
        computed_hp = _whole(tiles, "hp", job.layout)
        computed = computed_hp | _whole(tiles, "lp", job.layout)
        high, valid, p = entry.masks
        size = job.layout.queries * job.layout.tokens * plan.params.head_dim
        all_high = 4 * size / plan.params.products
        if dense:
            dense_cycles[entry.name] = cycles
        rows.append(Row(
            entry.name, entry.step, dense, plan.check(number, run.memory), cycles,
            qk / counters["qk"], pv / counters["pv"], cycles / (qk + pv),
            dense_cycles[entry.name] / cycles, 2 * all_high / (qk + pv),
            float((p * (valid & ~computed)).sum() / p.sum()),
            float((p * (high & computed & ~computed_hp)).sum() / (p * high).sum()),
            error))
    plan.check_rest(run.memory)
    return rows
