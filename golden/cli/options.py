"""Options that golden's commands share: labels, lists of numbers, progress of a sampling run."""

import contextlib

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from golden.dit.model import STEPS, label_names

from .entry import progress_console


__all__ = ["IntegerList", "run_options", "sampling_progress", "total_steps_option"]


class _Label(click.ParamType):
    """A label's number, or a case-insensitive prefix of its name."""

    name = "label"

    def __init__(self, kind):
        self._kind = kind  # 0: category, 1: style

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        names, text = label_names()[self._kind], value.strip().lower()
        if text.isdecimal() and int(text) < len(names):
            return int(text)
        found = [number for number, name in enumerate(names) if name.lower().startswith(text)]
        exact = [number for number in found if names[number].lower() == text]
        if text and len(exact or found) == 1:
            return (exact or found)[0]
        choices = ", ".join(f"{number} {name}" for number, name in enumerate(names))
        self.fail(f"must be a number or the beginning of one name of: {choices}; "
                  f"not {value!r}", param, ctx)


class IntegerList(click.ParamType):
    """Comma-separated integers in ``0..below - 1``; gives a sorted tuple without repeats."""

    name = "list"

    def __init__(self, below):
        self._below = below

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in value.split(",")]
        if not all(word.isdecimal() and int(word) < self._below for word in words):
            self.fail(f"must be numbers in 0..{self._below - 1} with commas between them, "
                      f"not {value!r}", param, ctx)
        return tuple(sorted({int(word) for word in words}))


def total_steps_option(command):
    """``--steps N``, the length of a sampling run."""
    return click.option("--steps", "total_steps", type=click.IntRange(1, 1000), default=STEPS,
                        show_default=True, help="Denoising steps of the run.")(command)


def run_options(*, category, style, seed):
    """``--class``, ``--style`` and ``--seed`` with these defaults."""
    def decorate(command):
        for option in (
            click.option("--seed", type=click.IntRange(0, 2 ** 63 - 1), default=seed,
                         show_default=True, help="Seed of the noise."),
            click.option("--style", type=_Label(1), default=style, show_default=True,
                         help="google, twitter or fluent3d: number or beginning of the name."),
            click.option("--class", "category", type=_Label(0), default=category,
                         show_default=True, metavar="LABEL",
                         help="What to draw: number or beginning of the name."),
        ):
            command = option(command)
        return command
    return decorate


@contextlib.contextmanager
def sampling_progress(total):
    """A progress bar on standard error; the value is ``on_step(done)``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("steps"), TimeRemainingColumn())
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task("sampling", total=total)
        yield lambda done: progress.update(task, completed=done)
