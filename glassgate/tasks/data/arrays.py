"""Loads arrays from .npz and .npy files, without pickle."""

import zipfile
from pathlib import Path

import numpy as np

from glassgate.tasks.data.files import readable
from glassgate.tasks.errors import DataError


def load_arrays(path: str | Path, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name; the array of a .npy file is named "train".

    Args:
        remedy: the end of the message about a file that does not load

    Raises:
        DataError: the file cannot be read, or has other content than arrays
    """
    file = readable(path)
    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"train": content}
        with content:
            return dict(content)
    except (ValueError, OSError, zipfile.BadZipFile):  # NumPy recommends to allow pickles, which is unsafe
        raise DataError(
            path, None, f"expected arrays of numbers, got what does not load without pickle; {remedy}"
        ) from None
