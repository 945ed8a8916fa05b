"""Where files are kept that can be made again: kernels, and data in the form that training reads."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return `GLASSGATE_CACHE`, or the place that the system has for such things."""
    if given := os.environ.get("GLASSGATE_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "glassgate"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "glassgate"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "glassgate"
