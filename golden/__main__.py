"""``python -m golden``: the diffusion transformer and the studies on its attention."""

import click

from golden.cli.codec_front import codec_front_command
from golden.cli.dit import capture_command, fixture_command, sample_command
from golden.cli.entry import run_cli, version_option
from golden.cli.utilisation import utilisation_command


@click.group(commands=[
    sample_command, capture_command, fixture_command, codec_front_command,
    utilisation_command,
])
@version_option()
def main():
    """Sample the diffusion transformer, capture its attention, and study what hardware makes of it.
    """


if __name__ == "__main__":
    run_cli(main, "golden")
