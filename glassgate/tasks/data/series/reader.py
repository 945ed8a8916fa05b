"""Reads a table of time series in parts: CSV, TSV, Excel, Parquet or a data frame. Errors name the line."""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glassgate.tasks.data.detect import Dialect, dialect_of, kind_of
from glassgate.tasks.data.files import STDIN, encoding_note, opened_text, read_lines, regular_file, suffix_of
from glassgate.tasks.data.records import read_excel
from glassgate.tasks.errors import DataError, OptionError

_ROWS = 2**18  # rows that are read at once

Frame = Any
"""A `pyarrow.Table`, a data frame of pandas, polars or another library, or a `TimeSeries` of darts."""


class Table:
    """A file or a data frame, which can be read in parts several times.

    Attributes:
        names: the names of the columns
        path: the path of the file; None for a frame
        note: details of reading to report, such as the encoding
    """

    def __init__(self, source: "str | Path | Frame"):
        self.path = source if isinstance(source, str | Path) else None
        self.kind = "frame" if self.path is None else _kind(self.path)
        self._frame: pd.DataFrame | None = None
        self._dialect = Dialect(",", 0, ())
        self.note = ""
        if self.path is None:
            self._frame = _frame(source)
        elif self.kind == "xlsx":
            self._frame, self.note = read_excel(self.source)
        if self._frame is not None:
            self.names = [str(name) for name in self._frame.columns]
        elif self.kind == "parquet":
            self.names = self._parquet().schema_arrow.names
        else:
            self._dialect = dialect_of(self.source, "\t" if self.kind == "tsv" else None)
            self.names = list(self._dialect.header)
            self.note = encoding_note(self.source)
            self._check_first_row()

    def _check_first_row(self) -> None:
        """Check that the first row is not longer than the header, because pandas would drop the last cells."""
        rows = ((number, text) for number, text in read_lines(self.source) if number > self._dialect.before + 1)
        number, text = next(((number, text) for number, text in rows if text.strip()), (0, ""))
        width = len(next(csv.reader([text], delimiter=self._dialect.separator), []))
        if width > len(self.names):
            message = f"expected {len(self.names)} columns, as in the first line, got {width}; correct the line"
            raise DataError(self.source, number, message)

    @property
    def source(self) -> str:
        """The origin of the rows, for messages."""
        return "given frame" if self.path is None else str(self.path)

    @property
    def is_text(self) -> bool:
        """Whether rows are lines of text."""
        return self.kind in ("csv", "tsv")

    def fault(self, row: int | None, message: str) -> DataError:
        """Return the error for a row, counted from 0."""
        if row is None or self.is_text:
            return DataError(self.source, None if row is None else self._line(row), message)
        return DataError(f"{self.source}, row {row + 1}", None, message)

    def line(self, row: int) -> str:
        """Name a row, counted from 0, inside a message."""
        return f"line {self._line(row)}" if self.is_text else f"row {row + 1}"

    def line_of(self, row: int) -> int | None:
        """The line number of a row, if rows are lines."""
        return self._line(row) if self.is_text else None

    def _line(self, row: int) -> int:
        return row + self._dialect.before + 2

    def parts(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pd.DataFrame]]:
        """Yield the numbers of rows that are not blank, `(R,)`, and their columns, in parts."""
        row = 0
        for part in self._parts(names := list(names)):
            rows = np.arange(row, row + len(part))
            row += len(part)
            if self.is_text:
                blank = (part == "").all(axis=1).to_numpy(bool)
                ends = (part[self.names[-1]] == "").to_numpy(bool)
                if (ends & ~blank).any():
                    self._check_widths({self._line(int(k)) for k in rows[ends & ~blank]})
                rows, part = rows[~blank], part.loc[~blank, names]
            if len(rows):
                yield rows, part

    def _check_widths(self, lines: set[int]) -> None:
        """Check that lines have all columns, because pandas fills missing cells."""
        for number, text in read_lines(self.source):
            if number in lines:
                width = len(next(csv.reader([text], delimiter=self._dialect.separator), [""]))
                if width < len(self.names):
                    expected = (
                        f"expected {len(self.names)} columns, as in the first line, got {width}; correct the line"
                    )
                    raise DataError(self.source, number, expected)

    def _parts(self, names: list[str]) -> Iterator[pd.DataFrame]:
        if self._frame is not None:
            yield self._frame[names]
        elif self.kind == "parquet":
            for batch in self._parquet().iter_batches(columns=names, batch_size=_ROWS):
                yield batch.to_pandas()[names]
        else:
            try:
                with opened_text(self.source) as file, self._csv(file) as parts:
                    yield from parts
            except pd.errors.ParserError as error:
                raise self._unparsed(error) from None

    def _csv(self, file: Any) -> Any:
        return pd.read_csv(
            file,
            sep=self._dialect.separator,
            skiprows=self._dialect.before,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            chunksize=_ROWS,
            index_col=False,
        )

    def _unparsed(self, error: Exception) -> DataError:
        match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if match:
            message = f"expected {match[1]} columns, as in the first line, got {match[3]}; correct the line"
            return DataError(self.source, int(match[2]), message)
        return self.fault(None, f"expected CSV with a header, got what does not parse: {error}; check quotes")

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        try:
            return pa.parquet.ParquetFile(regular_file(self.source), memory_map=True)
        except (pa.ArrowInvalid, OSError) as error:
            raise self.fault(None, f"expected Parquet, got what does not load ({error}); write it again") from None


def _kind(path: str | Path) -> str:
    kind = kind_of(path)
    if kind == "folder":
        raise DataError(path, None, "this is a folder; give a file")
    if kind == "text" or (not kind and str(path) == STDIN):
        return "csv"
    if kind not in ("csv", "tsv", "parquet", "xlsx"):
        raise OptionError(
            f"{path}: expected time series as .csv, .tsv, .xlsx or .parquet, got the suffix {suffix_of(path)!r}"
        )
    return kind


def is_indexed(frame: Frame) -> bool:
    """Whether a frame's time stamps are its index, as in darts."""
    index = type(getattr(frame, "index", None)).__name__
    return hasattr(frame, "to_dataframe") or index in ("DatetimeIndex", "PeriodIndex")


def _frame(data: Frame) -> pd.DataFrame:
    """Convert to a pandas frame; a time index becomes a column."""
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
    if isinstance(frame.index, pd.DatetimeIndex) or (
        isinstance(index, pd.RangeIndex) and (index.start, index.step) != (0, 1)
    ):
        frame = frame.rename_axis(index.name or "time")
    if isinstance(index, pd.MultiIndex) or frame.index.name is not None:
        frame = frame.reset_index()
    return frame
