"""The cache folder, for compiled kernels and converted data, which only this user may be able to write to."""

import os
import stat
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return `GLASSGATE_CACHE`, or the cache folder of the system.

    An empty or relative XDG_CACHE_HOME is ignored, as its specification demands.
    """
    if given := os.environ.get("GLASSGATE_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", _home() / "AppData" / "Local")) / "glassgate"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "glassgate"
    given_by_system = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given_by_system if given_by_system.is_absolute() else _home() / ".cache") / "glassgate"


class UntrustedError(PermissionError):
    """Users other than this one and root can write to a file or folder."""


def read_trusted(path: Path) -> bytes:
    """Read a file whose content will be executed, if only this user and root can have written it.

    Raises:
        UntrustedError: other users can write to it or to its folder.
        OSError: the file does not exist or is not a plain file.
    """
    if os.name != "posix":
        return path.read_bytes()
    # Neither a link's target nor a pipe, which would wait for its other end.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path}: this is no plain file")
        check_trusted(path.parent)
        _check(path, os.fstat(file.fileno()))
        return file.read()


def check_trusted(folder: Path) -> None:
    """Raise UntrustedError if users other than this one and root can write to a folder."""
    if os.name == "posix":
        _check(folder, folder.stat())


def _check(path: Path, status: os.stat_result) -> None:
    kept_by_owner = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (0 if status.st_gid == os.getegid() else stat.S_IWGRP)
    if status.st_uid not in (0, os.geteuid()) or (status.st_mode & others and not kept_by_owner):
        raise UntrustedError(f"{path}: others than this user can write there")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # neither HOME nor a user of this number
        return Path(tempfile.gettempdir()) / f"glassgate-{os.getuid()}"
