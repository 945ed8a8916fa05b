"""Reads series of numbers with one label each.

| kind | content |
|---|---|
| `ts` | the format of sktime |
| `npz` | arrays of NumPy: x `(N, L, C)` or `(N, L)`, y `(N,)` and lengths `(N,)` |
| `arff` | the format of Weka: one attribute per step, and the label in a nominal or the last attribute |
| `series` | a table with a series and its label per row, as in the UCR archive, or rows with a list of numbers |
| `series-folder` | a folder with a table per series, and one table that lists the files with their labels or targets |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.dialect import csv_rows
from glassgate.tasks.data.kinds import (
    LABEL_COLUMNS,
    NUMBER,
    WORD,
    Column,
    cell_text,
    is_number,
    last_name,
    number_or_nan,
)
from glassgate.tasks.data.lines import read_declared
from glassgate.tasks.data.records import load_arrays
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.errors import DataError, OptionError, UserError

LabelledSeries = tuple[str, int | None, np.ndarray, str | None]
"""The file and the line of a series, its values `(L, C)`, and its label."""

MIN_STEPS = 4
"""The minimum number of values in a row that is read as a series."""
_LABEL_NAMES = ("label", "target", "class", "y")
_ATTRIBUTE = re.compile(r"('[^']*'|\"[^\"]*\"|\S+)\s+(.*)")
_SUFFIXES = (".csv", ".tsv")  # of the tables in a folder
_MIN_NAMED = 0.8  # the fraction of the cells of a column that must name files
_MAX_TABLES = 10  # tables that are examined, those with a usual name first
_LIST_NAMES = ("target", "label", "class", "meta", "index", "train", "test")


def handle_missing(source: str, line: int | None, series: np.ndarray, missing: str) -> np.ndarray:
    """Return a series `(L, C)` as float32 without missing values (NaN).

    Args:
        source, line: the origin of the series, for messages
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


def _numbers(path: str | Path, number: int, cells: Sequence[Any]) -> list[float]:
    """The numbers in cells; NaN where one is missing."""
    try:
        return [number_or_nan(cell_text(cell)) for cell in cells]
    except ValueError as error:
        raise DataError(
            path, number, f"expected numbers, got: {error}; correct it, or write ? for a missing one"
        ) from None


def _read_ts(path: str | Path, _: str, labelled: bool) -> Iterator[LabelledSeries]:
    declarations, lines = read_declared(path)
    classes: list[str] = []
    has_labels = False
    for line, tag, text in declarations:
        if tag in ("@classlabel", "@targetlabel"):
            has_labels, classes = text.split()[:1] == ["true"], text.split()[1:]
        elif tag == "@timestamps" and text == "true":
            raise DataError(path, line, "expected only values, got time stamps; write the series without them")
    for number, text in lines:
        parts = text.split(":")  # the channels, and the label
        label = parts.pop().strip() if has_labels else None
        if classes and label not in classes:
            expected = f"expected one of the labels of @classLabel, {', '.join(classes)}"
            raise DataError(path, number, f"{expected}, got {label!r}; correct it")
        channels = [_numbers(path, number, [value for value in part.split(",") if value.strip()]) for part in parts]
        lengths = sorted({len(channel) for channel in channels})
        if len(lengths) != 1:
            got = ", ".join(map(str, lengths))
            raise DataError(path, number, f"expected channels of one length, got {got} values; fill up with ?")
        yield str(path), number, np.array(channels).T, label


def _read_npz(path: str | Path, _: str, labelled: bool) -> Iterator[LabelledSeries]:
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
            expected = f"expected {name} of shape ({count},), one per series of x"
            raise DataError(path, None, f"{expected}, got {array.shape}; save it again")
    for index, values in enumerate(arrays["x"]):
        label = None if labels is None else str(labels[index])
        series = values if values.ndim == 2 else values[:, None]
        yield f"{path}, series {index + 1}", None, series[: int(lengths[index])], label


def _read_arff(path: str | Path, _: str, labelled: bool) -> Iterator[LabelledSeries]:
    declarations, lines = read_declared(path)
    attributes = [match for _, tag, text in declarations if tag == "@attribute" and (match := _ATTRIBUTE.match(text))]
    if len(attributes) < 2:
        raise DataError(path, None, "expected lines with @attribute before @data, got none")
    nominal = [index for index, match in enumerate(attributes) if match[2].startswith("{")]
    label = nominal[-1] if nominal else len(attributes) - 1
    for number, text in lines:
        cells = next(csv_rows([text], quotechar="'", skipinitialspace=True))
        if len(cells) != len(attributes):
            expected = f"expected {len(attributes)} values, one for each @attribute"
            raise DataError(path, number, f"{expected}, got {len(cells)}")
        name = _label_text(cells.pop(label))
        yield str(path), number, _row_values(path, number, cells), name if labelled else None


# Tables with a series per row


def is_series_table(source: Source) -> bool:
    """Whether each row of a table can be a series of numbers with a label in one column, or a list with a label."""
    if source.is_keyed:
        return len(_list_columns(source)) == 1 and bool(_label_candidates(source, "label"))
    return source.is_numeric and len(source.of_kind(NUMBER)) > MIN_STEPS


def has_labels(source: Source) -> bool:
    """Whether the first, the last or a named column of a table of series can contain labels."""
    candidates = _label_candidates(source, "label")
    return bool(candidates) and (candidates != [0] or not source.columns[0].counts_rows)


def _read_series_table(path: str | Path, label_column: str, labelled: bool) -> Iterator[LabelledSeries]:
    source = sniff(path)
    candidates = _label_candidates(source, label_column)
    if labelled and len(candidates) != 1:
        raise _unclear_labels(path, source, label_column, bool(candidates))
    label = candidates[0] if len(candidates) == 1 else None
    lists, first = _list_columns(source), source.columns[0]
    is_id = first.counts_rows or (first.kind == WORD and not first.may_be_labels)
    omitted = {label, 0} if label and is_id else {label}
    for number, row in source.rows(int(source.has_header)):
        if row:
            cells = row[lists[0]] or () if lists else [cell for k, cell in enumerate(row) if k not in omitted]
            name = _label_text(cell_text(row[label])) if label is not None and labelled else None
            yield str(path), number, _row_values(path, number, cells), name


def _unclear_labels(path: str | Path, source: Source, label_column: str, is_ambiguous: bool) -> UserError:
    """The error that the column of labels does not exist, or that both or none of the end columns can be it."""
    width = len(source.columns)
    if label_column != "label":
        names = f", or a name in the header, such as {source.columns[0].name!r}" if source.has_header else ""
        return OptionError(f"--label-column: expected 1 to {width}{names}, got {label_column!r}")
    got = "either" if is_ambiguous else "neither"
    return DataError(
        path,
        None,
        f"expected the label of each series in the first or in the last column, and {got} can hold labels; choose "
        f"--label-column 1, or --label-column {width}",
    )


def _list_columns(source: Source) -> list[int]:
    """The keys with a list of numbers in each row."""
    lists = {index: column.groups for index, column in enumerate(source.columns) if column.groups}
    are_long = {index: max(map(len, groups)) > MIN_STEPS for index, groups in lists.items()}
    return [index for index, groups in lists.items() if are_long[index] and all(map(is_number, chain(*groups)))]


def _label_candidates(source: Source, label_column: str) -> list[int]:
    """The indices of the columns that can contain the labels, given the option `label_column`."""
    columns, width = source.columns, len(source.columns)
    names = [column.name for column in columns]
    if source.has_header and label_column in names:
        return [names.index(label_column)]
    if source.is_keyed and label_column == "label":
        usual = (*_LABEL_NAMES, *LABEL_COLUMNS)
        return [k for k, each in enumerate(source.columns) if last_name(each.name) in usual and each.values]
    if label_column != "label":
        return [int(label_column) - 1] if label_column.isdecimal() and 0 < int(label_column) <= width else []
    if source.has_header:
        return [index for index, name in enumerate(names) if name.lower() in _LABEL_NAMES]
    return [index for index in (0, width - 1) if _contains_labels(columns[index])]


def _contains_labels(column: Column) -> bool:
    return column.may_be_labels and (column.kind != NUMBER or column.are_whole_numbers)


def _label_text(cell: str) -> str:
    """A label as text; whole numbers lose their decimals, as the UCR archive writes 1 also as 1.0000000e+00."""
    cell = cell.strip()
    return str(int(float(cell))) if is_number(cell) and float(cell).is_integer() else cell


def _row_values(path: str | Path, number: int, cells: Sequence[Any]) -> np.ndarray:
    """The values of a row, `(L, 1)`, without missing ones at its end, which fill up shorter series."""
    values = np.array(_numbers(path, number, cells))
    present = np.flatnonzero(~np.isnan(values))
    return values[: present[-1] + 1 if len(present) else 0, None]


# Folders with a table per series


@dataclass(frozen=True)
class Targets:
    """The table of a folder that lists the others.

    Attributes:
        path: the table
        target: the column of the labels or targets
        indices: the indices of the columns of the file names and of the targets
        has_header: whether the first row names the columns
        tables: the tables of the folder, by their names, with and without suffix
    """

    path: Path
    target: Column
    indices: tuple[int, int]
    has_header: bool
    tables: Mapping[str, Path]


def find_targets(folder: str | Path, target_column: str = "label") -> Targets | None:
    """Return the table of a folder that lists its other tables; None if there is none.

    Args:
        target_column: the name of the column of the targets, if there are several columns next to the file names

    Raises:
        DataError: the column of the targets is not clear
    """
    paths = [path for path in sorted(Path(folder).glob("**/*")) if path.suffix.lower() in _SUFFIXES and path.is_file()]
    tables = {name: path for path in paths for name in (path.stem, path.name, path.relative_to(folder).as_posix())}
    top = [path for path in paths if path.parent == Path(folder)]
    top.sort(key=lambda path: not any(name in path.stem.lower() for name in _LIST_NAMES))
    for path in top[:_MAX_TABLES]:
        try:
            source = sniff(path)
        except UserError:
            continue
        columns = source.columns
        has_header = source.has_header or not any(column.values[0] in tables for column in columns)
        if has_header and not source.has_header:  # names that are texts, like the cells below them
            columns = tuple(replace(each, name=each.values[0], values=each.values[1:]) for each in columns)
        for number, column in enumerate(columns):
            if len(column.values) > 1 and np.mean([name in tables for name in column.values]) >= _MIN_NAMED:
                others = [(k, other) for k, other in enumerate(columns) if k != number]
                usual = {target_column, "target", *LABEL_COLUMNS}
                named = [(k, other) for k, other in others if other.name.lower() in usual]
                chosen = next((pair for pair in others if pair[1].name == target_column), None)
                candidates = [chosen] if chosen else named if len(named) == 1 else others
                if len(candidates) != 1:
                    got = ", ".join(repr(other.name) for _, other in others) or "none"
                    raise DataError(path, 1, f"expected one column of labels, got {got}; name it with --label-column")
                ((index, target),) = candidates
                return Targets(path, target, (number, index), has_header, tables)
    return None


def _read_series_folder(folder: str | Path, target_column: str, labelled: bool) -> Iterator[LabelledSeries]:
    targets = find_targets(folder, target_column)
    if targets is None:
        raise DataError(folder, None, "expected a table that lists the files with their labels; add one")
    names: list[str] = []
    for number, row in sniff(targets.path).rows(int(targets.has_header)):
        if not row:
            continue
        name, target = (row[index].strip() for index in targets.indices)
        if name not in targets.tables:
            raise DataError(targets.path, number, f"the file {name!r} is not in the folder; add it, or remove the row")
        source = sniff(targets.tables[name])
        if not names:  # the columns of numbers in the first file, without a first one that counts the rows
            columns = source.columns[1:] if source.columns and source.columns[0].counts_rows else source.columns
            names = [column.name for column in columns if column.kind == NUMBER]
        yield str(source.path), None, _table_values(source, names), target if labelled else None


def _table_values(source: Source, names: list[str]) -> np.ndarray:
    """The columns with these names, `(L, C)`."""
    present = [column.name for column in source.columns]
    if not names or not {*names} <= {*present}:
        expected = f"the columns {', '.join(map(repr, names[:8]))}, as in the first file" if names else "numbers"
        raise DataError(
            source.path, 1, f"expected {expected}, got {', '.join(map(repr, present[:8]))}; correct the file"
        )
    indices = [present.index(name) for name in names]
    rows = ((number, row) for number, row in source.rows(int(source.has_header)) if row)
    series = [_numbers(source.path, number, [row[index] for index in indices]) for number, row in rows]
    return np.array(series, np.float64).reshape(len(series), len(names))


READERS = {
    "ts": _read_ts,
    "npz": _read_npz,
    "arff": _read_arff,
    "series": _read_series_table,
    "series-folder": _read_series_folder,
}
"""The reader of each kind of file, given the path, the column of the labels, and whether labels are required."""
