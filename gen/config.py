"""From ``--preset``, ``--config`` and ``--set`` to one checked parameter object."""

import dataclasses
import tomllib

from golden.apt.params import AptParams
from golden.common.errors import UserError

from .presets import APT_PRESETS, DEFAULT_PRESET


__all__ = ["ConfigError", "apply_settings", "replace_params", "resolve"]


class ConfigError(UserError):
    """A parameter, preset or file is not usable; the message is one line."""


_FIELDS = {field.name: field.type for field in dataclasses.fields(AptParams)}


def _parse(name, text):
    if name not in _FIELDS:
        raise ConfigError(f"unknown parameter {name!r}; the parameters are "
                          f"{', '.join(sorted(_FIELDS))}")
    if _FIELDS[name] is int:
        try:
            return int(text, 0)
        except ValueError:
            raise ConfigError(f"parameter {name} must be an integer, not {text!r}") from None
    return text


def replace_params(params, changes):
    """:func:`dataclasses.replace` whose complaint is a :class:`ConfigError`."""
    try:
        return dataclasses.replace(params, **changes)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def apply_settings(params, settings):
    """Replace the fields named by ``KEY=VALUE`` texts; the later of two for one field wins."""
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise ConfigError(f"a setting must be KEY=VALUE, not {setting!r}")
        changes[name.strip()] = _parse(name.strip(), text.strip())
    return replace_params(params, changes)


def _from_file(path):
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {str(error).splitlines()[0]}") from None
    preset = table.pop("preset", DEFAULT_PRESET)
    fields = table.pop("apt", {})
    if table:
        raise ConfigError(f"{path} has unknown keys {', '.join(sorted(table))}; it may have "
                          f"'preset' and a table [apt] of parameters")
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: apt must be a table of parameters, not {fields!r}")
    for name in fields:
        if name not in _FIELDS:
            raise ConfigError(f"{path}: unknown parameter {name!r}; the parameters are "
                              f"{', '.join(sorted(_FIELDS))}")
    return replace_params(_preset(preset), fields)


def _preset(name):
    if not isinstance(name, str) or name not in APT_PRESETS:
        raise ConfigError(f"unknown preset {name!r}; the presets are {', '.join(APT_PRESETS)}")
    return APT_PRESETS[name]


def resolve(preset=None, config=None, settings=()):
    """Parameters of a preset (or of a TOML file) with single fields replaced.

    Raises :class:`ConfigError` with one line that says what is wrong and what would be right.
    """
    if preset is not None and config is not None:
        raise ConfigError("give --preset or --config, not both")
    if config is not None:
        params = _from_file(config)
    else:
        params = _preset(DEFAULT_PRESET if preset is None else preset)
    return apply_settings(params, settings)
