"""``python -m golden calibrate``: thresholds, refresh bits and encoder settings of a model."""

import functools
import pathlib
from typing import NamedTuple

import click
import numpy as np
from rich import box
from rich.table import Table

from golden.apt.calibration import SHAPE_FIELDS, Calibration, Refresh, refresh_bits
from golden.apt.params import CODECS, AptParams
from golden.apt.thresholds import THRESHOLDS
from golden.common.errors import UserError
from golden.common.files import writing_whole
from golden.dit import heads
from golden.dit.capture import Capture
from golden.dit.model import (
    DEPTH,
    HEADS,
    STEPS,
    Dit,
    attention,
    initial_noise,
    label_names,
    trajectory,
)
from golden.studies import threshold_fit
from golden.studies.codec_front import sweep_of
from golden.studies.count_fit import choose_counts
from golden.studies.profile import Profile

from .entry import console
from .options import IntegerList, sampling_progress
from .studies import NumberList, check_tile, progress_bar


__all__ = ["calibrate_command", "calibration_of", "check_targets", "fit_thresholds",
           "profile_captures", "target_options"]

#: Shares of the elements that are wanted where nothing is said: APT's for PixArt, rounded.
_PRUNED, _HIGH = 0.57, 0.09
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


class _Profiler:
    """An attention hook that profiles guided passes and keeps Q and K of some heads.

    ``kept`` has those of three steps and three layers of the first run.
    """

    def __init__(self, profile):
        self._profile, self.kept = profile, {}
        self._steps, self._layers = _spread(profile.steps), _spread(profile.layers)

    def add(self, step, layer, head, q, k):
        p = heads.probabilities(q, k)
        self._profile.add(step, layer, head, p)
        if step in self._steps and layer in self._layers:
            self.kept.setdefault((layer, head, step), (q.copy(), k.copy()))
        return p

    def __call__(self, q, k, v, *, step, layer, guided):
        if not guided:
            return attention(q, k, v, step=step, layer=layer, guided=guided)
        return np.stack([self.add(step, layer, head, q[head], k[head]) @ v[head]
                         for head in range(len(q))])


def _spread(numbers):
    """An early, a middle and a late one: what count thresholds are chosen on."""
    return {numbers[len(numbers) * part // 6] for part in (1, 3, 5)}


def _sampled(runs, total_steps):
    profile = Profile(range(total_steps), range(DEPTH), HEADS)
    profiler = _Profiler(profile)
    model = Dit.load()
    with sampling_progress(len(runs) * total_steps) as on_step:
        for number, run in enumerate(runs):
            images = trajectory(model, initial_noise(run["seed"]), category=run["category"],
                                style=run["style"], steps=total_steps, attn=profiler)
            for done, _ in enumerate(images, 1):
                on_step(number * total_steps + done)
    return profile, profiler.kept


def profile_captures(captures, names=None):
    """Profile of captures, which must have the same steps and layers, and the heads kept of it."""
    profile = None
    for number, taken in enumerate(captures):
        if profile is None:
            profile = Profile(taken.steps, taken.layers, taken.q.shape[2])
            profiler = _Profiler(profile)
        if (taken.steps, taken.layers) != (profile.steps, profile.layers):
            raise UserError(f"{names[number]} must have the steps and layers of {names[0]}")
        with progress_bar("profiling", len(taken.steps) * len(taken.layers)) as advance:
            for step in taken.steps:
                for layer in taken.layers:
                    for head in range(profile.heads):
                        profiler.add(step, layer, head, *taken.at(step, layer, head)[:2])
                    advance()
    return profile, profiler.kept


def _captured(paths):
    """The same of files, one in memory at a time, and their runs."""
    runs = []

    def captures():
        for path in paths:
            taken = Capture.load(path)
            runs.append({name: getattr(taken, name) for name in ("category", "style", "seed")})
            yield taken

    return *profile_captures(captures(), paths), runs


def fit_thresholds(profile, targets, per):
    """Prune and quant :class:`~golden.studies.threshold_fit.Fit` of ``targets``.

    Each target is the kind of share (``elements`` or ``mass``) and the share below the threshold.
    """
    below = {"elements": profile.shares_below(), "mass": profile.mass_below()}
    prune, quant = (threshold_fit.fit(below[kind], profile.sigma, share, per)
                    for kind, share in targets)
    return prune, threshold_fit.fit_above(prune, quant, profile.sigma)


def _reached(profile, prune, quant):
    """Shares by head and step: elements pruned and high, mass lost and mass in low precision."""
    below, mass = profile.shares_below(), profile.mass_below()
    lost = threshold_fit.share_at(mass, prune.theta)
    return {"pruned": threshold_fit.share_at(below, prune.theta),
            "high": 1 - threshold_fit.share_at(below, quant.theta),
            "lost": lost, "low_mass": threshold_fit.share_at(mass, quant.theta) - lost}


def _wanted(targets):
    """What of :func:`_reached` a target is for, and its value."""
    (prune, low), (quant, below) = targets
    return [("pruned" if prune == "elements" else "lost", low),
            ("high", round(1 - below, 12)) if quant == "elements" else ("low_mass", below)]


def _summary(reached, wanted):
    """Achieved shares and how far heads, and heads and steps, are off the wanted ones."""
    result = {name.replace(" ", "_"): float(shares.mean()) for name, shares in reached.items()}
    for name, share in wanted:
        # What may be in low precision is bounded together with what is lost.
        off = reached[name] + (reached["lost"] if name == "low_mass" else 0) - share
        result[f"{name}_off"] = {
            "mean": float(np.abs(off).mean()), "worst": float(np.abs(off).max()),
            "worst_head": float(np.abs(off.mean(-1)).max())}
    return result


def _table(summaries, wanted, chosen):
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("alpha, beta per")
    columns = ("pruned", "high", "lost", "low_mass")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for name, _ in wanted:
        table.add_column(f"{name.replace('_', ' ')} off: mean, worst", justify="right")
    for per, summary in summaries.items():
        offs = [summary[f"{name}_off"] for name, _ in wanted]
        table.add_row(f"{per} (quantiles)" if per == "step" else per,
                      *(f"{summary[name]:.2%}" for name in columns),
                      *(f"{off['mean']:.2%}, {off['worst']:.1%}" for off in offs),
                      style="bold" if per == chosen else None)
    return table


def _counts(kept, profile, prune, quant, params, bounds):
    sweep = sweep_of(params)
    with progress_bar("counting heads", len(kept)) as advance:
        for (layer, head, step), (q, k) in kept.items():
            where = profile.layers.index(layer), head, profile.steps.index(step)
            p = heads.probabilities(q, k)
            sweep.add(p, *heads.masks_of(p, prune.theta[where], quant.theta[where]))
            advance()
    kept.clear()
    with progress_bar("encoder thresholds", sweep.slice_count) as advance:
        return choose_counts(sweep, *bounds, advance), sweep.high_mass


class Result(NamedTuple):
    """A calibration and what the command says of it."""

    calibration: Calibration
    fits: tuple       #: of the prune and the quant threshold
    summaries: dict   #: by rule
    wanted: list
    refresh: Refresh


def calibration_of(profile, kept, targets, per, params, *, runs=(), dense_steps=1,
                   refresh_every=0, refresh_drop=1.0, code_bounds=(0.01, 0.2)):
    """The :class:`Result` of a profile; ``kept`` are heads that count thresholds are chosen on."""
    fits = {each: fit_thresholds(profile, targets, each) for each in threshold_fit.PER}
    wanted = _wanted(targets)
    summaries = {each: _summary(_reached(profile, *pair), wanted) for each, pair in fits.items()}
    prune, quant = fits[per]
    refresh = refresh_bits(profile.sigma, profile.steps, dense_steps, refresh_every, refresh_drop)
    setting, high_mass = _counts(kept, profile, prune, quant, params, code_bounds)
    code = {"cost": setting.cost, "lost": setting.lost,
            "demoted_of_high": setting.demoted / max(high_mass, 1e-12)}
    calibration = Calibration(
        shape={name: getattr(params, name) for name in SHAPE_FIELDS}, steps=profile.steps,
        layers=profile.layers, sigma=profile.sigma, theta=np.stack([prune.theta, quant.theta]),
        refresh=refresh.bits, dense_steps=dense_steps,
        counts=THRESHOLDS[params.codec](**setting.thresholds),
        alpha=np.stack([prune.alpha, quant.alpha]), beta=np.stack([prune.beta, quant.beta]),
        report={"runs": list(runs), "per": per, "wanted": dict(wanted),
                "achieved": summaries[per], "by_rule": summaries,
                "refresh_every": refresh_every, "refresh_drop": refresh_drop, "code": code})
    return Result(calibration, (prune, quant), summaries, wanted, refresh)


def _report(result, profile, per, runs):
    console.print(_table(result.summaries, result.wanted, per))
    click.echo(f"{runs} run(s), {profile.sigma.size} heads and steps; sigma "
               f"{profile.sigma.min():.2e} to {profile.sigma.max():.2e}. Shares are those of masks "
               "from\nexact probabilities; off: how far heads and steps are from the wanted share.")
    if per != "step":
        for name, pair in zip(("prune", "quant"), result.fits, strict=True):
            click.echo(f"{name}: alpha {pair.alpha.min():.2e} to {pair.alpha.max():.2e}, "
                       f"beta {pair.beta.min():.2e} to {pair.beta.max():.2e}")
    bits = result.refresh
    click.echo(f"refresh: {bits.periodic.sum()} periodic, {bits.driven.sum()} by sigma, of "
               f"{bits.bits.size} heads and steps; "
               f"{result.calibration.dense_steps} dense steps")
    code = result.calibration.report["code"]
    counts = ", ".join(f"{name} {value}"
                       for name, value in result.calibration.counts._asdict().items())
    click.echo(f"encoder: {counts}: cost {code['cost']:.3f}, mass lost {code['lost']:.2%}, of the "
               f"high-precision mass demoted {code['demoted_of_high']:.1%}")


def target_options(command):
    """The wanted shares, as the argument ``targets`` for :func:`check_targets`."""
    names = ("pruned", "max_lost", "high", "max_low")

    @functools.wraps(command)
    def with_targets(**arguments):
        return command(targets={name: arguments.pop(name) for name in names}, **arguments)

    for option in (
        click.option("--max-low", type=_SHARE, help="Or share of the mass that need not be in "
                     "high precision, the lost one included."),
        click.option("--high", type=_SHARE, help="Share of the elements in high precision; "
                     f"default {_HIGH}."),
        click.option("--max-lost", type=_SHARE,
                     help="Or share of the mass (sum of P) that may be pruned."),
        click.option("--pruned", type=_SHARE, help="Share of the elements to prune; "
                     f"default {_PRUNED}."),
    ):
        with_targets = option(with_targets)
    return with_targets


def check_targets(*, pruned, max_lost, high, max_low):
    """Targets of :func:`fit_thresholds`."""
    for first, second in ((("--pruned", pruned), ("--max-lost", max_lost)),
                          (("--high", high), ("--max-low", max_low))):
        if first[1] is not None and second[1] is not None:
            raise click.UsageError(f"Give {first[0]} or {second[0]}, not both.")
    targets = (("elements", _PRUNED if pruned is None else pruned) if max_lost is None
               else ("mass", max_lost),
               ("elements", 1 - (_HIGH if high is None else high)) if max_low is None
               else ("mass", max_low))
    if targets[0][0] == targets[1][0] and targets[0][1] >= targets[1][1]:
        raise click.UsageError("The wanted shares leave nothing for low precision.")
    return targets


@click.command("calibrate")
@click.option("--qkv", "paths", metavar="NPZ", multiple=True,
              type=click.Path(path_type=pathlib.Path),
              help="Profile a capture (`golden capture`) in place of sampling; may be repeated.")
@click.option("--classes", type=IntegerList(len(label_names()[0])), default="2,5",
              show_default=True, metavar="LIST", help="Classes to profile.")
@click.option("--styles", type=IntegerList(len(label_names()[1])), default="2",
              show_default=True, metavar="LIST", help="Styles to profile.")
@click.option("--seeds", type=NumberList(int, 0, 2 ** 63 - 1), default="3", show_default=True,
              metavar="LIST", help="Seeds to profile, each with every class and style.")
@click.option("--steps", "total_steps", type=click.IntRange(1, 1000), default=STEPS,
              show_default=True, help="Denoising steps of a run.")
@target_options
@click.option("--per", type=click.Choice(threshold_fit.PER), default="head", show_default=True,
              help="Whether a pair alpha, beta serves a head or the model; step: no rule, the "
                   "quantiles of every head and step.")
@click.option("--dense-steps", type=click.IntRange(1, 1000), default=2, show_default=True,
              help="First steps that are dense.")
@click.option("--refresh-every", type=click.IntRange(0, 1000), default=8, show_default=True,
              help="Steps from one refresh to the next; 0: no periodic refresh.")
@click.option("--refresh-drop", type=click.FloatRange(0, 1), default=0.05, show_default=True,
              help="Drop of sigma, as a share of its range, that refreshes a head; 1: none.")
@click.option("--tile-q", type=click.IntRange(2, 256), default=64, show_default=True,
              help="Query rows of a tile.")
@click.option("--tile-k", type=click.IntRange(16, 512), default=128, show_default=True,
              help="Keys of a tile.")
@click.option("--codec", type=click.Choice(CODECS), default="block", show_default=True,
              help="Mask codec; blocks are of 4 x 8 elements.")
@click.option("--code-lost", type=click.FloatRange(0, 1), default=0.01, show_default=True,
              help="Share of all mass that the codec may lose.")
@click.option("--code-demoted", type=click.FloatRange(0, 1), default=0.2, show_default=True,
              help="Share of the high-precision mass that it may run in low precision.")
@click.option("-o", "--output", metavar="JSON", default="build/cal.json", show_default=True,
              type=click.Path(path_type=pathlib.Path), help="File to write.")
def calibrate_command(paths, classes, styles, seeds, total_steps, targets, per,
                      dense_steps, refresh_every, refresh_drop, tile_q, tile_k, codec,
                      code_lost, code_demoted, output):
    """Thresholds, refresh and encoder settings of every head and step, from its probabilities.

    Profiles sampling runs (guided passes), or captures of Q and K, and fits the thresholds to the
    wanted shares.
    """
    targets = check_targets(**targets)
    check_tile(tile_q, [tile_k])
    params = AptParams(tile_q=tile_q, tile_k=tile_k, codec=codec, window_qk=1, window_pv=1)

    with writing_whole(output) as temporary:  # first, so that a bad path fails before the work
        if paths:
            profile, kept, runs = _captured(paths)
        else:
            runs = [{"category": category, "style": style, "seed": seed}
                    for category in classes for style in styles for seed in seeds]
            profile, kept = _sampled(runs, total_steps)
        result = calibration_of(profile, kept, targets, per, params, runs=runs,
                                dense_steps=dense_steps, refresh_every=refresh_every,
                                refresh_drop=refresh_drop, code_bounds=(code_lost, code_demoted))
        temporary.write_text(result.calibration.text())

    _report(result, profile, per, len(runs))
    click.echo(f"{output}: {len(profile.layers)} layers, {profile.heads} heads, "
               f"{len(profile.steps)} steps")
