"""Labelled series in tables of numbers: a series and its label per row, as in the UCR archive, and ARFF files."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.declared import read_declared
from glassgate.tasks.data.detect import is_number
from glassgate.tasks.data.dialect import csv_rows
from glassgate.tasks.data.kinds import NUMBER, WORD, Column, cell_text, number_or_nan
from glassgate.tasks.data.records import LABEL_COLUMNS, last_name
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.errors import DataError, OptionError

MIN_STEPS = 4
"""The minimum number of values in a row that is read as a series."""
_LABEL_NAMES = ("label", "target", "class", "y")
_ATTRIBUTE = re.compile(r"('[^']*'|\"[^\"]*\"|\S+)\s+(.*)")

Row = tuple[str, int, np.ndarray, str | None]


def is_series_table(source: Source) -> bool:
    """Whether each row of a table can be a series of numbers with a label in one column, or a list with a label."""
    if source.is_keyed:
        return len(_list_columns(source)) == 1 and bool(_label_candidates(source, "label"))
    return source.is_numeric and len(source.of_kind(NUMBER)) > MIN_STEPS


def has_labels(source: Source) -> bool:
    """Whether the first, the last or a named column of a table of series can contain labels."""
    candidates = _label_candidates(source, "label")
    return bool(candidates) and (candidates != [0] or not source.columns[0].counts_rows)


def label_column_of(path: str | Path, source: Source, label_column: str = "label") -> int:
    """Return the index of the column of labels.

    Args:
        label_column: the name of the column in the header, or its number from 1

    Raises:
        DataError: the labels could be in the first or in the last column, or in neither
        OptionError: the given column does not exist
    """
    candidates = _label_candidates(source, label_column)
    if len(candidates) == 1:
        return candidates[0]
    width = len(source.columns)
    if label_column != "label":
        names = f", or a name in the header, such as {source.columns[0].name!r}" if source.has_header else ""
        raise OptionError(f"--label-column: expected 1 to {width}{names}, got {label_column!r}")
    got = "either" if candidates else "neither"
    raise DataError(
        path,
        None,
        f"expected the label of each series in the first or in the last column, and {got} can hold labels; choose "
        f"--label-column 1, or --label-column {width}",
    )


def read_series_table(path: str | Path, label_column: str = "label", labelled: bool = True) -> Iterator[Row]:
    """Yield the file, the line, the values `(L, 1)` and the label of each row. Cells without a number are missing.

    At the end of a row, missing values are left out, because shorter series are filled up with them.

    Raises:
        DataError: a cell contains anything other than a number
    """
    source = sniff(path)
    candidates = _label_candidates(source, label_column)
    label = label_column_of(path, source, label_column) if labelled or len(candidates) == 1 else None
    lists = _list_columns(source)
    ids = _id_column(source, label)
    for number, row in source.rows(int(source.has_header)):
        if row:
            cells = row[lists[0]] or () if lists else [cell for k, cell in enumerate(row) if k not in (label, ids)]
            name = _label_text(cell_text(row[label])) if label is not None and labelled else None
            yield str(path), number, _values(path, number, cells), name


def _list_columns(source: Source) -> list[int]:
    """The keys with a list of numbers in each row."""
    lists = {index: column.groups for index, column in enumerate(source.columns) if column.groups}
    are_long = {index: max(map(len, groups)) > MIN_STEPS for index, groups in lists.items()}
    return [index for index, groups in lists.items() if are_long[index] and all(map(is_number, chain(*groups)))]


def _id_column(source: Source, label: int | None) -> int | None:
    """The first column if it counts the rows or contains distinct words, and the labels are in another one."""
    first = source.columns[0]
    is_id = first.counts_rows or (first.kind == WORD and not first.may_be_labels)
    return 0 if label and is_id else None


def read_arff(path: str | Path, labelled: bool = True) -> Iterator[Row]:
    """Yield the rows of an ARFF file: one attribute per step, and the label in a nominal or the last attribute.

    Raises:
        DataError: the file has no attributes or no data, or a value is not a number
    """
    declarations, lines = read_declared(path)
    attributes = [match for _, tag, text in declarations if tag == "@attribute" and (match := _ATTRIBUTE.match(text))]
    if len(attributes) < 2:
        raise DataError(path, None, "expected lines with @attribute before @data, got none")
    nominal = [index for index, match in enumerate(attributes) if match[2].startswith("{")]
    label = nominal[-1] if nominal else len(attributes) - 1
    for number, text in lines:
        cells = next(csv_rows([text], quotechar="'", skipinitialspace=True))
        if len(cells) != len(attributes):
            raise DataError(
                path, number, f"expected {len(attributes)} values, one for each @attribute, got {len(cells)}"
            )
        name = _label_text(cells.pop(label))
        yield str(path), number, _values(path, number, cells), name if labelled else None


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


def _values(path: str | Path, number: int, cells: Sequence[Any]) -> np.ndarray:
    try:
        values = np.array([number_or_nan(cell_text(cell)) for cell in cells])
    except ValueError as error:
        raise DataError(path, number, f"expected numbers, got: {error}; correct the line") from None
    present = np.flatnonzero(~np.isnan(values))
    return values[: present[-1] + 1 if len(present) else 0, None]
