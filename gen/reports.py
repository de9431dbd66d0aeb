"""What the reporting commands share: early checks, so that no work is wasted."""

import os

from .config import ConfigError


__all__ = ["check_writable", "make_component"]


def check_writable(path):
    """Refuse a report file before work that it would waste; :class:`ConfigError`."""
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise ConfigError(f"cannot write {path}: {parent} is not a folder")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"cannot write {path}: folder {parent} is read-only")


def make_component(make, params):
    """``make(params)``; parameters that it refuses are the user's mistake."""
    try:
        return make(params)
    except ValueError as error:
        raise ConfigError(str(error)) from None
