"""``python -m gen``: Verilog, area, timing and proofs from one parameter set."""

import dataclasses
import importlib
import pathlib

import click
from rich.table import Table

from golden.apt.params import AptParams
from golden.cli.entry import console, progress_console, run_cli, version_option

from .cli import chosen_designs, design_arguments, parameter_options
from .designs import DESIGNS
from .presets import APT_PRESETS, DEFAULT_PRESET
from .verilog import emit


#: Commands that live in modules of their own, loaded when called: name -> (module, summary).
_COMMANDS = {
    "area": ("gen.area", "Logic, flip-flops and memory bits of designs on a target."),
    "timing": ("gen.timing", "Place and route one design; Fmax and its critical path."),
    "formal": ("gen.formal", "Prove the properties of the control blocks."),
}


class _Group(click.Group):
    """A group that loads the other commands only when they are used: start-up stays quick."""

    def list_commands(self, ctx):
        return ["list", "verilog", *_COMMANDS]

    def get_command(self, ctx, name):
        if name in _COMMANDS:
            return importlib.import_module(_COMMANDS[name][0]).command
        return super().get_command(ctx, name)

    def format_commands(self, ctx, formatter):
        own = [(name, command.get_short_help_str(70)) for name, command in self.commands.items()]
        others = [(name, summary) for name, (_, summary) in _COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(own + others)


@click.group(cls=_Group)
@version_option()
def main():
    """Generate Verilog of diffusion-transformer accelerators, and report on it."""


@main.command("list")
def list_command():
    """Designs, presets, boards and targets."""
    from .area import TARGETS
    from .timing import BOARDS

    designs = Table(title="designs", title_justify="left")
    designs.add_column("design")
    designs.add_column("engine")
    designs.add_column("what it does")
    for design in DESIGNS.values():
        designs.add_row(design.name, design.engine, design.summary)
    console.print(designs)

    presets = Table(title=f"presets of apt (default {DEFAULT_PRESET})", title_justify="left")
    presets.add_column("parameter")
    for name in APT_PRESETS:
        presets.add_column(name)
    for field in dataclasses.fields(AptParams):
        presets.add_row(field.name, *(str(getattr(params, field.name))
                                      for params in APT_PRESETS.values()))
    console.print(presets)
    console.print(f"boards of `timing`: {', '.join(BOARDS)}")
    console.print(f"targets of `area`: {', '.join(TARGETS)}, liberty=FILE")


@main.command("verilog")
@design_arguments
@parameter_options
@click.option("-o", "--output", metavar="DIR", default="build/verilog", show_default=True,
              type=click.Path(path_type=pathlib.Path), help="Folder to write to.")
def verilog_command(designs, params, output):
    """Write Verilog, a manifest (JSON) and a FuseSoC core of each design."""
    chosen = chosen_designs(designs, params)
    with progress_console.status("") as status:
        for number, design in enumerate(chosen, 1):
            status.update(f"emitting {design.name} ({number} of {len(chosen)})")
            for path in emit(design, params, output):
                click.echo(path)


if __name__ == "__main__":
    run_cli(main, "gen")
