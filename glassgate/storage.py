"""Writes files completely or not at all. The cache folder for compiled kernels and converted data.

Files are written by `write_file`, `replaced_file` and `replaced_files`. After an error or a signal, the old files are
complete, and temporary ones are removed.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassgate.system import SYSTEM

_UNFINISHED: set[Path] = set()
"""The temporary folders that exist."""


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file: even after a crash it has the complete old or the complete new content.

    Raises:
        OSError: the file cannot be written; the exception names it, and a note has the remedy.
    """
    path = Path(path)
    with replaced_file(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        if path.is_file() or not path.exists():
            os.fsync(file.fileno())
    SYSTEM.flush_folder(path.parent)


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path with the same name. The file written there replaces `path` at the end of the block.

    A device or a pipe, such as /dev/stdout, is yielded itself. A symbolic link stays, and its target is replaced.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with _naming(path, path):
            yield path
        return
    target = Path(os.path.realpath(path))
    with temporary_folder(target.parent, path) as folder, _naming(path, folder):
        temporary = folder / target.name
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        SYSTEM.replace(temporary, target)


@contextmanager
def replaced_files(folder: str | os.PathLike[str], create: bool = False) -> Iterator[Path]:
    """Yield a temporary folder. The files written there replace those in `folder` at the end of the block.

    Args:
        create: whether to create `folder`; a new folder is removed after an error.
    """
    target = Path(folder)
    missing = [each for each in (target, *target.parents) if not each.exists()] if create else []
    is_complete = False
    try:
        with _naming(target, target):
            if create:
                target.mkdir(parents=True, exist_ok=True)
        with temporary_folder(target, target) as temporary, _naming(target, temporary):
            yield temporary
            for file in os.listdir(temporary):
                SYSTEM.replace(temporary / file, target / file)
        is_complete = True
    finally:
        for each in missing if not is_complete else ():
            if each.is_dir() and not any(each.iterdir()):
                each.rmdir()


@contextmanager
def temporary_folder(parent: Path, path: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, which is removed at the end of the block.

    Args:
        parent: the folder of the new folder.
        path: the file or folder that errors name; `parent` if None.
    """
    folder = parent / f".glassgate-{secrets.token_hex(6)}"
    _UNFINISHED.add(folder)  # before the folder exists, because a signal can end the process at any time
    try:
        with _naming(path or parent, folder):
            folder.mkdir(0o700)
        yield folder
    finally:
        SYSTEM.remove_folder(folder)
        _UNFINISHED.discard(folder)


def remove_unfinished() -> None:
    """Remove all temporary folders, before the process ends without leaving its blocks."""
    for folder in [*_UNFINISHED]:
        SYSTEM.remove_folder(folder)


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Name the user's path in errors that name a temporary file or none, as those about a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(str(temporary)):
            if error.errno is not None:  # the error of a system call; only such errors print their file
                error.filename, error.filename2 = str(path), None
            if not hasattr(error, "__notes__"):
                error.add_note(f"the file is not written: {write_remedy(error)}")
        raise


def write_remedy(error: OSError) -> str:
    """The remedy for a file that cannot be written."""
    if isinstance(error, FileNotFoundError):
        return "create the folder, or choose another path"
    return "choose another path, or free disk space"


def cache_folder() -> Path:
    """Return the folder in the environment variable `GLASSGATE_CACHE`, or the default cache folder of the system."""
    if folder := os.environ.get("GLASSGATE_CACHE"):
        return Path(folder)
    return SYSTEM.cache_root() / "glassgate"


class UntrustedError(PermissionError):
    """Users other than the current user and root can write to a file or folder."""


def read_trusted(path: Path) -> bytes:
    """Read a file whose content will be executed. Only the current user and root may be able to write to it.

    On systems other than POSIX, permissions are not checked.

    Raises:
        UntrustedError: other users can write to the file or to its folder.
        OSError: the file does not exist or is not a regular file.
    """
    content, status = SYSTEM.read_regular(path)
    check_trusted(path.parent)
    _check(path, status)
    return content


def check_trusted(folder: Path) -> None:
    """Raise UntrustedError if users other than the current user and root can write to a folder."""
    _check(folder, folder.stat())


def _check(path: Path, status: os.stat_result) -> None:
    if SYSTEM.is_writable_by_others(status):
        raise UntrustedError(f"{path}: other users can write to it")
