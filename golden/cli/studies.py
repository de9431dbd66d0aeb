"""What the commands of the studies share: their heads, their options and their output files."""

import contextlib
import csv
import io
import json
import pathlib

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from golden.common.errors import UserError
from golden.common.files import write_whole, writing_whole
from golden.dit import heads
from golden.dit.model import TOKENS

from .entry import progress_console
from .options import sampling_progress


__all__ = ["NumberList", "check_tile", "figure", "heads_option", "output_options", "progress_bar",
           "taken_heads", "write_csv", "write_json"]


class NumberList(click.ParamType):
    """Comma-separated numbers of one kind in a range; gives a sorted tuple without repeats."""

    name = "list"

    def __init__(self, kind, low, high):
        self._kind, self._low, self._high = kind, low, high

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        try:
            numbers = {self._kind(word) for word in value.split(",")}
        except ValueError:
            numbers = {None}
        if not all(number is not None and self._low <= number <= self._high for number in numbers):
            kind = "integers" if self._kind is int else "numbers"
            self.fail(f"must be {kind} in {self._low}..{self._high} with commas between them, "
                      f"not {value!r}", param, ctx)
        return tuple(sorted(numbers))


def heads_option(command):
    """``--qkv FILE``: where the heads come from."""
    return click.option(
        "--qkv", metavar="NPZ", type=click.Path(path_type=pathlib.Path),
        help="Capture to take the heads from (`golden capture`); made if it does not exist. "
             "Without this, the heads are sampled anew.")(command)


def output_options(*kinds):
    """``--json``, ``--csv`` and ``--plot`` out of ``kinds``, a dict of option to help text."""
    def decorate(command):
        for option, text in reversed(kinds):
            command = click.option(option, metavar="FILE", help=text,
                                   type=click.Path(path_type=pathlib.Path))(command)
        return command
    return decorate


def check_tile(tile_q, tile_ks):
    """:class:`~golden.common.errors.UserError` unless the tiles divide a head."""
    for option, size in (("--tile-q", tile_q), *(("--tile-k", tile_k) for tile_k in tile_ks)):
        if TOKENS % size:
            raise UserError(f"{option} must divide the {TOKENS} tokens of a head, not {size}")


def taken_heads(path):
    """The capture of the study heads, sampled with a progress bar where it has to be."""
    if path is not None and path.exists():
        return heads.study_capture(path)
    with contextlib.ExitStack() as stack:
        temporary = None if path is None else stack.enter_context(writing_whole(path))
        with sampling_progress(max(heads.STEPS) + 1) as on_step:
            taken = heads.study_capture(on_step=on_step)
        if temporary is not None:
            taken.save(temporary)
    return taken


@contextlib.contextmanager
def progress_bar(what, total):
    """A progress bar on standard error; the value is a function that advances it by one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def write_json(path, document):
    """Write a document as JSON, if there is a path."""
    if path is not None:
        write_whole(path, json.dumps(document, indent=2) + "\n")
        click.echo(f"wrote {path}")


def write_csv(path, header, rows):
    """Write a table as CSV, if there is a path."""
    if path is not None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        write_whole(path, text.getvalue())
        click.echo(f"wrote {path}")


@contextlib.contextmanager
def figure(path, **options):
    """A Matplotlib figure that is written as PNG when the block ends well."""
    from matplotlib.figure import Figure

    drawn = Figure(**options)
    with writing_whole(path) as temporary:
        yield drawn
        drawn.savefig(temporary, format="png", dpi=120)
    click.echo(f"wrote {path}")
