"""Writes files atomically: an error leaves no partial file."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from glassgate.export.errors import ExportError
from glassgate.storage import replaced_file, replaced_files, write_remedy


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
        with replaced_file(target) as temporary:
            yield temporary
    except OSError as error:
        raise ExportError(f"{operation}: cannot write to {target}: {error.strerror}; {write_remedy(error)}") from error


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
        with replaced_files(target, create=True) as temporary:
            for file, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                (temporary / file).write_bytes(data)
    except OSError as error:
        raise ExportError(f"{operation}: cannot write to {target}: {error.strerror}; {write_remedy(error)}") from error
    return [target / file for file in files]
