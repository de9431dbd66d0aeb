"""What the commands of ``gen`` and ``verif`` share: parameter options and design names."""

import pathlib

import click

from .config import ConfigError, resolve
from .designs import DESIGNS


__all__ = ["chosen_designs", "design_arguments", "parameter_options"]


def parameter_options(command):
    """Add ``--preset``, ``--config`` and ``--set``; the command gets one argument ``params``.

    Of a command that has ``--board`` the default preset is the one of the board's name.
    """
    @click.option("--preset", metavar="P", help="Named parameter set; see `python -m gen list`.")
    @click.option("--config", metavar="FILE.toml", type=click.Path(path_type=pathlib.Path),
                  help="TOML with an optional `preset` and a table [apt] of parameters.")
    @click.option("--set", "settings", metavar="KEY=VALUE", multiple=True,
                  help="Replace one parameter; may be given again.")
    def with_params(*context, preset, config, settings, **others):
        if preset is None and config is None:
            preset = others.get("board")
        return command(*context, params=resolve(preset, config, settings), **others)

    with_params.__name__, with_params.__doc__ = command.__name__, command.__doc__
    with_params.__click_params__ += getattr(command, "__click_params__", [])
    return with_params


def design_arguments(command):
    """Add ``[DESIGN...]``: none means all."""
    return click.argument("designs", nargs=-1, metavar="[DESIGN]...")(command)


def chosen_designs(names, params, *, engines=True):
    """The named designs, or all that can have the parameters; ``engines`` says whether whole
    engines are among all. An unknown name is a :class:`ConfigError`, and so is a named design that
    cannot have them.
    """
    for name in names:
        if name not in DESIGNS:
            raise ConfigError(f"unknown design {name!r}; the designs are {', '.join(DESIGNS)}")
        try:
            DESIGNS[name].check(params)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None
    return [DESIGNS[name] for name in dict.fromkeys(names)] or [
        design for design in DESIGNS.values()
        if design.fits(params) and (engines or not design.whole)]
