"""Runs the study of real heads, and says what came out."""

import hashlib
import os

from rich.table import Table

from golden.cli.entry import console, print_wide
from golden.common.files import write_whole
from verif.runner import build_root

from .harness import Harness, Port
from .study import (
    HEADS,
    capture_heads,
    check_model,
    rows_of,
    study_plan,
    total_of,
)
from .timeline import timeline


__all__ = ["print_heads", "run_heads"]

#: Cycles from a read request to its first beat.
_LATENCY = 40
#: Cycles in which a study must end.
_MOST_CYCLES = {"quad": 50_000_000, "serial": 5_000_000_000}


def run_heads(params, *, whole=False, heads=HEADS, calibration=None, waves=False, port=None,
              seed=1):
    """``(rows, run, folder)`` of the study; ``whole`` heads, or the rows of one query tile; see
    :func:`~verif.engine.study.study_plan` for ``calibration``. Raises :class:`AssertionError` for a
    wrong output."""
    port = port or Port(latency=_LATENCY)
    plan, entries = study_plan(capture_heads(), params, heads=heads,
                               queries=None if whole else params.tile_q, calibration=calibration)
    digest = hashlib.sha256(repr(params).encode()).hexdigest()[:8]
    folder = build_root() / "engine" / digest
    run = Harness(params, folder, waves=waves).run(
        plan, port=port, seed=seed, timeline=True, most_cycles=_MOST_CYCLES[params.dataflow])
    return rows_of(plan, entries, run, port.memory), run, folder


def _print_total(total):
    if total is None:
        console.print("all steps are dense by the calibration", markup=False)
        return
    console.print(f"the {total.rows} rows that are not dense, together: speed-up "
                  f"{total.speed_up:.2f} of {total.bound:.2f}, mass lost {total.lost:.2%}, demoted "
                  f"{total.demoted:.1%}; by the calibration's thresholds {total.pruned:.1%} "
                  f"pruned, {total.high:.1%} in high precision", markup=False)


def print_heads(rows, run, folder, params, *, whole, calibrated):
    """Print what :func:`run_heads` gave; raises :class:`AssertionError` where the cycle model is
    off by more than it may be."""
    what = "whole heads" if whole else f"{params.tile_q} queries of heads"
    table = Table(title=f"{what} of the diffusion transformer on sd_mpu", title_justify="left")
    for heading, justify in (("head", "left"), ("step", "right"),
                             ("cycles", "right"), ("QK", "right"), ("PV", "right"),
                             ("/ ideal", "right"), ("speed-up", "right"), ("bound", "right"),
                             ("lost", "right"), ("demoted", "right"), ("model", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(row.head, f"{row.step} dense" if row.dense else str(row.step),
                      f"{row.cycles:,}", f"{row.qk:.3f}", f"{row.pv:.3f}", f"{row.total:.3f}",
                      f"{row.speed_up:.2f}", f"{row.bound:.2f}", f"{row.lost:.2%}",
                      f"{row.demoted:.1%}",
                      "-" if row.model_error is None else f"{row.model_error:.2%}")
    print_wide(table)
    if calibrated:
        _print_total(total_of(rows))
    text = timeline(run.stages, run.cycles)
    path = write_whole(folder / "timeline.txt", text)
    console.print("QK, PV: ideal over measured cycles of the phase; / ideal: all cycles over both "
                  "ideals; speed-up over the dense step, and what the masks allow; lost: mass "
                  "valid by this step's thresholds that the old masks miss; demoted: share of the "
                  "high-precision mass computed in low precision; model: largest error of the "
                  "cycle model, which knows the quad dataflow.", style="dim")
    console.print(f"{sum(row.checked for row in rows):,} words of output, masks and state equal "
                  f"the model's; {run.cycles:,} cycles; timeline in {os.path.relpath(path)}",
                  markup=False)
    check_model(rows)
