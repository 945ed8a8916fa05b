"""Reads a folder with a table per series, and one table that lists the files with their labels or targets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.kinds import NUMBER, Column, number_or_nan
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.errors import DataError, UserError

_SUFFIXES = (".csv", ".tsv")
_MIN_NAMED = 0.8  # the fraction of the cells of a column that must name files
_MAX_TABLES = 10  # tables that are examined, those with a usual name first
_NAMES = ("target", "label", "class", "meta", "index", "train", "test")


@dataclass(frozen=True)
class Targets:
    """The table that lists the files.

    Attributes:
        path: the table
        file, target: the columns of the file names and of the targets
        index: the index of each of these columns
        tables: the tables of the folder, by their names, with and without suffix
    """

    path: Path
    file: Column
    target: Column
    index: tuple[int, int]
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
    top.sort(key=lambda path: not any(name in path.stem.lower() for name in _NAMES))
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
                usual = {target_column, "target", *records.LABEL_COLUMNS}
                named = [(k, other) for k, other in others if other.name.lower() in usual]
                chosen = next((pair for pair in others if pair[1].name == target_column), None)
                candidates = [chosen] if chosen else named if len(named) == 1 else others
                if len(candidates) != 1:
                    got = ", ".join(repr(other.name) for _, other in others) or "none"
                    raise DataError(path, 1, f"expected one column of labels, got {got}; name it with --label-column")
                ((index, target),) = candidates
                return Targets(path, column, target, (number, index), has_header, tables)
    return None


def read_series_folder(
    folder: str | Path, target_column: str, labelled: bool
) -> Iterator[tuple[str, int | None, np.ndarray, str | None]]:
    """Yield the file, no line, the values `(L, C)` and the target of each series.

    Raises:
        DataError: a file is missing, has other columns than the first one, or has no numbers
    """
    targets = find_targets(folder, target_column)
    if targets is None:
        raise DataError(folder, None, "expected a table that lists the files with their labels; add one")
    names: list[str] = []
    for number, row in sniff(targets.path).rows(int(targets.has_header)):
        if not row:
            continue
        name, target = (row[index].strip() for index in targets.index)
        if name not in targets.tables:
            raise DataError(targets.path, number, f"the file {name!r} is not in the folder; add it, or remove the row")
        path = targets.tables[name]
        names = names or _channels(path)
        yield str(path), None, _read(path, names), target if labelled else None


def _channels(path: Path) -> list[str]:
    """The columns of numbers, without a first one that counts the rows."""
    columns = sniff(path).columns
    columns = columns[1:] if columns and columns[0].counts_rows else columns
    return [column.name for column in columns if column.kind == NUMBER]


def _read(path: Path, names: list[str]) -> np.ndarray:
    source = sniff(path)
    present = [column.name for column in source.columns]
    if not names or not {*names} <= {*present}:
        expected = f"the columns {', '.join(map(repr, names[:8]))}, as in the first file" if names else "numbers"
        raise DataError(path, 1, f"expected {expected}, got {', '.join(map(repr, present[:8]))}; correct the file")
    indices = [present.index(name) for name in names]
    series = []
    for number, row in source.rows(int(source.has_header)):
        if row:
            cells = [row[index].strip() for index in indices]
            try:
                series.append([*map(number_or_nan, cells)])
            except ValueError as error:
                raise DataError(path, number, f"expected numbers, got: {error}; correct the line") from None
    return np.array(series, np.float64).reshape(len(series), len(names))
