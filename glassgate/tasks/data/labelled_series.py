"""Reads series of numbers with one label each: sktime's .ts, NumPy's .npz, ARFF, and tables with a series per row."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from glassgate.tasks.data.declared import read_declared
from glassgate.tasks.data.records import load_arrays
from glassgate.tasks.data.series_folder import read_series_folder
from glassgate.tasks.data.series_tables import read_arff, read_series_table
from glassgate.tasks.errors import DataError

KINDS = ("ts", "npz", "arff", "series", "series-folder")
"""The kinds of files; "series" is a table with a series per row, "series-folder" a folder with a table per series."""

LabelledSeries = tuple[str, int | None, np.ndarray, str | None]
"""The file and the line of a series, its values `(L, C)`, and its label."""


def read_labelled_series(
    path: str | Path, kind: str, label_column: str = "label", labelled: bool = True
) -> Iterator[LabelledSeries]:
    """Yield the series of a file.

    Args:
        kind: one of `KINDS`
        label_column: the column of the labels in a table, by name or by number from 1
        labelled: whether labels are required

    Raises:
        DataError: the file is not of this kind
    """
    if kind == "series":
        return read_series_table(path, label_column, labelled)
    if kind == "series-folder":
        return read_series_folder(path, label_column, labelled)
    if kind == "arff":
        return read_arff(path, labelled)
    return _read_ts(path) if kind == "ts" else _read_npz(path)


def handle_missing(source: str, line: int | None, series: np.ndarray, missing: str) -> np.ndarray:
    """Return a series as float32 without missing values (NaN).

    Args:
        source, line: the origin of the series, for messages
        series: `(L, C)`
        missing: "error" raises an error, "drop" removes steps with a missing value, "interpolate" interpolates in
            time and repeats the nearest value at both ends of a channel

    Raises:
        DataError: a value is infinite; a value is missing and `missing` is "error"; no step is left; a channel has no
            value to interpolate from

    Example:
        >>> handle_missing("a.ts", 1, np.array([[1.0], [np.nan], [3.0]]), "interpolate").ravel().tolist()
        [1.0, 2.0, 3.0]
    """
    series = np.asarray(series, np.float32)
    if np.isinf(series).any():
        raise DataError(source, line, f"expected numbers, got infinity {_describe_first(np.isinf(series))}; correct it")
    is_missing = np.isnan(series)
    if is_missing.any():
        reason = f"missing values (NaN): {is_missing.sum()}, the first {_describe_first(is_missing)}"
        if missing == "error":
            raise DataError(source, line, f"{reason}; fill them, or choose --missing drop or --missing interpolate")
        if missing == "interpolate" and is_missing.all(0).any():
            channel = is_missing.all(0).argmax() + 1
            raise DataError(source, line, f"channel {channel} has no value to interpolate from; remove the series")
        import pandas as pd

        frame = pd.DataFrame(series)
        series = (frame.dropna() if missing == "drop" else frame.interpolate(limit_direction="both")).to_numpy()
    if not len(series):
        raise DataError(source, line, "the series is empty; remove it")
    return np.asarray(series, np.float32)


def _describe_first(mask: np.ndarray) -> str:
    """The position of the first true value of a mask, `(L, C)`, in words."""
    step, channel = np.argwhere(mask)[0] + 1
    return f"in step {step} of channel {channel}"


def _read_ts(path: str | Path) -> Iterator[LabelledSeries]:
    declarations, lines = read_declared(path)
    classes: list[str] | None = None
    has_labels = False
    for line, tag, text in declarations:
        if tag in ("@classlabel", "@targetlabel"):
            has_labels, classes = text.split()[:1] == ["true"], text.split()[1:] or None
        elif tag == "@timestamps" and text == "true":
            raise DataError(path, line, "expected only values, got time stamps; write the series without them")
    for number, text in lines:
        yield str(path), number, *_parse_ts_line(path, number, text, has_labels, classes)


def _parse_ts_line(
    path: str | Path, number: int, line: str, has_label: bool, classes: list[str] | None
) -> tuple[np.ndarray, str | None]:
    """The series and the label in a line; channels are separated by colons, and the label comes last."""
    parts = line.split(":")
    label = parts.pop().strip() if has_label else None
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
    lengths = sorted({len(channel) for channel in channels})
    if len(lengths) != 1:
        raise DataError(
            path,
            number,
            f"expected channels of one length, got {', '.join(map(str, lengths))} values; fill up with ?",
        )
    return np.array(channels).T, label


def _read_npz(path: str | Path) -> Iterator[LabelledSeries]:
    arrays = load_arrays(path, "save x padded, with lengths")
    if "x" not in arrays or arrays["x"].ndim not in (2, 3) or arrays["x"].dtype.kind not in "fiub":
        got = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise DataError(
            path, None, f"expected x, numbers of shape (N, L, C) or (N, L), y (N,) and lengths (N,), got {got}"
        )
    count, longest = arrays["x"].shape[:2]
    labels, lengths = arrays.get("y"), arrays.get("lengths", np.full(count, longest))
    for name, array in (("y", labels), ("lengths", lengths)):
        if array is not None and array.shape != (count,):
            raise DataError(
                path,
                None,
                f"expected {name} of shape ({count},), one per series of x, got {array.shape}; save it again",
            )
    for index, values in enumerate(arrays["x"]):
        label = None if labels is None else str(labels[index])
        series = values if values.ndim == 2 else values[:, None]
        yield f"{path}, series {index + 1}", None, series[: int(lengths[index])], label
