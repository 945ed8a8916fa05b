"""How the command line was started, so that suggested commands can be copied."""

import shlex
import shutil
import sys
from pathlib import Path


def started() -> str:
    """Return the words that start it again: `glassgate`, its path where that is not found, or `python -m glassgate`."""
    given = Path(sys.argv[0])
    if given.name == "__main__.py" and given.parent.name == "glassgate":
        python = Path(sys.executable)
        known = shutil.which(python.name)
        return f"{python.name if known and Path(known).samefile(python) else _short(python)} -m glassgate"
    if given.stem != "glassgate" or shutil.which("glassgate"):
        return "glassgate"
    return _short(given)


def _short(path: Path) -> str:
    path = path.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
