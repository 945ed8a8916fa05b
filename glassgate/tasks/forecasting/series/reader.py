"""Reads a table of time series in parts: CSV, TSV, Excel, Parquet or a data frame. Errors name the line or the row."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN, loading, readable_file, suffix_of
from glassgate.tasks.data.lines import encoding_note
from glassgate.tasks.data.records import read_excel, read_table
from glassgate.tasks.data.sniff import is_number
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.series.schema import TIME_NAMES
from glassgate.tasks.forecasting.series.time_columns import join_columns
from glassgate.tasks.forecasting.series.tsf import read_tsf

_PART_SIZE = 2**16  # rows that are read at once

Frame = Any
"""A `pyarrow.Table`, a data frame of pandas, polars or another library, or a `TimeSeries` of darts."""


class Table:
    """A file or a data frame. `parts` reads its rows and can be called several times.

    Attributes:
        names: the names of the columns
        path: the path of the file; None for a frame
        source: the origin of the rows, for messages
        kind: "csv", "tsv", "tsf", "xlsx", "parquet" or "frame"
        is_text: whether rows are lines of text
        has_header: whether the first row names the columns; a text table of numbers may have no header. Its columns are
            named by their numbers, from 1
        joined: columns that consist of other columns, such as a date and a time of day, by their names
        note: the encoding of a text file or the sheet of a workbook, as the end of a message; often empty
    """

    def __init__(self, source: "str | Path | Frame"):
        self.path = source if isinstance(source, str | Path) else None
        self.source = "given frame" if self.path is None else str(self.path)
        self.kind = "frame" if self.path is None else _kind_of_file(self.path)
        self.is_text = self.kind in ("csv", "tsv")
        self._frame: pd.DataFrame | None = None
        self.note = ""
        self.has_header = True
        self.joined: dict[str, tuple[str, ...]] = {}
        if self.path is None:
            self._frame = _to_pandas(source)
        elif self.kind == "xlsx":
            self._frame, self.note = read_excel(self.source)
        elif self.kind == "tsf":
            self._frame = read_tsf(self.source)
        if self._frame is not None:
            self.names = [str(name) for name in self._frame.columns]
            self._frame = self._frame.set_axis(self.names, axis=1)
        elif self.kind == "parquet":
            schema = self._open_parquet().schema_arrow  # the index of a pandas frame comes last in the file
            index = [name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)]
            self.names = [*index, *(name for name in schema.names if name not in index)]
        else:
            self.names = [name.strip("\ufeff") for name in read_table(self.source, self.kind)[0].header]
            self.note = encoding_note(self.source)
            numbered = [str(index) for index in range(len(self.names))]
            self.has_header = not all(map(is_number, self.names)) or self.names == numbered
            if not self.has_header:
                self.names = [str(index + 1) for index in range(len(self.names))]
                self.note += ", no header, columns named by number"

    def fault(self, row: int | None, message: str) -> DataError:
        """Return the error for a row, numbered as in `parts`, or for the whole table if `row` is None."""
        if row is None or self.is_text:
            return DataError(self.source, row, message)
        return DataError(f"{self.source}, row {row}", None, message)

    def join(self, names: tuple[str, ...]) -> str:
        """Add a column of time stamps that consists of other columns, and return its name."""
        name = " ".join(names)
        self.joined[name] = names
        return name

    def describe_row(self, row: int) -> str:
        """Return a row's number for the middle of a message, such as "line 3" or "row 3"."""
        return f"line {row}" if self.is_text else f"row {row}"

    def parts(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pd.DataFrame]]:
        """Yield the rows in parts: the number of each row, `(R,)`, and the columns with these names.

        In a text file, a row has the number of its line, and blank lines are skipped. In other files and frames, rows
        are counted from 1.
        """
        if joined := [name for name in names if name in self.joined]:
            plain = [name for name in names if name not in joined]
            read = list(dict.fromkeys([*plain, *chain.from_iterable(self.joined[name] for name in joined)]))
            for numbers, part in self.parts(read):
                for name in joined:
                    part[name] = join_columns([part[each] for each in self.joined[name]], self.joined[name])
                yield numbers, part[list(names)]
            return
        if self.is_text:
            indices = {name: self.names.index(name) for name in names}
            all_rows = islice(read_table(self.source, self.kind)[1], int(self.has_header), None)
            rows = ((number, row) for number, row in all_rows if row)
            while part := list(islice(rows, _PART_SIZE)):
                columns = {name: [row[index] for _, row in part] for name, index in indices.items()}
                yield np.array([number for number, _ in part]), pd.DataFrame(columns)
            return
        first = 1
        for part in self._frames(list(names)):
            yield np.arange(first, first + len(part)), part
            first += len(part)

    def _frames(self, names: list[str]) -> Iterator[pd.DataFrame]:
        if self._frame is None:
            file = self._open_parquet()
            with _loading_parquet(self.source):
                for batch in file.iter_batches(columns=names, batch_size=_PART_SIZE):
                    yield batch.to_pandas(ignore_metadata=True)[names]  # an index of pandas stays a column
        elif len(self._frame):
            yield self._frame[names]

    def _open_parquet(self) -> Any:
        import pyarrow.parquet

        with _loading_parquet(self.source):
            return pyarrow.parquet.ParquetFile(readable_file(self.source), memory_map=True)


def _loading_parquet(source: str) -> AbstractContextManager[None]:
    return loading(source, "a Parquet file", "write it again")


def _kind_of_file(path: str | Path) -> str:
    kind = detect_kind(path)
    if kind == "folder":
        raise DataError(path, None, "this is a folder; give a file")
    if kind == "text" or (not kind and str(path) == STDIN):
        return "csv"
    if kind not in ("csv", "tsv", "tsf", "parquet", "xlsx"):
        raise OptionError(
            f"{path}: expected time series as .csv, .tsv, .tsf, .xlsx or .parquet, got the suffix {suffix_of(path)!r}"
        )
    return kind


def has_time_index(frame: Frame) -> bool:
    """Whether the index of a frame contains its time stamps, as in darts."""
    index = type(getattr(frame, "index", None)).__name__
    return hasattr(frame, "to_dataframe") or index in ("DatetimeIndex", "PeriodIndex")


def _to_pandas(data: Frame) -> pd.DataFrame:
    """Convert a frame to a pandas frame. A meaningful index becomes columns.

    An index is meaningful if it has time stamps, names or several levels, or numbers the steps of a series. A level of
    the index is dropped if a column has the same name.
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
