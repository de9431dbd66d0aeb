"""``python -m golden``: the diffusion transformer and the studies on its attention."""

import os


# The products are small: BLAS threads gain little, and where other work has the cores they spin
# while they wait for each other (an image took four times as long with two of them as with one).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import click

from golden.cli.attend import attention_command
from golden.cli.calibrate import calibrate_command
from golden.cli.codec_front import codec_front_command
from golden.cli.dit import capture_command, fixture_command, sample_command
from golden.cli.entry import run_cli, version_option
from golden.cli.utilisation import utilisation_command


@click.group(commands=[
    sample_command, capture_command, fixture_command, calibrate_command, attention_command,
    codec_front_command, utilisation_command,
])
@version_option()
def main():
    """Sample the diffusion transformer, capture its attention, and study what hardware makes of it.
    """


if __name__ == "__main__":
    run_cli(main, "golden")
