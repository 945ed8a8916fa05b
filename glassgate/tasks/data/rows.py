"""The rows of a table of time series, CSV, TSV, Parquet or a data frame, by record batches; faults name the line."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.files import STDIN, local, opened, suffix_of
from glassgate.tasks.errors import DataError, OptionError

_MISSING = pa.array(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"])
_BLOCK = 2**22  # bytes of CSV read at once
_FORMATS = ("%Y-%m", "%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M")

Frame = Any
"""A `pyarrow.Table`, a data frame of pandas, polars or another library that speaks Arrow, a `TimeSeries` of darts."""


class Rows:
    """A file or a frame, read as often as it is asked for.

    Attributes:
        names: of the columns
        path: of the file; None for a frame
    """

    def __init__(self, source: "str | Path | Frame"):
        self.path = Path(source) if isinstance(source, str | Path) else None
        self._format = ""
        if self.path is None:
            self._table = _table(source)
            self.names: list[str] = self._table.schema.names
            return
        self._format = _format(self.path)
        with opened(self.path) as file:
            head = file.read(2**16)
        if not head.strip():
            raise DataError(self.path, None, "the file is empty; give one with a header and a row for each time step")
        if self._format == "parquet":
            self.names = self._parquet().schema_arrow.names
            return
        try:
            line = head.split(b"\n")[0].decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataError(self.path, 1, "expected UTF-8, got other bytes; convert the file with iconv") from None
        self._separator = "\t" if self._format == "tsv" else ";" if line.count(";") > line.count(",") else ","
        self.names = self._csv([]).schema.names

    @property
    def source(self) -> str:
        """What the rows come from, for messages."""
        return "given frame" if self.path is None else str(self.path)

    def fault(self, row: int | None, message: str) -> DataError:
        """Return what to raise for a fault in a row, counted from 0."""
        if row is None or self._format in ("csv", "tsv"):
            return DataError(self.source, None if row is None else row + 2, message)
        return DataError(f"{self.source}, row {row + 1}", None, message)

    def line(self, row: int) -> str:
        """Name a row, counted from 0, inside a message."""
        return f"line {row + 2}" if self._format in ("csv", "tsv") else f"row {row + 1}"

    def batches(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield the numbers of rows that are not blank, `(R,)`, and their columns."""
        row = 0
        for batch in self._batches(list(names)):
            rows = np.arange(row, row + batch.num_rows)
            row += batch.num_rows
            if self._format in ("csv", "tsv"):
                blank = np.ones(batch.num_rows, bool)
                for column in batch.columns:
                    blank &= pc.equal(column, "").to_numpy(zero_copy_only=False)
                if blank.any():
                    rows, batch = rows[~blank], batch.filter(pa.array(~blank))
            if len(rows):
                yield rows, batch

    def numbers(self, name: str, rows: np.ndarray, values: pa.Array) -> np.ndarray:
        """Return a column's numbers, `(R,)`, NaN where there is none.

        Raises:
            DataError: a text, or infinity
        """
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if _is_text(values):
            values = pc.utf8_trim_whitespace(values.cast(pa.string()))
            values = pc.if_else(pc.is_in(values, _MISSING), pa.scalar(None, pa.string()), values)
        try:
            found = values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            place, text = next((k, v) for k, v in enumerate(values.to_pylist()) if not _is_number(v))
            raise self.fault(
                int(rows[place]),
                f"column {name!r}: expected a number, got {text!r}; correct it, or name the columns of numbers to "
                "forecast with --target",
            ) from None
        if np.isinf(found).any():
            raise self.fault(int(rows[np.isinf(found).argmax()]), f"column {name!r}: expected a number, got infinity")
        return found

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        if self.path is None:
            yield from self._table.select(names).to_batches(max_chunksize=2**18)
        elif self._format == "parquet":
            for batch in self._parquet().iter_batches(columns=names):
                yield batch.select(names)
        else:
            try:
                yield from self._csv(names)
            except pa.ArrowInvalid as error:
                raise self._unparsed(error) from None

    def _csv(self, names: list[str]) -> Any:
        try:
            return pa.csv.open_csv(
                local(self.source),
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
                parse_options=pa.csv.ParseOptions(delimiter=self._separator, ignore_empty_lines=False),
                convert_options=pa.csv.ConvertOptions(
                    column_types={name: pa.string() for name in names or ()}, include_columns=names
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._unparsed(error) from None

    def _unparsed(self, error: pa.ArrowInvalid) -> DataError:
        text = str(error)
        row = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
        if row:
            assert self.path is not None
            expected = f"expected {row[2]} columns, as in the first line, got {row[3]}; correct the line"
            return DataError(self.path, int(row[1]), expected)
        if "invalid UTF8" in text:
            remedy = f"iconv -f ISO-8859-1 -t UTF-8 {self.path} > utf8.csv"
            return self.fault(None, f"expected UTF-8, got other bytes; convert the file, for instance: {remedy}")
        return self.fault(None, f"expected CSV with a header, got what does not parse: {text.splitlines()[0]}")

    def _parquet(self) -> Any:
        try:
            return pa.parquet.ParquetFile(local(self.source), memory_map=True)
        except (pa.ArrowInvalid, OSError) as error:
            raise self.fault(None, f"expected Parquet, got what does not load ({error}); write it again") from None


class Stamps:
    """Turns a column into time stamps, all of them as the first one is read.

    Args:
        rows: what the column is of, for messages
        name: of the column
        form: what strptime takes; found out if empty
    """

    def __init__(self, rows: Rows, name: str, form: str = ""):
        self.rows = rows
        self.name = name
        self.form = form
        self._found: Any = None

    def read(self, rows: np.ndarray, values: pa.Array) -> np.ndarray:
        """Return time stamps, datetime64[us], or whole numbers, `(R,)`.

        Raises:
            DataError: something else
        """
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.null_count:
            raise self._unread(rows, values, int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))))
        if not _is_text(values):
            if self.form:
                values = values.cast(pa.string())
            else:
                return self._typed(rows, values)
        if self._found is None:
            self._found = next((each for each in self._ways() if each(values[:1]) is not None), None)
        found = self._found(values) if self._found else None
        if found is None:
            bad = (k for k in range(len(values)) if self._found is None or self._found(values[k : k + 1]) is None)
            raise self._unread(rows, values, next(bad))
        return np.asarray(found)

    def fits(self, value: str) -> bool:
        """Whether a text is a time stamp."""
        return any(each(pa.array([value])) is not None for each in self._ways())

    def _typed(self, rows: np.ndarray, values: pa.Array) -> np.ndarray:
        if pa.types.is_integer(values.type):
            return np.asarray(values.cast(pa.int64()).to_numpy())
        if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
            return np.asarray(values.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False), "datetime64[us]")
        raise self._unread(rows, values, 0)

    def _ways(self) -> list[Any]:
        if self.form:
            return [_by_format(self.form)]
        casts = [_by_cast(kind) for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))]
        return casts + [_by_format(each) for each in _FORMATS]

    def _unread(self, rows: np.ndarray, values: pa.Array, place: int) -> DataError:
        return self.rows.fault(
            int(rows[place]),
            f"column {self.name!r}: expected a time stamp such as 2024-01-31 13:00, or a whole number, got "
            f"{values[place].as_py()!r}; correct it, name another column with --time, or its form with --time-format",
        )


def _by_cast(kind: pa.DataType) -> Any:
    def read(values: pa.Array) -> np.ndarray | None:
        try:
            found = values.cast(kind)
        except pa.ArrowInvalid:
            return None
        return _plain(found)

    return read


def _by_format(form: str) -> Any:
    def read(values: pa.Array) -> np.ndarray | None:
        if "%d" not in form and "%j" not in form:  # arrow takes the day before the first for a month without a day
            values = pc.binary_join_element_wise(values, pa.scalar("01"), pa.scalar(" "))
            found = pc.strptime(values, f"{form} %d", "us", error_is_null=True)
        else:
            found = pc.strptime(values, form, "us", error_is_null=True)
        return None if found.null_count else _plain(found)

    return read


def _plain(found: pa.Array) -> np.ndarray:
    if pa.types.is_timestamp(found.type):
        return np.asarray(found.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False), "datetime64[us]")
    return np.asarray(found.to_numpy())


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _is_number(value: Any) -> bool:
    try:
        return value is None or float(value) is not None
    except (TypeError, ValueError):
        return False


def _format(path: Path) -> str:
    found = kind_of(path)
    if found == "folder":
        raise DataError(path, None, "this is a folder; give a file")
    if found == "text" or (not found and str(path) == STDIN):
        return "csv"
    if found not in ("csv", "tsv", "parquet"):
        raise OptionError(f"{path}: expected time series as .csv, .tsv or .parquet, got the suffix {suffix_of(path)!r}")
    return found


def is_indexed(frame: Frame) -> bool:
    """Whether a frame's time stamps are its index, as darts has them."""
    index = type(getattr(frame, "index", None)).__name__
    return hasattr(frame, "to_dataframe") or index in ("DatetimeIndex", "PeriodIndex")


def _table(frame: Frame) -> pa.Table:
    """A frame, or a series of darts, as an Arrow table, a pandas index that says when among the columns."""
    if hasattr(frame, "to_dataframe"):
        frame = frame.to_dataframe()
    index = getattr(frame, "index", None)
    if index is not None and hasattr(frame, "reset_index"):
        kind = type(index).__name__
        if kind == "PeriodIndex":
            frame, kind = frame.set_axis(index.to_timestamp()), "DatetimeIndex"
        if kind == "DatetimeIndex" or (kind == "RangeIndex" and (index.start, index.step) != (0, 1)):
            frame = frame.rename_axis(index.name or "time")
        if kind == "MultiIndex" or frame.index.name is not None:
            frame = frame.reset_index()
    try:
        table = frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise DataError("given frame", None, f"expected a frame that turns into an Arrow table, got {error}") from None
    return table.select([name for name in table.schema.names if not name.startswith("__index_level_")])
