"""Texts and series with one label each: CSV, TSV, JSON lines and Parquet, sktime's .ts and NumPy's .npz."""

import csv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data import keyed
from glassgate.tasks.data.columns import Table, look_at_table
from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.files import STDIN, local, read_lines, suffix_of
from glassgate.tasks.errors import DataError, OptionError

FORMATS = ("auto", "csv", "tsv", "jsonl", "parquet", "text", "ts", "npz")
MISSING = ("error", "drop", "interpolate")
_LONGEST = 2**31 - 1  # characters of a field of CSV; Python's own limit of 131,072 is a shorter text than some

_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".ts": "ts",
    ".npz": "npz",
}
SERIES = ("ts", "npz")

Series = tuple[str, int | None, np.ndarray, str | None]
"""Where it comes from, file and line, its values, `(L, C)`, and its label."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text or a series, and its label where known.

    Attributes:
        content: a text, or its units, or `(L, C)`, a series of C channels, float32
        label: None where the file holds none
        source: the file it came from, and the number of the series where that is no line
        line: the line where it ends
    """

    content: str | Sequence[str] | np.ndarray
    label: str | None = None
    source: str = "given examples"
    line: int | None = None


def format_of(path: str | Path, format: str = "auto") -> str:
    """Name the format of a file: the one asked for, or by its suffix.

    Raises:
        OptionError: "auto" and an unknown suffix
        DataError: it is a folder
    """
    if format != "auto":
        return format
    if str(path) == STDIN:
        return kind_of(path) or "text"
    suffix = suffix_of(path)
    if Path(path).is_dir():
        raise DataError(path, None, "this is a folder; give a file")
    if suffix not in _BY_SUFFIX:
        raise OptionError(
            f"{path}: cannot tell the format by the suffix {suffix!r}; known are {', '.join(_BY_SUFFIX)}; "
            f"name it with --format {'|'.join(FORMATS[1:])}"
        )
    return _BY_SUFFIX[suffix]


def said(path: str | Path, format: str, text_column: str, label_column: str, labelled: bool) -> str:
    """What a file's columns were taken for, in words.

    Raises:
        DataError: see `look_at_table`
    """
    if format not in ("csv", "tsv"):
        return f"format {format}"
    separator = "\t" if format == "tsv" else None
    return look_at_table(path, separator, text_column, label_column if labelled else None).said()


def read(
    path: str | Path,
    format: str = "auto",
    text_column: str = "text",
    label_column: str = "label",
    missing: str = "error",
    labelled: bool = True,
) -> Iterator[Labelled]:
    """Yield the examples of a file.

    Args:
        format: one of `FORMATS`
        text_column, label_column: names in the first line of CSV and TSV, numbers from 1 where it is no header, keys in
            JSON lines
        missing: what to do where a series lacks a value (NaN): "error", "drop" the step, or "interpolate" in time
        labelled: whether labels are needed

    Raises:
        DataError: the file cannot be read, has other columns, an empty text, or lacks values
        OptionError: the format cannot be told; plain text, which has no labels, where they are needed
    """
    format = format_of(path, format)
    if format in SERIES:
        rows = _ts(path) if format == "ts" else _npz(path)
        examples = (_example_of(source, line, series, label, missing) for source, line, series, label in rows)
    else:
        if format == "text" and labelled:
            raise OptionError(f"{path}: plain text has no labels; give CSV, TSV or JSON lines, or see --format")
        texts = _texts(path, format, text_column, label_column if labelled else None)
        examples = (_text(path, number, text, label) for number, text, label in texts)
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty:
        raise DataError(path, None, "the file holds no example; give one with at least one row of data")


def mended(series: np.ndarray, missing: str) -> np.ndarray:
    """Drop the steps of a series that lack a value, or interpolate; the ends take the nearest value.

    Args:
        series: `(L, C)`
        missing: "drop" or "interpolate"

    Example:
        >>> mended(np.array([[1.0], [np.nan], [3.0]]), "interpolate").ravel().tolist()
        [1.0, 2.0, 3.0]
    """
    lacking = np.isnan(series)
    if missing == "drop":
        return series[~lacking.any(1)]
    steps = np.arange(len(series))
    channels = [np.interp(steps, steps[~out], values[~out]) for values, out in zip(series.T, lacking.T, strict=True)]
    return np.stack(channels, 1)


def _text(path: str | Path, number: int, text: str, label: str | None) -> Labelled:
    if not text.strip():
        raise DataError(path, number, "the text is empty; remove the row, or give it a text")
    if label is not None and not label.strip():
        raise DataError(path, number, "the label is empty; remove the row, or give it a label")
    return Labelled(text, label, str(path), number)


def _texts(path: str | Path, format: str, text: str, label: str | None) -> Iterator[tuple[int, str, str | None]]:
    if format == "text":
        return ((number, line, None) for number, line in read_lines(path) if line.strip())
    if format in ("jsonl", "parquet"):
        return keyed_texts(path, keyed.read(path), text, label)
    layout = look_at_table(path, "\t" if format == "tsv" else None, text, label)
    return _separated(path, layout)


def keyed_texts(
    path: str | Path, rows: Iterator[tuple[int, Any, keyed.Names]], text: str, label: str | None
) -> Iterator[tuple[int, str, str | None]]:
    """Yield number, text and label of rows with keys; of "text" and "label", the defaults, other usual ones will do."""
    text_key, label_key = (None if name == usual else name for name, usual in ((text, "text"), (label, "label")))
    for number, row, names in rows:
        found = keyed.value(path, number, row, text_key, keyed.TEXTS, "--text-column, --label-column")
        if not isinstance(found, str):
            raise DataError(path, number, f"expected a string under {text!r}, got {type(found).__name__}; quote it")
        given = None
        if label is not None:
            given = keyed.value(path, number, row, label_key, keyed.LABEL, "--text-column, --label-column")
            key = label_key or next(name for name in keyed.LABEL if name in row)
            given = keyed.named(given, names.get(key))
        yield number, found, given


def _separated(path: str | Path, layout: Table) -> Iterator[tuple[int, str, str | None]]:
    lines = (f"{line}\n" for number, line in read_lines(path) if number > layout.before)
    if layout.separator == "\t":  # no quotes: one is a character like any other
        cells = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        cells = csv.reader(lines, delimiter=layout.separator, strict=True)
    width = 0
    csv.field_size_limit(_LONGEST)
    try:
        for row in cells:
            if not row or row == [""]:
                continue
            number = cells.line_num + layout.before
            if not width:
                width = len(row)
                if layout.header:
                    continue
            if len(row) != width:
                raise DataError(
                    path,
                    number,
                    f"expected {width} columns, as in the first line, got {len(row)}; put quotes around a text with "
                    f"{layout.separator!r} in it",
                )
            yield number, row[layout.text], None if layout.label is None else row[layout.label]
    except csv.Error as error:
        raise DataError(
            path,
            cells.line_num + layout.before,
            f"expected CSV, got what does not parse: {error}; check the quotes",
        ) from None


def _example_of(source: str, line: int | None, series: np.ndarray, label: str | None, missing: str) -> Labelled:
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
        series = mended(series, missing)
    if not len(series):
        raise DataError(source, line, "the series is empty; remove it")
    return Labelled(np.asarray(series, np.float32), label, source, line)


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
        if tag == "@classlabel":
            labels = values[:1] == ["true"]
            classes = values[1:] or None
        elif tag == "@timestamps" and values == ["true"]:
            raise DataError(path, number, "expected values alone, got time stamps; write the series without them")
        elif tag == "@data":
            data = True
        elif not tag.startswith("@"):
            raise DataError(
                path, number, "expected a tag such as @classLabel or @data; the file is no .ts file of sktime"
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
    arrays = _npz_arrays(path)
    count, longest = arrays["x"].shape[:2]
    labels, lengths = arrays.get("y"), arrays.get("lengths", np.full(count, longest))
    for name, each in (("y", labels), ("lengths", lengths)):
        if each is not None and each.shape != (count,):
            raise DataError(
                path, None, f"expected {name} of shape ({count},), one a series of x, got {each.shape}; save it again"
            )
    for number, each in enumerate(arrays["x"]):
        label = None if labels is None else str(labels[number])
        series = each if each.ndim == 2 else each[:, None]
        yield f"{path}, series {number + 1}", None, series[: int(lengths[number])], label


def _found(path: str | Path, error: Exception) -> str:
    """What an archive is that does not load; NumPy's own text would have the reader load it unsafely."""
    if not zipfile.is_zipfile(local(path)):
        return "a file that is no .npz archive"
    return "pickled objects" if "pickle" in str(error) else f"what does not load ({error})"


def _npz_arrays(path: str | Path) -> dict[str, np.ndarray]:
    if not local(path).is_file():
        raise DataError(path, None, "no such file; check the path, or the folder you started from")
    try:
        with np.load(local(path), allow_pickle=False) as content:
            arrays: dict[str, Any] = {name: content[name] for name in content}
    except (ValueError, OSError, AttributeError) as error:
        raise DataError(
            path,
            None,
            f"expected arrays of numbers, got {_found(path, error)}; save x padded, with lengths",
        ) from None
    if "x" not in arrays or arrays["x"].ndim not in (2, 3) or arrays["x"].dtype.kind not in "fiub":
        got = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise DataError(
            path, None, f"expected x, numbers of shape (N, L, C) or (N, L), y (N,) and lengths (N,), got {got}"
        )
    return arrays
