"""The generator's command line: ``python -m gen --help``."""

from golden import __version__


__all__ = ["__version__"]
