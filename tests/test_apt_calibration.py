"""Calibration: profile, fits, refresh bits, the file, and the commands that make and use it."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from golden.__main__ import main
from golden.apt.attend import Step
from golden.apt.calibration import SHAPE_FIELDS, Calibration, refresh_bits
from golden.apt.params import AptParams
from golden.apt.tafa import threshold_code
from golden.apt.thresholds import BlockThresholds, RowColThresholds
from golden.cli.entry import run_cli
from golden.common.errors import UserError
from golden.dit import heads
from golden.dit.capture import Capture
from golden.studies import threshold_fit
from golden.studies.codec_front import sweep_of
from golden.studies.count_fit import choose_counts
from golden.studies.profile import BINS, EDGES, Profile, statistics


def some_p(rng, width, size=128):
    """Probabilities of rows that look at a neighbourhood."""
    distance = np.abs(np.arange(size)[:, None] - np.arange(size))
    p = np.exp(-distance / width + rng.normal(0, 0.8, (size, size)))
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def profile():
    """Two layers of two heads over six steps; heads become more and more concentrated."""
    rng = np.random.default_rng(1)
    result = Profile(range(6), (0, 4), 2)
    for run in range(2):
        for layer in (0, 4):
            for head in range(2):
                for step in range(6):
                    width = (60 if layer else 25) / (1 + step / 2 + head + run / 4)
                    result.add(step, layer, head, some_p(rng, width))
    return result


# Profile and fit

def test_statistics_of_a_head():
    p = some_p(np.random.default_rng(0), 5)
    p[0, :3] = 0, 2.0 ** -60, 1
    sigma, counts, mass = statistics(p)
    assert sigma == pytest.approx(np.std(p.astype(np.float64)))
    assert counts.sum() == p.size and mass.sum() == pytest.approx(p.sum(dtype=np.float64))
    assert len(EDGES) == BINS + 1 and EDGES[0] == 0 and EDGES[-2] == 1 < EDGES[-1]
    assert (EDGES[2:] / EDGES[1:-1]).max() <= 1 + 1 / 64
    for edge in (1, 40, 800, 1500, 2000, BINS - 1):
        below = p < EDGES[edge]
        assert counts[:edge].sum() == below.sum()
        assert mass[:edge].sum() == pytest.approx(p[below].sum(dtype=np.float64))


def test_profile_is_the_mean_of_the_runs():
    rng = np.random.default_rng(3)
    first, second = some_p(rng, 4), some_p(rng, 30)
    result = Profile((3,), (7,), 1)
    with pytest.raises(ValueError, match=r"^Every head must be profiled at every step$"):
        _ = result.sigma
    result.add(3, 7, 0, first)
    result.add(3, 7, 0, second)
    both = np.concatenate([first, second])
    assert result.sigma[0, 0, 0] == pytest.approx((first.std() + second.std()) / 2, rel=1e-5)
    for share in (0.2, 0.57, 0.91):
        theta = threshold_fit.quantiles(result.shares_below(), share)
        assert theta.shape == (1, 1, 1)
        assert theta[0, 0, 0] == pytest.approx(np.quantile(both, share), rel=1 / 64)
        assert (both < theta).mean() == pytest.approx(share, abs=0.01)
        theta = threshold_fit.quantiles(result.mass_below(), share)
        assert both[both < theta[0, 0, 0]].sum() / 256 == pytest.approx(share, abs=0.01)
        assert threshold_fit.share_at(result.mass_below(), theta) == pytest.approx(share)


@pytest.mark.parametrize("kind, share", [("shares_below", 0.57), ("mass_below", 0.02)])
def test_fit_reaches_the_share(profile, kind, share):
    below, sigma = getattr(profile, kind)(), profile.sigma
    low, high = sigma.min(-1, keepdims=True), sigma.max(-1, keepdims=True)
    wanted = threshold_fit.quantiles(below, share)
    off = {}
    for per in threshold_fit.PER:
        fit = threshold_fit.fit(below, sigma, share, per)
        reached = threshold_fit.share_at(below, fit.theta)
        off[per] = np.abs(reached - share).mean()
        if per == "step":
            assert np.isnan(fit.alpha).all() and np.array_equal(fit.theta, wanted)
            continue
        rule = fit.alpha[..., None] * (sigma - low) / (high - low) + fit.beta[..., None]
        assert np.allclose(fit.theta, rule, rtol=1e-12) and (fit.theta > 0).all()
        assert reached.mean() == pytest.approx(share, abs=1e-6)
        if per == "head":
            assert reached.mean(-1) == pytest.approx(np.full((2, 2), share), abs=1e-6)
            assert len(np.unique(fit.alpha)) == 4
        else:
            assert np.ptp(fit.alpha) == np.ptp(fit.beta) == 0
    assert off["step"] < 1e-6 < off["head"] < off["model"]


def test_line_of_heads_that_follow_the_rule():
    sigma = np.array([[[1.0, 3.0, 2.0, 5.0]]])
    x = threshold_fit.relative_sigma(sigma)
    assert x.tolist() == [[[0, 0.5, 0.25, 1]]]
    assert threshold_fit.relative_sigma(np.ones((1, 1, 3))).tolist() == [[[0, 0, 0]]]
    # All of each step's probabilities are next to 0.002 + 0.01 x: the line goes through them.
    theta = 0.002 + 0.01 * x
    below = np.clip((EDGES / theta[..., None] - 0.8) / 0.4, 0, 1)
    fit = threshold_fit.fit(below, sigma, 0.5, "head")
    assert fit.beta == pytest.approx(np.array([[0.002]]), rel=0.01)
    assert fit.alpha == pytest.approx(np.array([[0.01]]), rel=0.01)
    same = threshold_fit.fit(below[..., :1, :], np.ones((1, 1, 1)), 0.5, "head")
    assert same.theta == pytest.approx(np.array([[[0.002]]]), rel=0.01)  # min = max: beta


def test_quant_is_above_prune(profile):
    below, sigma = profile.shares_below(), profile.sigma
    for per in threshold_fit.PER:
        prune = threshold_fit.fit(below, sigma, 0.8, per)
        quant = threshold_fit.fit(below, sigma, 0.3, per)
        raised = threshold_fit.fit_above(prune, quant, sigma)
        assert np.allclose(raised.theta, prune.theta, rtol=1e-12)
        kept = threshold_fit.fit_above(quant, prune, sigma)
        assert np.allclose(kept.theta, prune.theta, rtol=1e-12)


# Refresh and encoder

def test_refresh_bits():
    sigma = np.array([[[1, 2, 3, 4, 5, 6, 7, 8, 9, 11.0],       # never drops
                       [9, 10, 9.5, 8.8, 9, 7.7, 7, 1, 0, 0]]])  # range 10
    none = refresh_bits(sigma, range(10), 2, 0, 1.0)
    assert not none.bits.any()
    bits = refresh_bits(sigma, range(10), 2, 4, 0.1)
    assert np.flatnonzero(bits.periodic[0, 0]).tolist() == [5, 9]  # four after the dense step 1
    assert not bits.driven[0, 0].any()
    # 10 - 8.8 > 1; then 8.8 - 7.7, 7.7 - 1, of which none waits for the period.
    assert np.flatnonzero(bits.driven[0, 1]).tolist() == [3, 5, 7]
    assert not bits.periodic[0, 1].any()
    assert np.array_equal(bits.bits, bits.periodic | bits.driven)
    # Steps that are far apart, none of them dense: the first is a refresh.
    late = refresh_bits(sigma[..., :3], (10, 14, 15), 2, 4, 1.0)
    assert late.periodic.tolist() == [[[False, True, False]] * 2]


@pytest.mark.parametrize("codec", ["block", "rowcol"])
def test_counts_within_bounds(codec):
    params = AptParams(tile_q=8, tile_k=8, lanes=4, codec=codec, window_qk=1, window_pv=1)
    sweep = sweep_of(params)
    p = some_p(np.random.default_rng(5), 4, 64)
    high, valid = heads.masks_of(p, *heads.calibrate(p))
    sweep.add(p, high, valid)
    steps = []
    for lost, demoted in ((0.01, 0.2), (0.05, 0.5), (0, 0)):
        chosen = choose_counts(sweep, lost, demoted, lambda: steps.append(0))
        parts = list(sweep.slices())
        cost = np.concatenate([part.cost for part in parts])
        allowed = np.concatenate([(part.lost <= lost + 1e-9) & (
            part.demoted <= demoted * sweep.high_mass + 1e-9) for part in parts])
        assert chosen.cost == cost[allowed].min() and 0 < allowed.mean() < 1
        assert chosen.lost <= lost + 1e-9
        assert set(chosen.thresholds) == set(sweep.names)
    assert len(steps) == 3 * sweep.slice_count


# The file

def some_calibration(**changes):
    theta = np.stack([np.geomspace(1e-5, 1e-3, 24), np.geomspace(1e-4, 0.3, 24)])
    fields = {
        "shape": {name: getattr(AptParams(), name) for name in SHAPE_FIELDS},
        "steps": (0, 1, 2, 5), "layers": (0, 4), "sigma": np.arange(1, 25.0).reshape(2, 3, 4),
        "theta": theta.reshape(2, 2, 3, 4),
        "refresh": np.arange(24).reshape(2, 3, 4) % 5 == 0, "dense_steps": 2,
        "counts": BlockThresholds(9, 6), "alpha": np.full((2, 2, 3), np.nan),
        "beta": np.full((2, 2, 3), 0.25), "report": {"per": "head", "wanted": {"pruned": 0.5}}}
    return Calibration(**{**fields, **changes})


def test_calibration_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "cal.json"
    written = some_calibration()
    path.write_text(written.text())
    read = Calibration.load(path, AptParams())
    for name in ("shape", "steps", "layers", "heads", "dense_steps", "counts", "report"):
        assert getattr(read, name) == getattr(written, name)
    for name in ("sigma", "theta", "refresh", "alpha", "beta", "codes"):
        assert np.array_equal(getattr(read, name), getattr(written, name),
                              equal_nan=name == "alpha")
    document = json.loads(path.read_text())
    assert document["codes"]["prune"][1][2][3] == int(threshold_code(1e-3))
    assert document["sigma_min"][1] == [13, 17, 21] and document["alpha"]["quant"][0][0] is None
    assert read.step(4, 1, 5) == Step(
        tuple(threshold_code(written.theta[:, 1, 1, 3]).tolist()), False,
        bool(written.refresh[1, 1, 3]), BlockThresholds(9, 6))
    assert [read.step(0, 0, step).dense for step in read.steps] == [True, True, False, False]
    assert {type(code) for code in read.step(0, 0, 0).codes} == {int}
    rowcol = some_calibration(shape={**written.shape, "codec": "rowcol"},
                              counts=RowColThresholds(1, 2, 3, 4))
    path.write_text(rowcol.text())
    assert Calibration.load(path).step(0, 2, 1).counts == RowColThresholds(1, 2, 3, 4)


def test_missing_heads_and_steps():
    for place, message in (((1, 0, 0), "layer 1; it has 0, 4"),
                           ((0, 3, 0), "head 3; it has 0, 1, 2"),
                           ((0, 0, 3), "step 3; it has 0, 1, 2, 5")):
        with pytest.raises(UserError, match=f"^The calibration has no {message}$"):
            some_calibration().step(*place)


@pytest.mark.parametrize("change, message", [
    ({"format": 2}, 'must be a calibration file, with "format": "tilewright calibration 1"'),
    ({"theta": None}, "entry 'theta' is missing"),
    ({"steps": [0, 2, 1, 5]}, "steps must be integers in rising order"),
    ({"layers": []}, "layers must be integers in rising order"),
    ({"heads": 4}, r"sigma must be numbers of shape \[2, 4, 4\]"),
    ({"sigma": "x"}, r"sigma must be numbers of shape \[2, 3, 4\]"),
    ({"refresh": [[[2] * 4] * 3] * 2}, "refresh must consist of 0 and 1"),
    ({"dense_steps": 0}, "dense_steps must be an integer of at least 1, not 0"),
    ({"counts": {"k_hp": 1}}, "counts must be integers k_hp, k_v"),
    ({"counts": {"k_hp": 1, "k_v": -1}}, "counts must be integers k_hp, k_v"),
    ({"counts": {"k_hp": 1, "k_v": 33}}, r"BlockThresholds.k_v must be in 0..32, not 33"),
    ({"counts": 3}, "counts must be integers k_hp, k_v"),
    ({"heads": "x"}, "heads must be an integer of at least 1, not 'x'"),
    ({"codes": {"prune": [[[5] * 4] * 3] * 2, "quant": [[[5] * 4] * 3] * 2}},
     "codes must be -log2 of the thresholds, Q5.11"),
    ({"theta": {"prune": [[[2] * 4] * 3] * 2, "quant": [[[1] * 4] * 3] * 2}},
     "thresholds must be above 0 and at most 1"),
    ({"shape": {}}, "entry 'tile_q' is missing"),
    ({"shape": {"tile_q": 4, "tile_k": 8, "codec": "x", "rowcol_decode": "or", "block_rows": 4,
                "block_cols": 8}}, "AptParams.codec must be rowcol or block, not 'x'"),
])
def test_files_that_are_no_calibration(tmp_path, change, message):
    document = some_calibration().document()
    document.update(change)
    path = tmp_path / "cal.json"
    path.write_text(json.dumps({name: value for name, value in document.items()
                                if value is not None}))
    with pytest.raises(UserError, match=f"{message}$") as caught:
        Calibration.load(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_calibration_for_another_engine(tmp_path):
    path = tmp_path / "cal.json"
    path.write_text(some_calibration().text())
    with pytest.raises(UserError, match=r"cal.json is for tile_k 128, not 64$"):
        Calibration.load(path, AptParams(tile_k=64))


# Commands

@pytest.fixture
def golden(capsys):
    """Run a command line; gives status, standard output and standard error."""
    def run(*args):
        with pytest.raises(SystemExit) as caught:
            run_cli(main, "golden", [str(arg) for arg in args])
        text = capsys.readouterr()
        return caught.value.code, text.out, text.err
    return run


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Three steps of three heads that drift, made without the transformer."""
    rng = np.random.default_rng(5)
    place = np.arange(1024)[:, None] / 1024 * rng.uniform(1, 9, 64)
    q = np.cos(place + rng.uniform(0, 1, (1, 1, 3, 1, 64)), dtype=np.float32) * 2
    noise = rng.standard_normal((3, *q.shape), dtype=np.float32)
    drift = rng.standard_normal((3, 3, *q.shape[1:]), dtype=np.float32) / 20
    q, k, v = (np.concatenate([x] * 3) + part for x, part in zip(
        (q + noise[0] / 4, q + noise[1] / 4, noise[2]), drift, strict=True))
    path = tmp_path_factory.mktemp("heads") / "heads.npz"
    Capture(category=1, style=0, seed=0, steps=(7, 8, 9), layers=(2,), q=q, k=k, v=v).save(path)
    return path


def test_calibrate_and_attention(golden, captured, tmp_path):
    path, figures = tmp_path / "new" / "cal.json", tmp_path / "figures.json"
    status, out, _ = golden("calibrate", "--qkv", captured, "--max-lost", 0.02, "--per", "step",
                            "--dense-steps", 8, "--refresh-every", 1, "-o", path)
    assert status == 0 and f"{path}: 1 layers, 3 heads, 3 steps" in out
    calibration = Calibration.load(path)
    assert calibration.steps == (7, 8, 9) and calibration.dense_steps == 8
    assert calibration.refresh.tolist() == [[[False, True, True]] * 3]
    taken = Capture.load(captured)
    for head in range(3):
        p = heads.probabilities(*taken.at(8, 2, head)[:2])
        theta_p, theta_q = calibration.theta[:, 0, head, 1]
        assert p[p < theta_p].sum() / 1024 == pytest.approx(0.02, abs=1e-3)
        # Nothing below the quant threshold but what is pruned: these heads are concentrated.
        assert (p >= theta_q).mean() == pytest.approx(0.09, abs=2e-3) or theta_q == theta_p
    document = json.loads(path.read_text())
    assert document["wanted"] == {"lost": 0.02, "high": 0.09} and document["per"] == "step"
    assert document["runs"] == [{"category": 1, "style": 0, "seed": 0}]
    assert document["achieved"]["lost"] == pytest.approx(0.02, abs=1e-6)
    assert document["code"]["lost"] <= 0.01 and document["code"]["demoted_of_high"] <= 0.2 + 1e-6
    assert document["achieved"] == document["by_rule"]["step"]

    status, out, _ = golden("attention", "--qkv", captured, "--cal", path, "--json", figures)
    assert status == 0
    document = json.loads(figures.read_text())
    assert len(document["heads"]) == 3 and document["calibration"] == str(path)
    for head in document["heads"]:
        assert [line["step"] for line in head["steps"]] == [8, 9]
        for line in head["steps"]:
            levels = line["qsnr"]
            assert levels["int12"] > 50 and line["computed"] == 1  # refreshed
            assert line["gap"] == pytest.approx(levels["int12 masks"] - levels["apt"])
            assert levels["apt"] < levels["int12 masks"] + 0.3 and levels["truncate"] > 5
            assert 0.005 < line["lost"] < 0.05
    gaps = [line["gap"] for head in document["heads"] for line in head["steps"]]
    assert document["gap_median"] == pytest.approx(np.median(gaps))
    assert f"median {np.median(gaps):.2f} dB" in out
    assert f"pooled {document['gap_pooled']:.2f} dB" in out


def test_calibrate_samples(golden, tmp_path):
    path = tmp_path / "cal.json"
    status, out, err = golden("calibrate", "--classes", "2", "--steps", 1, "-o", path)
    assert status == 0 and "1 run(s), 30 heads and steps" in out and "sampling" in err
    calibration = Calibration.load(path, AptParams())
    assert calibration.theta.shape == (2, 10, 3, 1) and not calibration.refresh.any()
    assert (calibration.theta[1] > calibration.theta[0]).all()
    # One step: the deviation has no range, and the threshold is beta.
    assert np.allclose(calibration.theta[..., 0], calibration.beta)
    achieved = calibration.report["achieved"]
    assert achieved["pruned"] == pytest.approx(0.57, abs=1e-6)
    assert achieved["high"] == pytest.approx(0.09, abs=1e-6)


@pytest.mark.parametrize("line, message", [
    ("calibrate --pruned 0.5 --max-lost 0.1", "Give --pruned or --max-lost, not both."),
    ("attention --high 0.5 --max-low 0.1", "Give --high or --max-low, not both."),
    ("calibrate --pruned 0.9 --high 0.2", "The wanted shares leave nothing for low precision."),
    ("calibrate --pruned 1", "Invalid value for '--pruned': 1.0 is not in the range 0<x<1."),
    ("calibrate --tile-k 100", "--tile-k must divide the 1024 tokens of a head, not 100"),
    ("attention --first 25 --count 4",
     "--first and --count must stay within the 28 steps of a run, not 25 + 4"),
    ("calibrate --dense-steps 0",
     "Invalid value for '--dense-steps': 0 is not in the range 1<=x<=1000."),
])
def test_mistakes(golden, line, message):
    status, out, err = golden(*line.split())
    assert (status, out, err) == (2, "", f"golden: error: {message}\n")


def test_unusable_files(golden, captured, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("{")
    folder = tmp_path / "folder"
    folder.mkdir()
    single = tmp_path / "single.npz"
    taken = Capture.load(captured)
    Capture(category=1, style=0, seed=0, steps=(7, 9), layers=(2,), q=taken.q[:2], k=taken.k[:2],
            v=taken.v[:2]).save(single)
    cal = tmp_path / "cal.json"
    cal.write_text(some_calibration().text())
    out = tmp_path / "new.json"
    for line, message in (
        (("calibrate", "--qkv", bad, "-o", out), "bad must be a file that `golden capture` wrote"),
        (("calibrate", "--qkv", captured, "--qkv", single, "-o", out),
         "single.npz must have the steps and layers of .*heads.npz"),
        (("calibrate", "-o", folder), "cannot use .*folder: Is a directory"),
        (("attention", "--qkv", captured, "--cal", bad), "bad must be a calibration file: "),
        (("attention", "--qkv", captured, "--cal", cal), "The calibration has no layer 2; "),
        (("attention", "--qkv", captured, "--cal", tmp_path / "no"), "no: No such file"),
        (("attention", "--qkv", single), "single.npz must hold two or more consecutive steps"),
    ):
        status, text, err = golden(*line)
        error = err.splitlines()[-1]
        assert (status, text) == (2, "") and re.match(f"golden: error: .*{message}", error), error
        assert not out.exists() and not [*tmp_path.glob(".*")]


def test_help_comes_without_a_model():
    run = subprocess.run([sys.executable, "-m", "golden", "calibrate", "--help"], check=True,
                         capture_output=True, text=True)
    assert "--max-lost" in run.stdout and "--per [head|model|step]" in run.stdout
