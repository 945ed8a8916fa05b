"""Reads the .tsf files of the Monash forecasting repository (Godahewa et al. 2021) as a long table."""

from pathlib import Path

import pandas as pd

from glassgate.tasks.data.declared import read_declared
from glassgate.tasks.errors import DataError

SERIES, TIME, VALUE = "unique_id", "ds", "y"
"""The names of the columns of the table."""
_OFFSETS = {
    **{"yearly": {"years": 1}, "quarterly": {"months": 3}, "monthly": {"months": 1}, "weekly": {"weeks": 1}},
    **{"daily": {"days": 1}, "hourly": {"hours": 1}, "half_hourly": {"minutes": 30}, "15_minutes": {"minutes": 15}},
    **{"10_minutes": {"minutes": 10}, "minutely": {"minutes": 1}, "10_seconds": {"seconds": 10}},
    **{"4_seconds": {"seconds": 4}},
}
"""The arguments of `pandas.DateOffset` for the values of @frequency."""


def read_tsf(path: str | Path) -> pd.DataFrame:
    """Return a row for each step of each series, with its name, its time (or its number) and its value.

    Raises:
        DataError: the file has no data, a line has too few parts, or a value is not a number
    """
    declarations, lines = read_declared(path)
    attributes = [
        (name, kind.lower())
        for _, tag, text in declarations
        if tag == "@attribute"
        for name, kind in [text.split()[:2]]
    ]
    frequency = next((text.lower() for _, tag, text in declarations if tag == "@frequency"), "")
    frames = [_series(path, number, text, attributes, frequency) for number, text in lines]
    if not frames:
        raise DataError(path, None, "expected a line @data and the series after it, got none; is the file cut short?")
    return pd.concat(frames, ignore_index=True)


def _series(
    path: str | Path, number: int, text: str, attributes: list[tuple[str, str]], frequency: str
) -> pd.DataFrame:
    *cells, values = text.split(":")
    if len(cells) != len(attributes):
        raise DataError(path, number, f"expected {len(attributes)} attributes before the series, got {len(cells)}")
    try:
        numbers = [float("nan") if value.strip() == "?" else float(value) for value in values.split(",")]
    except ValueError as error:
        raise DataError(path, number, f"expected numbers, got: {error}; correct the line") from None
    by_kind = {kind: cell for (_, kind), cell in zip(attributes, cells, strict=True)}
    times: object = range(1, len(numbers) + 1)
    if "date" in by_kind and frequency in _OFFSETS:
        start = pd.to_datetime(by_kind["date"], format="%Y-%m-%d %H-%M-%S")
        times = pd.date_range(start, periods=len(numbers), freq=pd.DateOffset(**_OFFSETS[frequency]))
    return pd.DataFrame({SERIES: by_kind.get("string", f"T{number}"), TIME: times, VALUE: numbers})
