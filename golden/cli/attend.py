"""``python -m golden attention``: QSNR of the engine's attention, head by head over steps."""

import contextlib
import pathlib
import statistics

import click
from rich import box
from rich.table import Table

from golden.apt.calibration import Calibration
from golden.apt.params import STATE_BITS, AptParams
from golden.common.errors import UserError
from golden.common.files import writing_whole
from golden.dit import heads
from golden.dit.capture import Capture, capture
from golden.dit.fixture import fixed_point
from golden.dit.model import DEPTH, STEPS
from golden.studies.attention import VARIANTS, Energy, HeadChain

from .calibrate import calibration_of, check_targets, profile_captures, target_options
from .entry import print_wide
from .options import IntegerList, sampling_progress
from .studies import output_options, progress_bar, write_json


__all__ = ["attention_command"]


def _taken(path, first, count, layers):
    """The capture file, or a new capture of ``count`` steps from ``first`` on."""
    if path is not None and path.exists():
        taken = Capture.load(path)
        if len(taken.steps) < 2 or taken.steps[-1] - taken.steps[0] != len(taken.steps) - 1:
            raise UserError(f"{path} must hold two or more consecutive steps, not "
                            f"{', '.join(map(str, taken.steps))}")
        return taken
    if first + count > STEPS:
        raise UserError(f"--first and --count must stay within the {STEPS} steps of a run, "
                        f"not {first} + {count}")
    with contextlib.ExitStack() as stack:
        temporary = None if path is None else stack.enter_context(writing_whole(path))
        with sampling_progress(first + count) as on_step:
            taken = capture(category=heads.CATEGORY, style=heads.STYLE, seed=heads.SEED,
                            steps=range(first, first + count), layers=layers, on_step=on_step)
        if temporary is not None:
            taken.save(temporary)
    return taken


def _records(taken, calibration, params):
    """``{(layer, head): {step: Record}}``; steps that were dense are left out."""
    records = {}
    head_count = taken.q.shape[2]
    with progress_bar("attending", len(taken.layers) * head_count * len(taken.steps)) as advance:
        for layer in taken.layers:
            for head in range(head_count):
                chain, by_step = HeadChain(params), {}
                for step in taken.steps:
                    real = taken.at(step, layer, head)
                    codes, exponents = zip(*map(fixed_point, real), strict=True)
                    record = chain.step(real, codes, exponents, calibration.step(layer, head, step))
                    if record is not None:
                        by_step[step] = record
                    advance()
                records[layer, head] = by_step
    if not all(records.values()):
        raise UserError("Every step of the capture is dense; give it more steps")
    return records


def _mean(records, name):
    return statistics.fmean(getattr(record, name) for record in records)


def _pooled(records):
    return {name: sum((record.energy[name] for record in records), Energy()).qsnr
            for name in VARIANTS}


def _line(records):
    """Figures of some records: QSNR by variant with the energies summed, and mean shares."""
    qsnr = _pooled(records)
    return {"qsnr": qsnr, "gap": qsnr["int12 masks"] - qsnr["apt"],
            **{name: _mean(records, name)
               for name in ("computed", "high", "low", "lost", "unpruned_lost")}}


def _table(lines):
    table = Table(title="QSNR in dB against FP32", title_justify="left", box=box.SIMPLE_HEAD,
                  pad_edge=False, collapse_padding=True)
    table.add_column("layer, head")
    for name in (*VARIANTS, "gap", "computed", "high", "low", "mass pruned"):
        table.add_column(name, justify="right")
    for name, line in lines.items():
        if name == "pooled":
            table.add_section()
        table.add_row(name, *(f"{line['qsnr'][variant]:.1f}" for variant in VARIANTS),
                      f"{line['gap']:.2f}", f"{line['computed']:.3f}", f"{line['high']:.3f}",
                      f"{line['low']:.3f}", f"{line['lost']:.2%}")
    return table


@click.command("attention")
@click.option("--qkv", metavar="NPZ", type=click.Path(path_type=pathlib.Path),
              help="Capture of consecutive steps (`golden capture`); made if it does not exist.")
@click.option("--first", type=click.IntRange(0, STEPS - 1), default=10, show_default=True,
              help="First step to capture; the heads begin dense there.")
@click.option("--count", type=click.IntRange(2, STEPS), default=8, show_default=True,
              help="Steps to capture.")
@click.option("--layers", type=IntegerList(DEPTH), default=",".join(map(str, heads.LAYERS)),
              show_default=True, metavar="LIST", help="Layers to capture.")
@click.option("--cal", metavar="JSON", type=click.Path(path_type=pathlib.Path),
              help="Calibration (`golden calibrate`). Without this, thresholds are those of the "
                   "heads themselves for the wanted shares, at each step.")
@target_options
@click.option("--tile-q", type=click.IntRange(2, 256), default=64, show_default=True,
              help="Query rows of a tile.")
@click.option("--tile-k", type=click.IntRange(16, 512), default=128, show_default=True,
              help="Keys of a tile.")
@click.option("--state-bits", type=click.Choice([str(bits) for bits in STATE_BITS]),
              default=str(STATE_BITS[0]), show_default=True, help="Bits of a word of TAFA state.")
@output_options(("--json", "Write the figures as JSON, step by step as well."))
def attention_command(qkv, first, count, layers, cal, targets, tile_q, tile_k, state_bits, json):
    """Integer attention of real heads over consecutive steps: QSNR, and what low precision costs.

    State and masks are carried from step to step; the first step is dense and is not counted.
    """
    targets = check_targets(**targets)
    params = AptParams(tile_q=tile_q, tile_k=tile_k, state_bits=int(state_bits), window_qk=1,
                       window_pv=1)
    calibration = None if cal is None else Calibration.load(cal, params)
    taken = _taken(qkv, first, count, layers)
    if calibration is None:
        profile, kept = profile_captures([taken])
        calibration = calibration_of(profile, kept, targets, "step", params).calibration
    records = _records(taken, calibration, params)

    everything = [record for by_step in records.values() for record in by_step.values()]
    lines = {f"{layer}, {head}": _line(list(by_step.values()))
             for (layer, head), by_step in records.items()}
    pooled = _line(everything)
    gaps = [record.gap for record in everything]
    print_wide(_table({**lines, "pooled": pooled}))
    click.echo(f"gap: int12 masks - apt, what low precision costs. Of {len(gaps)} heads and steps: "
               f"median {statistics.median(gaps):.2f} dB, largest {max(gaps):.2f} dB;\n"
               f"pooled {pooled['gap']:.2f} dB (errors and signals summed). "
               f"Mass pruned: {pooled['lost']:.2%} on average.")
    write_json(json, {
        "run": {name: getattr(taken, name) for name in ("category", "style", "seed", "steps",
                                                        "layers")},
        "calibration": None if cal is None else str(cal),
        "wanted": None if cal is not None else calibration.report["wanted"],
        "shape": calibration.shape, "state_bits": params.state_bits,
        "gap_median": statistics.median(gaps), "gap_pooled": pooled["gap"],
        "pooled": pooled,
        "heads": [{"layer": layer, "head": head, **lines[f"{layer}, {head}"],
                   "steps": [{"step": step, **_line([record])}
                             for step, record in by_step.items()]}
                  for (layer, head), by_step in records.items()]})
