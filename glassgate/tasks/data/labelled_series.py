"""Reads series of numbers with one label each: sktime's .ts and NumPy's .npz."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.records import load_arrays
from glassgate.tasks.errors import DataError

KINDS = ("ts", "npz")

Series = tuple[str, int | None, np.ndarray, str | None]
"""The file and line of a series, its values, `(L, C)`, and its label."""


def read_arrays(path: str | Path, kind: str) -> Iterator[Series]:
    """Yield the series of a file.

    Args:
        kind: one of `KINDS`

    Raises:
        DataError: the file is not of this kind
    """
    return _ts(path) if kind == "ts" else _npz(path)


def without_missing(source: str, line: int | None, series: np.ndarray, missing: str) -> np.ndarray:
    """Return a series as float32 without missing values (NaN).

    Args:
        source, line: the origin of the series, for messages
        series: `(L, C)`
        missing: "error"; "drop" the step; or "interpolate" in time, where the ends take the nearest value

    Raises:
        DataError: a value is infinite, a value is missing and `missing` is "error", or no step is left

    Example:
        >>> without_missing("a.ts", 1, np.array([[1.0], [np.nan], [3.0]]), "interpolate").ravel().tolist()
        [1.0, 2.0, 3.0]
    """
    series = np.asarray(series, np.float32)
    if np.isinf(series).any():
        raise DataError(source, line, f"expected numbers, got infinity {_first(np.isinf(series))}; correct it")
    lacking = np.isnan(series)
    if lacking.any():
        where = f"missing values (NaN): {lacking.sum()}, the first {_first(lacking)}"
        if missing == "error":
            raise DataError(source, line, f"{where}; fill them, or choose --missing drop or --missing interpolate")
        if missing == "interpolate" and lacking.all(0).any():
            raise DataError(source, line, f"{where}, which has no value at all to interpolate from; remove the series")
        import pandas as pd

        frame = pd.DataFrame(series)
        series = (frame.dropna() if missing == "drop" else frame.interpolate(limit_direction="both")).to_numpy()
    if not len(series):
        raise DataError(source, line, "the series is empty; remove it")
    return np.asarray(series, np.float32)


def _first(places: np.ndarray) -> str:
    step, channel = np.argwhere(places)[0] + 1
    return f"in step {step} of channel {channel}"


def _ts(path: str | Path) -> Iterator[Series]:
    classes: list[str] | None = None
    labels = data = False
    for number, line in read_lines(path):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if data:
            yield str(path), number, *_ts_row(path, number, line, labels, classes)
            continue
        tag, values = words[0].lower(), words[1:]
        if tag in ("@classlabel", "@targetlabel"):
            labels = values[:1] == ["true"]
            classes = values[1:] or None
        elif tag == "@timestamps" and values == ["true"]:
            raise DataError(path, number, "expected only values, got time stamps; write the series without them")
        elif tag == "@data":
            data = True
        elif not tag.startswith("@"):
            raise DataError(
                path, number, "expected a tag such as @classLabel or @data; this is not a .ts file of sktime"
            )
    if not data:
        raise DataError(path, None, "expected a line @data and the series after it, got none; is the file cut short?")


def _ts_row(
    path: str | Path, number: int, line: str, labels: bool, classes: list[str] | None
) -> tuple[np.ndarray, str | None]:
    parts = line.split(":")
    label = parts.pop().strip() if labels else None
    if classes is not None and label not in classes:
        raise DataError(
            path,
            number,
            f"expected one of the labels of @classLabel, {', '.join(classes)}, got {label!r}; correct it",
        )
    try:
        channels = [[np.nan if v.strip() == "?" else float(v) for v in part.split(",") if v.strip()] for part in parts]
    except ValueError as error:
        raise DataError(
            path, number, f"expected numbers separated by commas, got: {error}; write ? for a missing one"
        ) from None
    counts = sorted({len(channel) for channel in channels})
    if len(counts) != 1:
        raise DataError(
            path,
            number,
            f"expected channels of one length, got {', '.join(map(str, counts))} values; fill up with ?",
        )
    return np.array(channels).T, label


def _npz(path: str | Path) -> Iterator[Series]:
    arrays = load_arrays(path, "save x padded, with lengths")
    if "x" not in arrays or arrays["x"].ndim not in (2, 3) or arrays["x"].dtype.kind not in "fiub":
        got = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise DataError(
            path, None, f"expected x, numbers of shape (N, L, C) or (N, L), y (N,) and lengths (N,), got {got}"
        )
    count, longest = arrays["x"].shape[:2]
    labels, lengths = arrays.get("y"), arrays.get("lengths", np.full(count, longest))
    for name, each in (("y", labels), ("lengths", lengths)):
        if each is not None and each.shape != (count,):
            raise DataError(
                path, None, f"expected {name} of shape ({count},), one per series of x, got {each.shape}; save it again"
            )
    for number, each in enumerate(arrays["x"]):
        label = None if labels is None else str(labels[number])
        series = each if each.ndim == 2 else each[:, None]
        yield f"{path}, series {number + 1}", None, series[: int(lengths[number])], label
