"""Reads a table of time series in parts: CSV, TSV, Excel, Parquet or a data frame. Errors name the line or the row."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import loading, readable_file, suffix_of
from glassgate.tasks.data.kinds import NUMBER, TEXT, WORD, Column, kind_of, names_columns
from glassgate.tasks.data.records import TABLE_KINDS, load_arrays
from glassgate.tasks.data.sniff import Source, read_excel, sniff
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.series.layouts import find_wide, long_table, read_json_table, read_tsf
from glassgate.tasks.forecasting.series.times import join_columns

TIME_NAMES = ("ds", "date", "time", "timestamp", "datetime", "ts", "epoch", "__index_level_0__")
"""The usual names of the column of time stamps. Parquet files call the index of a pandas frame `__index_level_0__`."""
_EXAMINED_ROWS = 1000
_MAX_HEADER_ROWS = 3  # below the first
_MIN_ROWS = 3  # rows from which numbers may have decimal commas
_PART_SIZE = 2**16  # rows that are read at once
_PARQUET = ("a Parquet file", "write it again")  # for messages

Frame = Any
"""A `pyarrow.Table`, a data frame of pandas, polars or another library, or a `TimeSeries` of darts."""


class Table:
    """A file or a data frame. `parts` reads its rows and can be called several times.

    Attributes:
        names: the names of the columns
        path: the path of the file; None for a frame
        source: the origin of the rows, for messages
        has_lines: whether rows are lines of text
        is_typed: whether the numbers have types, as in Excel, so that their decimal mark is known
        has_header: whether the first row names the columns; a text table of numbers may have no header. Its columns are
            named by their numbers, from 1
        joined: columns that consist of other columns, such as a date and a time of day, by their names
        note: the encoding of a text file or the sheet of a workbook, as the end of a message; often empty
    """

    def __init__(self, source: "str | Path | Frame", decimal: str = ""):
        self.path = source if isinstance(source, str | Path) else None
        self.source = "given frame" if self.path is None else str(self.path)
        kind = "frame" if self.path is None else _kind_of_file(self.path)
        self.has_lines = kind in TABLE_KINDS and kind != "xlsx"
        self.is_typed = not self.has_lines
        self.note = ""
        self.has_header = True
        self.joined: dict[str, tuple[str, ...]] = {}
        self._read: Callable[[list[str]], Iterator[pd.DataFrame]]
        if kind in TABLE_KINDS:
            self._read_beginning(kind, decimal)
        elif kind == "parquet":
            schema = self._open_parquet().schema_arrow  # the index of a pandas frame comes last in the file
            index = [name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)]
            self.names = [*index, *(name for name in schema.names if name not in index)]
            self._read = self._read_parquet
        elif kind == "frame":
            self._set_frame(_to_pandas(source))
        elif kind == "npy":
            self._set_frame(_read_array(self.source))
        else:
            self._set_frame(read_tsf(self.source) if kind == "tsf" else read_json_table(self.source, kind))
        repeated = next((name for name in self.names if self.names.count(name) > 1), None)
        if repeated is not None:
            raise self.fault(None, f"expected columns with different names, got {repeated!r} twice; rename one of them")

    def _set_frame(self, frame: pd.DataFrame) -> None:
        self.names = [str(name) for name in frame.columns]
        frame = frame.set_axis(self.names, axis=1).set_axis(range(1, len(frame) + 1))
        self._read = lambda names: iter([frame[names]] if len(frame) else [])

    def _read_beginning(self, kind: str, decimal: str) -> None:
        """Find the header of a table of texts, and convert a table with a series per row."""
        found = sniff(self.source, kind)
        if _may_be_decimals(found, list(islice(found.rows(), _EXAMINED_ROWS))):
            if not decimal:
                raise self.fault(
                    found.dialect.skipped_lines + 1,
                    f"{','.join(found.header)} can be one number or two; choose --decimal , for one number, "
                    "--decimal . for two",
                )
            found = sniff(self.source, kind, separator=" " if decimal == "," else ",")
        self.names = found.header
        self.note = found.encoding if self.has_lines else read_excel(self.source)[1]
        below = [row for _, row in islice(found.rows(1), _EXAMINED_ROWS) if row]
        skipped = _count_rows_without_numbers(below)
        if skipped:
            self.names = _joined_names(self.names, below[:skipped])
            below = below[skipped:]
            rows = "a row of units" if skipped == 1 else f"{skipped} rows of names"
            self.note += f", {rows} below the header"
        wide = find_wide(self.names, below)
        if wide is not None:
            self.has_lines = False
            self.note += f", a {'year' if wide.has_months else 'series'} in each row"
            self._set_frame(long_table(wide, found.rows(1)))
            return
        while len(self.names) > 1 and not self.names[-1] and not any(row[len(self.names) - 1].strip() for row in below):
            self.names.pop()
        numbered = [str(index) for index in range(len(self.names))]
        self.has_header = self.names == numbered or names_columns(self.names, below, needs_numbers=True)
        if not self.has_header:
            self.note += ", no header, columns named by number"
        named = enumerate(self.names, 1)
        self.names = [name if name and self.has_header else str(number) for number, name in named]

        def read(names: list[str]) -> Iterator[pd.DataFrame]:
            indices = [self.names.index(name) for name in names]
            rows = islice(((number, row) for number, row in found.rows() if row), self.has_header + skipped, None)
            while part := list(islice(rows, _PART_SIZE)):
                cells = {name: [row[index] for _, row in part] for name, index in zip(names, indices, strict=True)}
                yield pd.DataFrame(cells, [number for number, _ in part])

        self._read = read

    def fault(self, row: int | None, message: str) -> DataError:
        """Return the error for a row, numbered as in `parts`, or for the whole table if `row` is None."""
        if row is None or self.has_lines:
            return DataError(self.source, row, message)
        return DataError(f"{self.source}, row {row}", None, message)

    def describe_row(self, row: int) -> str:
        """Return a row's number for the middle of a message, such as "line 3" or "row 3"."""
        return f"line {row}" if self.has_lines else f"row {row}"

    def join(self, names: tuple[str, ...]) -> str:
        """Add a column of time stamps that consists of other columns, and return its name."""
        name = " ".join(names)
        self.joined[name] = names
        return name

    def beginning(self, name: str) -> pd.Series:
        """Return the first rows of a column as text without blanks at the ends; a missing value is an empty text."""
        if names := self.joined.get(name):
            return join_columns([self.beginning(each) for each in names], names)
        return self.first_part[name].iloc[:_EXAMINED_ROWS].astype(str).fillna("").str.strip()

    @property
    def columns(self) -> list[Column]:
        """The columns, also the joined ones, with their first values as texts."""
        return [Column(name, tuple(self.beginning(name))) for name in (*self.names, *self.joined)]

    @cached_property
    def first_part(self) -> pd.DataFrame:
        """The cells of the first rows."""
        return next(self.parts(self.names), pd.DataFrame(columns=self.names, dtype=str))

    def parts(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield the rows in parts: the columns with these names, indexed by the number of each row.

        In a text file, a row has the number of its line, and blank lines are skipped. In other files and frames, rows
        are counted from 1.
        """
        plain = dict.fromkeys(chain.from_iterable(self.joined.get(name, (name,)) for name in names))
        for part in self._read(list(plain)):
            joined = {name: self.joined[name] for name in names if name in self.joined}
            texts = {name: join_columns([part[each] for each in parts], parts) for name, parts in joined.items()}
            yield part.assign(**texts)[list(names)] if texts else part

    def _read_parquet(self, names: list[str]) -> Iterator[pd.DataFrame]:
        file, first = self._open_parquet(), 1
        with loading(self.source, *_PARQUET):
            for batch in file.iter_batches(columns=names, batch_size=_PART_SIZE):
                frame = batch.to_pandas(ignore_metadata=True)[names]  # an index of pandas stays a column
                yield frame.set_axis(range(first, first + len(frame)))
                first += len(frame)

    def _open_parquet(self) -> Any:
        import pyarrow.parquet

        with loading(self.source, *_PARQUET):
            return pyarrow.parquet.ParquetFile(readable_file(self.source), memory_map=True)


def _kind_of_file(path: str | Path) -> str:
    kind = detect_kind(path)
    if kind == "folder":
        raise DataError(path, None, "this is a folder; give a file")
    if kind in ("", "text", "columns"):
        return "csv"
    if kind not in ("csv", "tsv", "tsf", "json", "jsonl", "parquet", "xlsx", "npy"):
        raise OptionError(
            f"{path}: expected time series as .csv, .tsv, .txt, .json, .tsf, .xlsx, .parquet or .npy, got the suffix "
            f"{suffix_of(path)!r}"
        )
    return kind


def _read_array(path: str) -> pd.DataFrame:
    """The columns of an array `(L,)` or `(L, C)`, named by their numbers from 1."""
    array = load_arrays(path, "save the numbers of each series in a column")["train"]
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu":
        raise DataError(path, None, f"expected numbers of shape (L,) or (L, C), got {array.dtype} {array.shape}")
    return pd.DataFrame(array).rename(columns=lambda number: str(number + 1))


def _count_rows_without_numbers(rows: Sequence[Sequence[str]]) -> int:
    """The number of first rows below a header without a number or time, such as units, above columns of numbers."""
    kinds = [[kind_of([cell.strip()]) if cell.strip() else "" for cell in row] for row in rows[: _MAX_HEADER_ROWS + 1]]
    count = next((k for k, row in enumerate(kinds) if not {*row} <= {WORD, TEXT, ""}), 0)
    if not count or len(rows) < count + 2:
        return 0
    columns = [kind_of([row[index].strip() for row in rows[count:]]) for index in range(len(rows[0]))]
    are_names = any(kind == NUMBER and cell for kind, cell in zip(columns, kinds[0], strict=True))
    return count if are_names else 0


def _joined_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The names of columns; if some are blank or occur twice, joined with the names below them."""
    if all(names[1:]) and len({*names}) == len(names):
        return list(names)
    filled: list[str] = []
    for name in names:
        filled.append(name or (filled[-1] if filled else ""))
    parts = zip(filled, *([cell.strip() for cell in row] for row in rows), strict=True)
    return [" ".join(dict.fromkeys(filter(None, each))) for each in parts]


def _may_be_decimals(source: Source, rows: Sequence[tuple[int, Sequence[str]]]) -> bool:
    """Whether each row has two whole numbers with a comma between them, and the first does not count the rows."""
    pairs = [row for _, row in rows if row]
    if source.dialect.separator != "," or len(source.header) != 2 or len(pairs) < _MIN_ROWS:
        return False
    if not all(first.strip().lstrip("+-").isdecimal() and second.isdecimal() for first, second in pairs):
        return False
    numbers = [int(first) for first, _ in pairs]
    return any(after <= before for before, after in pairwise(numbers))


def has_time_index(frame: Frame) -> bool:
    """Whether the index of a frame contains its time stamps, as in darts."""
    index = type(getattr(frame, "index", None)).__name__
    return hasattr(frame, "to_dataframe") or index in ("DatetimeIndex", "PeriodIndex")


def _to_pandas(data: Frame) -> pd.DataFrame:
    """Convert a frame to a pandas frame. An index of time stamps, steps, names or several levels becomes columns.

    A level of the index is dropped if a column has the same name.
    """
    try:
        if hasattr(data, "to_dataframe"):  # darts
            data = data.to_dataframe()
        elif hasattr(data, "to_pandas"):  # polars, Arrow
            data = data.to_pandas()
        frame = pd.DataFrame(data)
    except (TypeError, ValueError) as error:
        raise DataError("given frame", None, f"expected a data frame or a table, got {error}") from None
    index = frame.index
    if isinstance(index, pd.PeriodIndex):
        frame = frame.set_axis(index.to_timestamp())
    if isinstance(frame.index, pd.DatetimeIndex) or _counts_steps(frame):
        frame = frame.rename_axis(index.name or "time")
    for name in {*frame.index.names} & {*frame.columns}:
        frame = frame.reset_index(level=name, drop=True)
    if isinstance(frame.index, pd.MultiIndex) or frame.index.name is not None:
        frame = frame.reset_index()
    return frame


def _counts_steps(frame: pd.DataFrame) -> bool:
    """Whether the index of a frame numbers the steps of its series.

    False if a column has a usual name of time stamps or contains no numbers, because the index may then number the
    rows of a larger frame.
    """
    index = frame.index
    if not isinstance(index, pd.RangeIndex) or (index.start, index.step) == (0, 1):
        return False
    has_times = any(str(name).lower() in TIME_NAMES for name in frame.columns)
    return not has_times and all(map(pd.api.types.is_numeric_dtype, frame.dtypes))
