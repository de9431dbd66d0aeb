"""How every command line starts, ends and reports a mistake: one line, exit status 2."""

import sys

import click
from rich.console import Console

from golden import __version__
from golden.common.errors import UserError


__all__ = ["console", "print_wide", "progress_console", "run_cli", "version_option"]

#: Results go to standard output, progress to standard error: a pipe gets results alone.
console = Console(highlight=False, soft_wrap=False)
progress_console = Console(stderr=True, highlight=False)


def print_wide(table, width=120):
    """Print a table at least this wide: a pipe counts as 80 columns, and would cut words off."""
    Console(width=max(console.width, width), highlight=False).print(table)


def version_option():
    """``--version`` of Tilewright, for any command group."""
    return click.version_option(__version__, prog_name="tilewright")


def _os_error(error):
    where = f" {error.filename}" if error.filename is not None else ""
    return f"cannot use{where}: {error.strerror or error}"


def _one_line(text):
    return " ".join(str(text).split())


def run_cli(command, prog, args=None):
    """Run a click command and exit; any foreseeable mistake is one line and status 2."""
    try:
        status = command.main(args=args, prog_name=prog, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        sys.exit(2)
    except click.ClickException as error:
        message, status = error.format_message(), 2
    except UserError as error:
        message, status = str(error), 2
    except OSError as error:
        message, status = _os_error(error), 2
    except (click.Abort, KeyboardInterrupt):
        message, status = "stopped", 130
    else:
        sys.exit(status if isinstance(status, int) else 0)
    print(f"{prog}: error: {_one_line(message)}", file=sys.stderr)
    sys.exit(status)
