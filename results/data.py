"""Where the data is that comes with no package."""

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """The folder that GLASSGATE_DATA names; the program ends with a sentence where there is none."""
    folder = os.environ.get("GLASSGATE_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit(
            f"expected a folder of data in GLASSGATE_DATA, got {folder or 'none'}; docs/results.md says what is in it"
        )
    return Path(folder)
