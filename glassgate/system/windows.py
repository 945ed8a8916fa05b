"""Windows."""

import ctypes
import errno
import gc
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from glassgate.system.portable import System, home_folder

REPLACE_SECONDS = 2.0
"""The time for which a file that another program has open is tried again. Virus scanners open new files briefly."""


class Windows(System):
    """Windows. A file that a program has open or mapped cannot be replaced, but it can often be renamed."""

    def yield_function(self) -> int:
        """The address of `SwitchToThread`."""
        kernel = getattr(ctypes, "WinDLL")("kernel32")  # noqa: B009, other systems have no such attribute
        return ctypes.cast(kernel.SwitchToThread, ctypes.c_void_p).value or 0

    def is_closed_pipe(self, error: OSError) -> bool:
        """Windows also reports an invalid argument, without the name of a file."""
        return super().is_closed_pipe(error) or (error.errno == errno.EINVAL and error.filename is None)

    def cache_root(self) -> Path:
        """The folder in `LOCALAPPDATA`."""
        return Path(os.environ.get("LOCALAPPDATA") or home_folder() / "AppData" / "Local")

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder. Python first closes the files of unused arrays and readers, which could not be removed."""
        super().remove_folder(folder)
        if folder.exists():
            gc.collect()
            super().remove_folder(folder)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file. If a program has `target` open, move the old file aside, or wait until it is closed.

        Raises:
            PermissionError: another program has the file open.
        """
        deadline = time.monotonic() + REPLACE_SECONDS
        while True:
            try:
                os.replace(source, target)
                return
            except PermissionError as error:
                if not target.is_file():
                    raise
                if self._replace_aside(source, target):
                    return
                if time.monotonic() >= deadline:
                    error.add_note("close the program or object that has this file open, or choose another path")
                    raise
            time.sleep(0.05)

    def _replace_aside(self, source: Path, target: Path) -> bool:
        """Rename the old file, then the new file. Return whether this succeeded."""
        aside = target.with_name(f".glassgate-{secrets.token_hex(6)}.old")
        try:
            os.rename(target, aside)
        except PermissionError:
            return False
        try:
            os.rename(source, target)
        except OSError:
            os.rename(aside, target)
            raise
        with suppress(PermissionError):  # it is deleted at the next replacement after its reader has closed it
            aside.unlink()
        for old in target.parent.glob(".glassgate-*.old"):
            with suppress(PermissionError):
                old.unlink()
        return True
