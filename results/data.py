"""The folder of the data, which no package contains."""

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """Return the folder that GLASSGATE_DATA names, or end the program with a message."""
    folder = os.environ.get("GLASSGATE_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit(
            f"expected a folder of data in GLASSGATE_DATA, got {folder or 'none'}; docs/results.md lists its files"
        )
    return Path(folder)
