"""The cache folder for compiled kernels and converted data, and the check of its permissions."""

import os
import stat
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder in the environment variable `GLASSGATE_CACHE`, or the default cache folder of the system.

    An empty or relative `XDG_CACHE_HOME` is ignored, as its specification requires.
    """
    if folder := os.environ.get("GLASSGATE_CACHE"):
        return Path(folder)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", _home() / "AppData" / "Local")) / "glassgate"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "glassgate"
    xdg_folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg_folder if xdg_folder.is_absolute() else _home() / ".cache") / "glassgate"


class UntrustedError(PermissionError):
    """Users other than the current user and root can write to a file or folder."""


def read_trusted(path: Path) -> bytes:
    """Read a file whose content will be executed. Only the current user and root may be able to write to it.

    On systems other than POSIX, permissions are not checked.

    Raises:
        UntrustedError: other users can write to the file or to its folder.
        OSError: the file does not exist or is not a regular file.
    """
    if os.name != "posix":
        return path.read_bytes()
    # O_NOFOLLOW rejects symbolic links. Without O_NONBLOCK, opening a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path}: this is not a regular file")
        check_trusted(path.parent)
        _check(path, os.fstat(file.fileno()))
        return file.read()


def check_trusted(folder: Path) -> None:
    """Raise UntrustedError if users other than the current user and root can write to a folder."""
    if os.name == "posix":
        _check(folder, folder.stat())


def _check(path: Path, status: os.stat_result) -> None:
    """Raise UntrustedError if the owner or the mode of a file or folder lets other users write to it."""
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    write_by_others = stat.S_IWOTH | (0 if status.st_gid == os.getegid() else stat.S_IWGRP)
    if status.st_uid not in (0, os.geteuid()) or (status.st_mode & write_by_others and not is_sticky):
        raise UntrustedError(f"{path}: other users can write to it")


def _home() -> Path:
    """Return the home folder, or a folder for this user in the temporary folder."""
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and the user ID has no account
        return Path(tempfile.gettempdir()) / f"glassgate-{os.getuid()}"
