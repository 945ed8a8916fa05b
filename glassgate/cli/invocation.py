"""The shell command that started the command line, for suggested commands that can be copied."""

import shlex
import shutil
import sys
from pathlib import Path


def invocation() -> str:
    """Return `glassgate`, its path if it is not on the PATH, or `python -m glassgate`."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py" and script.parent.name == "glassgate":
        python = Path(sys.executable)
        known = shutil.which(python.name)
        return f"{python.name if known and Path(known).samefile(python) else _short(python)} -m glassgate"
    if script.stem != "glassgate" or shutil.which("glassgate"):
        return "glassgate"
    return _short(script)


def _short(path: Path) -> str:
    path = path.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
