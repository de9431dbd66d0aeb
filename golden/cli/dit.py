"""The commands that run the diffusion transformer: ``sample``, ``capture``, ``fixture``."""

import pathlib

import click

from golden.common.files import writing_whole
from golden.dit import heads
from golden.dit.capture import capture
from golden.dit.fixture import fixture_tiles, steps_needed
from golden.dit.model import DEPTH, Dit, attention, initial_noise, label_names, sample, to_uint8
from golden.dit.tiles import save_tiles

from .options import IntegerList, run_options, sampling_progress, total_steps_option


__all__ = ["capture_command", "fixture_command", "sample_command"]

#: Attention functions by the name of their arithmetic.
NUMERICS = {"fp32": attention}


def _output_option(default, metavar):
    return click.option("-o", "--output", metavar=metavar, default=default, show_default=True,
                        type=click.Path(path_type=pathlib.Path), help="File to write.")


@click.command("sample")
@run_options(category="smileys", style="google", seed=0)
@total_steps_option
@click.option("--numerics", type=click.Choice(sorted(NUMERICS)), default="fp32", show_default=True,
              help="Arithmetic of the attention.")
@_output_option("build/sample.png", "PNG")
def sample_command(category, style, seed, total_steps, numerics, output):
    """Draw a 64x64 image with the diffusion transformer."""
    from PIL import Image

    with writing_whole(output) as temporary:  # first, so that a bad path fails before the work
        with sampling_progress(total_steps) as on_step:
            image = sample(Dit.load(), initial_noise(seed), category=category, style=style,
                           steps=total_steps, attn=NUMERICS[numerics], on_step=on_step)
        Image.fromarray(to_uint8(image)).save(temporary, format="PNG")
    categories, styles = label_names()
    click.echo(f"{output}: {categories[category]}, {styles[style]}, seed {seed}, "
               f"{total_steps} steps, {numerics}")


@click.command("capture")
@run_options(category=str(heads.CATEGORY), style=str(heads.STYLE), seed=heads.SEED)
@total_steps_option
@click.option("--steps-list", type=IntegerList(1000), show_default=True, metavar="LIST",
              default=",".join(map(str, heads.STEPS)), help="Steps to keep, from 0 (pure noise).")
@click.option("--layers", type=IntegerList(DEPTH), show_default=True, metavar="LIST",
              default=",".join(map(str, heads.LAYERS)), help="Layers to keep, from 0.")
@_output_option("build/capture.npz", "NPZ")
def capture_command(category, style, seed, total_steps, steps_list, layers, output):
    """Write Q, K and V of chosen steps and layers (all heads, guided pass) as float32.

    The run ends after the last step that is wanted.
    """
    if steps_list[-1] >= total_steps:
        raise click.BadParameter(f"must be below --steps ({total_steps}), not {steps_list[-1]}",
                                 param_hint="'--steps-list'")
    with writing_whole(output) as temporary:
        with sampling_progress(steps_list[-1] + 1) as on_step:
            taken = capture(category=category, style=style, seed=seed, steps=steps_list,
                            layers=layers, total_steps=total_steps, on_step=on_step)
        taken.save(temporary)
    click.echo(f"{output}: q, k, v of shape {taken.q.shape} (steps, layers, heads, tokens, "
               "channels)")


@click.command("fixture")
@_output_option("build/tiles.npz", "NPZ")
def fixture_command(output):
    """Rebuild the attention tiles that the tests and benches use."""
    with writing_whole(output) as temporary:
        with sampling_progress(max(steps_needed()) + 1) as on_step:
            tiles = fixture_tiles(on_step=on_step)
        save_tiles(temporary, tiles)
    click.echo(f"{output}: {len(tiles)} tiles")
