"""The study of real heads: settings by a calibration or without, figures of rows, totals."""

import json
import types

import numpy as np
import pytest

from golden.apt.calibration import Calibration
from golden.apt.cycles import work_of
from golden.apt.job import Region, moved_beats
from golden.apt.params import AptParams
from golden.apt.tafa import threshold_code
from golden.apt.thresholds import BlockThresholds
from golden.common.errors import UserError
from golden.dit.capture import Capture
from verif.__main__ import main
from verif.engine import study
from verif.engine.study import check_calibration, rows_of, study_plan, total_of


PARAMS = AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                   placement="modulo", window_qk=1, window_pv=1)
STEPS = (12, 13, 14, 15)
HEADS = ((0, 1), (2, 0))
TOKENS = 48
#: Regions that are read.
READ = (Region.Q, Region.K, Region.V, Region.CODE_IN, Region.STATE_IN, Region.ROWS_IN)


def capture_of(seed=1):
    """Two layers of two heads that drift over four steps."""
    rng = np.random.default_rng(seed)
    shape = (len(STEPS), 2, 2, TOKENS, 16)
    q, k, v = (2 * rng.standard_normal(shape[1:])
               + 0.05 * rng.standard_normal(shape) for _ in range(3))
    return Capture(category=0, style=0, seed=0, steps=STEPS, layers=(0, 2),
                   q=q.astype(np.float32), k=k.astype(np.float32), v=v.astype(np.float32))


def calibration_of(layers=(0, 2), steps=STEPS, dense_steps=2):
    """Thresholds that differ at every head and step; layer 2, head 0 is refreshed at step 15."""
    size = len(layers), 2, len(steps)
    prune = 0.004 + 0.001 * np.arange(np.prod(size)).reshape(size)
    refresh = np.zeros(size, bool)
    refresh[-1, 0, -1] = True
    shape = {name: getattr(PARAMS, name) for name in
             ("tile_q", "tile_k", "codec", "rowcol_decode", "block_rows", "block_cols")}
    return Calibration(shape=shape, steps=steps, layers=layers, sigma=np.ones(size),
                       theta=np.stack([prune, 8 * prune]), refresh=refresh,
                       dense_steps=dense_steps, counts=BlockThresholds(5, 2),
                       alpha=np.zeros((2, *size[:2])), beta=np.zeros((2, *size[:2])))


def settings(plan):
    return [job.step for job in plan.jobs]


def test_a_calibration_drives_the_heads(tmp_path):
    path = tmp_path / "cal.json"
    path.write_text(calibration_of().text())
    calibration = Calibration.load(path, PARAMS)
    check_calibration(calibration, heads=HEADS, steps=STEPS)
    plan, entries = study_plan(capture_of(), PARAMS, heads=HEADS, queries=16,
                               calibration=calibration)
    assert [entry.step for entry in entries] == 2 * list(STEPS)
    steps = settings(plan)
    assert [step.dense for step in steps] == 2 * [True, True, False, False]
    assert [step.refresh for step in steps] == 7 * [False] + [True]
    assert all(step.counts == (5, 2) for step in steps)
    wanted = [calibration.codes[:, layer // 2, head, at].tolist()
              for layer, head in HEADS for at in range(len(STEPS))]
    assert [list(step.codes) for step in steps] == wanted
    # Steps that the file has dense are so, whatever their place.
    plan, _ = study_plan(capture_of(), PARAMS, heads=HEADS[:1], queries=16,
                         calibration=calibration_of(dense_steps=15))
    assert [step.dense for step in settings(plan)] == [True, True, True, False]


def test_without_one_heads_have_thresholds_of_their_own():
    plan, entries = study_plan(capture_of(), PARAMS, heads=HEADS[:1])
    steps = settings(plan)
    assert [step.dense for step in steps] == [True, True, False, False]
    assert not any(step.refresh for step in steps)
    for entry, step in zip(entries, steps, strict=True):
        high, valid, p = entry.masks
        assert 1 - valid.mean() == pytest.approx(0.573, abs=0.002)
        assert high.mean() == pytest.approx(0.091, abs=0.002)
        assert step.codes == tuple(threshold_code(np.quantile(p, [0.573, 0.909])).tolist())


@pytest.mark.parametrize("calibration, message", [
    (calibration_of(layers=(0, 3)), "The calibration has no layer 2; it has 0, 3"),
    (calibration_of(steps=(12, 13)), "The calibration has no step 14; it has 12, 13"),
])
def test_a_missing_head_or_step_is_an_error(calibration, message):
    with pytest.raises(UserError) as error:
        check_calibration(calibration, heads=HEADS, steps=STEPS)
    assert str(error.value) == message


def test_the_command_checks_the_calibration_before_it_runs_anything(tmp_path, monkeypatch):
    monkeypatch.setattr("verif.__main__.run_all", lambda *_, **__: pytest.fail("has begun"))
    monkeypatch.setattr("verif.__main__.require_simulator", lambda simulator: None)

    def message(text):
        path = tmp_path / "cal.json"
        path.write_text(text)
        with pytest.raises(UserError) as error:
            main(["sd_mpu", "--preset", "tiny", "--calibration", str(path)],
                 standalone_mode=False)
        return str(error.value).removeprefix(f"{path}")
    layers = calibration_of(layers=(0, 4), steps=(12, 13, 14))
    assert message(layers.text()) == "The calibration has no layer 9; it has 0, 4"
    document = json.loads(layers.text())
    assert message(json.dumps({**document, "shape": {**document["shape"], "tile_k": 32}})
                   ) == " is for tile_k 32, not 16"
    del document["refresh"]
    assert message(json.dumps(document)) == ": entry 'refresh' is missing"


class _Run:
    """A run whose counters are what the model predicts."""

    def __init__(self, plan, per_job):
        self.memory, self.done, now = None, [], 0
        for number, job in enumerate(plan.jobs):
            works = [work for row in work_of(job.expected.tiles, job.layout,
                                             dense=job.step.dense) for work in row]
            elements, high = (int(sum(getattr(work, name).sum() for work in works))
                              for name in ("valid", "hp"))
            beats = moved_beats(job.layout, dense=job.step.dense, has_state=not job.first)
            read = sum(beats[region] for region in READ)
            now += per_job[number]
            self.done.append((now, 0, {
                "qk": per_job[number] // 2, "pv": per_job[number] // 2,
                "read_beats": read, "written_beats": sum(beats.values()) - read,
                "lp_blocks": sum(int(work.lp_blocks.sum()) for work in works),
                "hp_blocks": sum(int(work.hp_blocks.sum()) for work in works),
                "elements": elements, "hp_elements": high,
                "pv_passes": (elements + 3 * high) * plan.params.column_passes}))


def test_rows_and_their_total_say_what_the_masks_cost_and_lose(monkeypatch):
    plan, entries = study_plan(capture_of(), PARAMS, heads=HEADS, queries=16,
                               calibration=calibration_of())
    monkeypatch.setattr(plan, "check", lambda number, memory: 7)
    monkeypatch.setattr(plan, "check_rest", lambda memory: None)
    monkeypatch.setattr(study, "predict", lambda *_, **__: types.SimpleNamespace(
        qk=1, pv=1, total=1))
    per_job = [9000, 9000, 2000, 1500, 8000, 8000, 2500, 4000]
    rows = rows_of(plan, entries, _Run(plan, per_job), None)
    assert [row.cycles for row in rows] == per_job
    masked = [(row, job, entry) for row, job, entry in zip(rows, plan.jobs, entries, strict=True)
              if not row.dense]
    assert len(masked) == 4
    lost = demoted = all_high = 0
    for row, job, entry in masked:
        high, valid, p = entry.masks
        computed = np.concatenate([tile.hp | tile.lp for tile in job.expected.tiles[0]], 1)
        computed_hp = np.concatenate([tile.hp for tile in job.expected.tiles[0]], 1)
        assert row.lost == pytest.approx(p[valid & ~computed].sum() / p.sum(), abs=1e-6)
        assert row.demoted == pytest.approx(p[high & computed & ~computed_hp].sum()
                                            / p[high].sum(), abs=1e-6)
        # The bound is 2 over the costs of QK and PV, each as a share of dense high precision.
        new = np.concatenate([tile.new_hp | tile.new_lp for tile in job.expected.tiles[0]], 1)
        new_hp = np.concatenate([tile.new_hp for tile in job.expected.tiles[0]], 1)
        blocks = computed.reshape(4, 4, -1, 8).any((1, 3))
        hp_blocks = computed_hp.reshape(4, 4, -1, 8).any((1, 3))
        cost_qk = (blocks.mean() + 3 * hp_blocks.mean()) / 4
        cost_pv = (new.mean() + 3 * new_hp.mean()) / 4
        assert row.bound == pytest.approx(2 / (cost_qk + cost_pv))
        lost += p[valid & ~computed].sum()
        demoted += p[high & computed & ~computed_hp].sum()
        all_high += p[high].sum()
    assert [row.speed_up for row, *_ in masked] == pytest.approx([4.5, 6, 3.2, 2])
    wrong = _Run(plan, per_job)
    wrong.done[2][2]["read_beats"] += 1
    with pytest.raises(AssertionError, match=r"^layer 0 head 1 step 14: counter read_beats is "):
        rows_of(plan, entries, wrong, None)
    total = total_of(rows)
    assert total.rows == 4 and total.speed_up == pytest.approx(2 * (9000 + 8000) / 10000)
    assert total.lost == pytest.approx(lost / (4 * 16), abs=1e-6)
    assert total.demoted == pytest.approx(demoted / all_high, abs=1e-6)
    assert total.bound == pytest.approx(
        4 / sum(1 / row.bound for row, *_ in masked))
    assert total.pruned == pytest.approx(np.mean([row.pruned for row, *_ in masked]))
    assert total_of([row for row in rows if row.dense]) is None
