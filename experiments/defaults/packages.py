"""Tables of series and files of examples from packages that are installed: sktime, statsmodels and vega_datasets.

The packages are not imported, so they need no dependencies: `pip install --no-deps sktime statsmodels vega_datasets`.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

SERIES = "sktime/datasets/data/{0}/{0}_{1}.ts"


_NAMES = ("sktime", "statsmodels", "vega_datasets")


class MissingPackage(Exception):
    """A package with data is not installed."""


def file(path: str) -> Path:
    """Return a file of an installed package, from a path that begins with the name of the package.

    Raises:
        MissingPackage: the package is not installed
    """
    package, _, rest = path.partition("/")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingPackage(f"{package} is not installed: pip install --no-deps {package}")
    return Path(spec.origin).parent / rest


def locate(path: str, data: Path) -> Path:
    """Return the file of a path that begins with the name of a package, or else a path below the data folder."""
    return file(path) if path.split("/")[0] in _NAMES else data / path


def column(path: str, index: int, last: int = 0) -> pd.DataFrame:
    """Return a column of a CSV file of a package as a table, with missing values interpolated.

    Args:
        path: the file; see `file`
        index: the number of the column, from 0
        last: the number of last rows to keep; 0 for all
    """
    values = pd.read_csv(file(path)).iloc[:, index].astype(float).interpolate()
    return pd.DataFrame({"value": values[-last:].to_numpy()})


def rows(path: str, index: int) -> pd.DataFrame:
    """Return the values of all rows of a CSV file, one row after the other, from a column on, as a table."""
    return pd.DataFrame({"value": pd.read_csv(file(path)).iloc[:, index:].to_numpy(float).ravel()})


def columns(path: str, start: int, stop: int) -> pd.DataFrame:
    """Return several columns of a CSV file of a package as a table of series."""
    frame: Any = pd.read_csv(file(path)).iloc[:, start:stop]
    return frame.astype(float)
