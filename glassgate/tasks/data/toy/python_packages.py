"""Built-in data for classification: lines of code, labelled with their package of the standard library."""

import sysconfig
from pathlib import Path

from glassgate.tasks.data.labelled import Labelled

PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")

_LINES = 6
_HELD_OUT = 6  # one file in this many is held out


def read() -> tuple[list[Labelled], list[Labelled]]:
    """Return training and held-out examples, from different files.

    An example is six lines that are not blank. Every sixth file of a package is held out.
    """
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[Labelled], list[Labelled]] = ([], [])
    for package in PACKAGES:
        files = [path for path in sorted((root / package).rglob("*.py")) if "test" not in path.relative_to(root).parts]
        for number, path in enumerate(files, start=1):
            name, held_out = path.relative_to(root).as_posix(), number % _HELD_OUT == 0
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for start in range(0, len(lines) - _LINES + 1, _LINES):
                parts[held_out].append(Labelled("\n".join(lines[start : start + _LINES]), package, name))
    return parts
