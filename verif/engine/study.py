"""The diffusion transformer's own heads on the engine's RTL: cycles, utilisation, speed-up."""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from golden.apt.attend import Step, quantize_head
from golden.apt.cycles import ideal, predict, work_of
from golden.apt.job import Region, moved_beats
from golden.apt.tafa import threshold_code
from golden.apt.thresholds import BlockThresholds
from golden.dit.capture import capture
from golden.dit.fixture import fixed_point
from golden.dit.heads import CATEGORY, SEED, STYLE, calibrate, masks_of, probabilities
from golden.studies.codec_front import BlockSweep
from golden.studies.count_fit import choose_counts

from .plan import Plan


__all__ = ["HEADS", "MODEL_LIMIT", "STEPS", "Row", "Total", "capture_heads", "check_calibration",
           "check_model", "rows_of", "study_plan", "total_of"]

#: Consecutive steps: the first two are dense, the second makes the first masks with thresholds.
STEPS = (12, 13, 14)
#: Layer and head: one that spreads its attention, two that do not.
HEADS = ((0, 1), (4, 1), (9, 2))
#: Bounds for the count thresholds: mass lost, and high-precision mass demoted.
MAX_LOST, MAX_DEMOTED = 0.01, 0.20
#: How far the cycle model may be off the RTL's counters, in QK, in PV and in total.
MODEL_LIMIT = 0.02


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
    pruned: float       #: share of the elements that this step's thresholds prune
    high: float         #: share that they have in high precision
    ideal: float        #: ideal cycles of both
    dense_cycles: int   #: cycles of the dense step before
    high_mass: float    #: share of the mass in high precision, of which ``demoted`` is


class Total(NamedTuple):
    """The rows that are not dense, together: cycles and mass are summed."""

    rows: int
    speed_up: float
    bound: float
    lost: float
    demoted: float
    pruned: float
    high: float


def capture_heads():
    """Q, K and V of the study's steps and layers."""
    return capture(category=CATEGORY, style=STYLE, seed=SEED, steps=STEPS,
                   layers=sorted({layer for layer, _ in HEADS}))


@dataclasses.dataclass(frozen=True)
class _Entry:
    step: int
    masks: tuple  # high, valid by direct thresholds, and P
    name: str


def _channels(x, params):
    return x[:, np.arange(params.head_dim) % x.shape[1]]


def check_calibration(calibration, *, heads=HEADS, steps=STEPS):
    """:class:`~golden.common.errors.UserError` if a head or step is not in a calibration."""
    for layer, number in heads:
        for step in steps:
            calibration.step(layer, number, step)


class _OwnSettings:
    """Settings of a head for the wanted shares, from its own probabilities."""

    def __init__(self, params):
        self._params, self._sweep, self._codes = params, BlockSweep(params), {}

    def add(self, step, p):
        """Thresholds of a step, as probabilities."""
        theta = calibrate(p)
        whole = (slice(len(p) // self._params.tile_q * self._params.tile_q),
                 slice(len(p) // self._params.tile_k * self._params.tile_k))
        self._sweep.add(*(x[whole] for x in (p, *masks_of(p, *theta))))
        self._codes[step] = tuple(threshold_code(theta).tolist())
        return theta

    @functools.cached_property
    def _counts(self):
        return BlockThresholds(**choose_counts(self._sweep, MAX_LOST, MAX_DEMOTED).thresholds)

    def step(self, step):
        return Step(codes=self._codes[step], counts=self._counts)


class _FileSettings:
    """Settings of a head out of a calibration."""

    def __init__(self, calibration, layer, head):
        self._calibration, self._where = calibration, (layer, head)

    def add(self, step, p):
        return self._calibration.thresholds(*self._where, step)

    def step(self, step):
        return self._calibration.step(*self._where, step)


def study_plan(taken, params, *, heads=HEADS, queries=None, calibration=None):
    """A :class:`Plan` of heads over the captured steps, and what each job is.

    ``queries`` takes the first query rows alone, against all keys. The first two steps are dense.
    Thresholds, count thresholds and refresh bits are those of a ``calibration``, as are further
    dense steps. Without it thresholds prune 57.3 % and keep 9.1 % in high precision in each head
    and step, no step is refreshed, and count thresholds are those of least cost that lose at most
    1 % of the mass and demote at most 20 % of the high-precision mass.
    """
    plan, entries = Plan(params, one_by_one=True), []
    for layer, number in heads:
        settings = (_OwnSettings(params) if calibration is None
                    else _FileSettings(calibration, layer, number))
        steps = []
        for step in taken.steps:
            q, k, v = (_channels(x, params) for x in taken.at(step, layer, number))
            p = probabilities(q, k)
            steps.append((step, q, k, v, p, *masks_of(p, *settings.add(step, p))))
        for index, (step, q, k, v, p, high, valid) in enumerate(steps):
            (q, e_q), (k, e_k), (v, _) = map(fixed_point, (q, k, v))
            head = quantize_head(q[:queries], k, v, e_q, e_k, params)
            name = f"layer {layer} head {number}"
            wanted = settings.step(step)
            plan.add(name, head, wanted._replace(dense=index < 2 or wanted.dense))
            entries.append(_Entry(step, (high[:queries], valid[:queries], p[:queries]), name))
    return plan, entries


def _whole(tiles, name, layout):
    """A mask of all tiles of a head."""
    rows = [np.concatenate([getattr(tile, name) for tile in row], axis=1) for row in tiles]
    return np.concatenate(rows)[:layout.queries, :layout.tokens]


def _check_counters(name, counters, works, job):
    """What the engine counted is what masks and layout ask for."""
    params = job.layout.params
    flat = [work for row in works for work in row]
    elements, high = (sum(int(getattr(work, field).sum()) for work in flat)
                      for field in ("valid", "hp"))
    beats = moved_beats(job.layout, dense=job.step.dense, has_state=not job.first)
    wanted = {"read_beats": sum(beats[region] for region in Region if region < Region.CODE_OUT),
              "written_beats": sum(beats[region] for region in Region
                                   if region >= Region.CODE_OUT),
              "lp_blocks": sum(int(work.lp_blocks.sum()) for work in flat),
              "hp_blocks": sum(int(work.hp_blocks.sum()) for work in flat),
              "elements": elements, "hp_elements": high,
              "pv_passes": params.column_passes * (elements + 3 * high)}
    for counter, value in wanted.items():
        if counters[counter] != value:
            raise AssertionError(f"{name}: counter {counter} is {counters[counter]} instead of "
                                 f"{value}")


def rows_of(plan, entries, run, memory):
    """A :class:`Row` of each job of a run; :class:`AssertionError` if an output is wrong.

    ``memory`` is what the cycle model is told of the run's.
    """
    rows, before, dense_cycles = [], 0, {}
    for number, (job, entry) in enumerate(zip(plan.jobs, entries, strict=True)):
        done, _, counters = run.done[number]
        cycles, before = done - before, done
        tiles, dense = job.expected.tiles, job.step.dense
        works = work_of(tiles, job.layout, dense=dense)
        qk, pv = ideal(works, plan.params)
        error = None
        if plan.params.dataflow == "quad":
            predicted = predict(works, job.layout, dense=dense, has_state=not job.first,
                                memory=memory)
            error = max(abs(ratio - 1) for ratio in (
                predicted.qk / counters["qk"], predicted.pv / counters["pv"],
                predicted.total / cycles))
        _check_counters(f"{entry.name} step {entry.step}", counters, works, job)
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
            error, float(1 - valid.mean()), float(high.mean()), qk + pv, dense_cycles[entry.name],
            float((p * high).sum() / p.sum())))
    plan.check_rest(run.memory)
    return rows


def total_of(rows):
    """The :class:`Total` of rows, or ``None`` if all are dense."""
    masked = [row for row in rows if not row.dense]
    if not masked:
        return None

    def mean(name, weights=None):
        return float(np.average([getattr(row, name) for row in masked], weights=weights))
    ideal = sum(row.ideal for row in masked)
    return Total(len(masked), sum(row.dense_cycles for row in masked)
                 / sum(row.cycles for row in masked),
                 sum(row.bound * row.ideal for row in masked) / ideal, mean("lost"),
                 mean("demoted", [row.high_mass for row in masked]), mean("pruned"), mean("high"))


def check_model(rows):
    """:class:`AssertionError` that names the rows whose cycle model is off by more than
    :data:`MODEL_LIMIT`."""
    off = [f"{row.model_error:.2%} at {row.head} step {row.step}" for row in rows
           if row.model_error is not None and row.model_error > MODEL_LIMIT]
    if off:
        raise AssertionError(f"the cycle model is off by more than {MODEL_LIMIT:.0%}: "
                             f"{'; '.join(off)}")
