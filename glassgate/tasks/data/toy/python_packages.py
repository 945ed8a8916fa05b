"""Built-in data for classification: lines of code of the standard library, labelled with their package."""

import sysconfig
from pathlib import Path

from glassgate.tasks.data.labelled import Labelled

PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")

_LINES_PER_EXAMPLE = 6
_HELD_OUT_EVERY = 6  # every sixth file of a package is held out


def read() -> tuple[list[Labelled], list[Labelled]]:
    """Return training and held-out examples, from different files.

    An example consists of six lines that are not blank.
    """
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[Labelled], list[Labelled]] = ([], [])
    for package in PACKAGES:
        files = [path for path in sorted((root / package).rglob("*.py")) if "test" not in path.relative_to(root).parts]
        for number, path in enumerate(files, start=1):
            name, is_held_out = path.relative_to(root).as_posix(), number % _HELD_OUT_EVERY == 0
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for start in range(0, len(lines) - _LINES_PER_EXAMPLE + 1, _LINES_PER_EXAMPLE):
                text = "\n".join(lines[start : start + _LINES_PER_EXAMPLE])
                parts[is_held_out].append(Labelled(text, package, name))
    return parts
