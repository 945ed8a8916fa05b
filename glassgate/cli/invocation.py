"""Finds the shell command that started this command line, so that users can copy suggested commands."""

import shlex
import shutil
import sys
from pathlib import Path


def invocation() -> str:
    """Return `glassgate`, its path if it is not on the PATH, or `python -m glassgate`."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py" and script.parent.name == "glassgate":
        python = Path(sys.executable)
        on_path = shutil.which(python.name)
        return f"{python.name if on_path and Path(on_path).samefile(python) else _short_path(python)} -m glassgate"
    if script.stem != "glassgate" or shutil.which("glassgate"):
        return "glassgate"
    return _short_path(script)


def _short_path(path: Path) -> str:
    path = path.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
