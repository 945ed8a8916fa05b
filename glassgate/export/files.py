"""Writes files atomically: an error leaves no partial file."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from glassgate.export.errors import ExportError


@contextmanager
def atomic_write(path: str | os.PathLike[str], operation: str) -> Iterator[Path]:
    """Yield a temporary path. The file written there replaces `path` at the end of the block, but not after an error.

    Raises:
        ExportError: the path is a folder, or its parent does not exist or cannot be written to.
    """
    target = Path(path)
    if target.is_dir():
        raise ExportError(f"{operation}: expected the path of a file, got the folder {target}")
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise ExportError(
            f"{operation}: cannot write to {target.parent}: {error.strerror}; choose another path"
        ) from error
    with folder as name:
        temporary = Path(name) / target.name
        yield temporary
        os.replace(temporary, target)


def write_all(folder: str | os.PathLike[str], files: Mapping[str, str | bytes], operation: str) -> list[Path]:
    """Write files into a folder, which is created if it is missing. Files replace older ones once all are written.

    Args:
        folder: the folder.
        files: contents by file name.
        operation: the first word of error messages.

    Returns:
        the paths.

    Raises:
        ExportError: the folder cannot be written to.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target) as name:
            for file, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                (Path(name) / file).write_bytes(data)
            for file in files:
                os.replace(Path(name) / file, target / file)
    except OSError as error:
        raise ExportError(f"{operation}: cannot write to {target}: {error.strerror}; choose another folder") from error
    return [target / file for file in files]
