"""Writing a file whole or not at all."""

import contextlib
import os
import pathlib
import tempfile


__all__ = ["write_whole", "writing_whole"]


@contextlib.contextmanager
def writing_whole(path):
    """A temporary path beside ``path`` that takes its place when the block ends well.

    Folders that are missing are made. When the block raises, nothing is left behind.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "Is a directory", str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # what open() would have given; mkstemp gives 0600
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path, content):
    """Write text (UTF-8) or bytes to ``path`` and return it."""
    path = pathlib.Path(path)
    with writing_whole(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
