"""A compiler in front of the compiler: Verilator's library is compiled once, not per bench.

Verilator's make files put ``$OBJCACHE`` before each call of the compiler. Sources of its run-time
library, which are the same in every build, come from a folder if they were compiled with the same
arguments before; all else goes to the compiler as it is.

    python object_cache.py FOLDER COMPILER ARGUMENTS...
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys


def _cached(arguments):
    """The source, if it is of the library, and the object to make."""
    if "-c" not in arguments or "-o" not in arguments:
        return None, None
    sources = [one for one in arguments if pathlib.Path(one).name.startswith("verilated")
               and one.endswith(".cpp")]
    return (sources[0] if len(sources) == 1 else None), arguments[arguments.index("-o") + 1]


def main(folder, *command):
    source, target = _cached(command)
    if source is None:
        return subprocess.call(command)
    key = [one for one in command if one != target]
    text = "\0".join([*key, str(os.stat(source).st_mtime_ns)])
    stored = pathlib.Path(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.o"
    if not stored.exists():
        status = subprocess.call(command)
        if status == 0:
            stored.parent.mkdir(parents=True, exist_ok=True)
            # Others may be at it too: whoever is last leaves the same object.
            temporary = stored.with_suffix(f".{os.getpid()}")
            shutil.copy(target, temporary)
            temporary.replace(stored)
        return status
    shutil.copyfile(stored, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
