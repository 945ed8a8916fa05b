"""Shared parts of the commands: selection of measurements by name, the data folder, and elapsed time."""

import os
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol, TypeVar


class Named(Protocol):
    """A measurement with a name."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


def select(items: Sequence[Item], names: Sequence[str], kind: str) -> list[Item]:
    """Return the items with these names, or all items if `names` is empty.

    Args:
        items: all items
        names: the names; `*` matches any characters
        kind: the kind of the items, for the error message

    Raises:
        SystemExit: an item does not exist
    """
    for name in names:
        if not any(fnmatch(item.name, name) for item in items):
            sys.exit(f"no {kind} {name!r}; there are: {', '.join(item.name for item in items)}")
    return [item for item in items if not names or any(fnmatch(item.name, name) for name in names)]


def data_folder() -> Path:
    """Return the folder that GLASSGATE_DATA names.

    Raises:
        SystemExit: the variable is not set, or the folder does not exist
    """
    folder = os.environ.get("GLASSGATE_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit(
            f"expected a folder of data in GLASSGATE_DATA, got {folder or 'none'}; docs/results.md lists its files"
        )
    return Path(folder)


class Clock:
    """Prints lines with the time since the clock was created."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def print(self, line: str) -> None:
        """Print the minutes and seconds, and the line."""
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        print(f"{minutes:4}:{seconds:02}  {line}", flush=True)
