"""``python -m verif.demo``: a real tile through the RTL, the area of every block, a picture."""

import dataclasses
import functools
import os
import pathlib
import sys
import time


# As on golden's command line: for products this small BLAS threads only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import click
import numpy as np
from PIL import Image
from rich.table import Table

from gen.area import area_report
from gen.area_targets import find_target
from gen.designs import DESIGNS
from gen.presets import APT_PRESETS, DEFAULT_PRESET
from gen.verilog import emit
from golden.cli.entry import console, progress_console, run_cli
from golden.cli.options import sampling_progress
from golden.common.files import writing_whole
from golden.dit.capture import Recorder
from golden.dit.fixture import tile_of
from golden.dit.model import STEPS, Dit, initial_noise, label_names, sample, to_uint8
from golden.dit.tiles import save_tiles

from .demo_picture import CodecView, coded, draw
from .runner import build_root, require_simulator, run_all, run_bench


#: The run and the tile: animals, fluent3d, seed 3; half way, the last layer.
CATEGORY, STYLE, SEED = 2, 2, 3
STEP, LAYER, HEAD, QUERY0, KEY0 = 14, 9, 2, 704, 896
#: Blocks whose area is shown, with the baseline of one; larger ones take too long here.
_AREA = ("bank_memory", "data_aligner", "mask_generator", "mask_encoder", "mask_decoder",
         "address_translator", "list_builder", "dp_mac")
#: The path of a mask from P' to addresses, and the arithmetic that the addresses feed.
BENCHES = ("mask_generator", "mask_encoder", "mask_decoder", "address_translator", "dp_mac")


def sample_tile():
    """One sampling run: the image, and the tile with its thresholds."""
    recorder = Recorder((STEP - 1, STEP), (LAYER,))
    with sampling_progress(STEPS) as on_step:
        image = sample(Dit.load(), initial_noise(SEED), category=CATEGORY, style=STYLE,
                       attn=recorder, on_step=on_step)
    taken = recorder.capture(category=CATEGORY, style=STYLE, seed=SEED)
    return to_uint8(image), tile_of(taken, STEP, LAYER, HEAD, QUERY0, KEY0)


def _headline(number, text):
    console.print(f"[bold]{number}/5[/] {text}")


def _codec_table(views):
    table = Table(title="what each codec makes of the tile's masks", title_justify="left")
    for heading in ("masks", "valid", "HP", "cost", "mass lost", "mass demoted"):
        table.add_column(heading, justify="left" if heading == "masks" else "right")
    for view in views:
        table.add_row(view.title, f"{view.valid:.3f}", f"{view.high_share:.3f}", f"{view.cost:.3f}",
                      f"{view.lost:.2%}", f"{view.demoted:.1%}")
    return table


def _area_table(report):
    table = Table(title="area in sky130 cells", title_justify="left")
    for heading in ("design", "logic um2", "flip-flops um2", "gates", "memory bits"):
        table.add_column(heading, justify="left" if heading == "design" else "right")
    for name, entry in report["designs"].items():
        rows = [(name, entry)]
        if "baseline" in entry:
            rows.append(("  16 plain multipliers", entry["baseline"]))
        for label, row in rows:
            numbers = row["numbers"]
            table.add_row(label, f"{numbers['logic_um2']:,.0f}",
                          f"{numbers['flip_flop_um2']:,.0f}", f"{numbers['gates']:,}",
                          f"{row['memory_bits']:,}")
    return table


@click.command()
@click.option("-o", "--output", metavar="DIR", default="build/demo", show_default=True,
              type=click.Path(path_type=pathlib.Path), help="Folder to write to.")
def main(output):
    """Show everything once, on real attention: about two minutes."""
    started = time.monotonic()
    simulator = "verilator"
    require_simulator(simulator)
    params = APT_PRESETS[DEFAULT_PRESET]
    verilog = output / "verilog"

    _headline(1, f"Verilog of {len(DESIGNS)} designs, preset {DEFAULT_PRESET}, to {verilog}")
    # The engine first: it takes as long as the others together.
    for done in run_all([functools.partial(emit, design, params, verilog)
                         for design in sorted(DESIGNS.values(), key=lambda one: not one.whole)]):
        done.result()

    categories, styles = label_names()
    _headline(2, f"the diffusion transformer draws: {categories[CATEGORY]}, {styles[STYLE]}, "
                 f"seed {SEED}, {STEPS} steps; a tile of step {STEP}, layer {LAYER}, head {HEAD}")
    image, tile = sample_tile()
    with writing_whole(output / "image.png") as temporary:
        Image.fromarray(image).resize((256, 256), Image.Resampling.NEAREST).save(temporary)
    save_tiles(output / "tile.npz", [tile])

    _headline(3, f"the tile through the RTL in Verilator: {', '.join(BENCHES)}")
    results = [done.result() for done in run_all([functools.partial(
        run_bench, bench, params, {}, simulator=simulator, seed=SEED, test_filter="full_speed",
        build_dir=build_root().parent / "demo-verif",
        environment={"TILEWRIGHT_TILES": str((output / "tile.npz").resolve())})
        for bench in BENCHES])]
    for result in results:
        console.print(f"  {result.bench:18} {result.checked:7,} outputs equal the model's"
                      if result.passed else f"  [red]{result.bench} FAILED[/]")
    if not all(result.passed for result in results):
        console.print(f"see the logs in {results[0].folder.parent.parent}")
        sys.exit(1)

    _headline(4, "area, against the same dot product on plain multipliers")
    report = area_report([DESIGNS[name] for name in _AREA], params, find_target("sky130"),
                         lambda done, total, top: progress_console.print(
                             f"  {done} of {total} synthesized: {top}"))
    console.print(_area_table(report))
    ratio = report["designs"]["dp_mac"]["ratio"]
    console.print(f"dp_mac takes {ratio['total']:.3f} of the area of 16 plain 12-bit multipliers "
                  f"with their adder tree ({ratio['logic']:.3f} of the logic)")

    _headline(5, f"the picture: {output / 'tile.png'}")
    high, low = tile.masks
    views = [CodecView("element masks", tile, high, low)]
    for codec in ("rowcol", "block"):
        views.append(coded(tile, dataclasses.replace(params, codec=codec)))
    draw(output / "tile.png", image, tile, views)
    console.print(_codec_table(views))
    checked = sum(result.checked for result in results)
    console.print(f"{checked:,} outputs of the RTL checked, all equal to the model; "
                  f"{time.monotonic() - started:.0f} s; look at {os.path.relpath(output)}")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    run_cli(main, "verif.demo")
