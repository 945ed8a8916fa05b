"""Time series with their covariates, from wide and long tables; large files are arranged once and mapped."""

import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from glassgate.storage import cache_folder
from glassgate.tasks.data.frequency import STEP, Frequency
from glassgate.tasks.data.gathered import gather
from glassgate.tasks.data.layout import Layout, resolved
from glassgate.tasks.data.mapped import Arrow, Column, is_large, kept
from glassgate.tasks.data.rows import Frame, Rows
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_STEPS = Frequency(STEP)


class _Numbers(Protocol):
    def read(self, start: int, stop: int) -> np.ndarray: ...


class Given:
    """Numbers in memory, read as a column of a file is."""

    def __init__(self, values: np.ndarray):
        self.values = values

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


@dataclass(frozen=True, slots=True)
class Steps:
    """A stretch of a column: numbers that are read where they are cut out."""

    column: _Numbers
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: slice) -> np.ndarray:
        start, stop, _ = place.indices(len(self))
        return self.column.read(self.start + start, self.start + max(start, stop))

    def part(self, start: int, stop: int) -> "Steps":
        """A shorter stretch, of which nothing is read."""
        return Steps(self.column, self.start + start, min(self.stop, self.start + stop))


@dataclass(frozen=True, slots=True)
class Series:
    """One series of numbers at regular time stamps, with its covariates.

    Attributes:
        values: what is forecast, `(L,)`
        name: identifies it
        start: the first time stamp, or its whole number
        frequency: how far apart the time stamps are
        past: covariates known up to the present, `(L,)` each
        known: covariates known ahead, `(L + A,)` each
        static: what belongs to the series as a whole
        source: the file it comes from
        line: the line where it begins
        columns: what the columns of the series' names and of the time stamps are called
    """

    values: Steps
    name: str = ""
    start: Any = 0
    frequency: Frequency = _STEPS
    past: tuple[Steps, ...] = ()
    known: tuple[Steps, ...] = ()
    static: tuple[float | str, ...] = ()
    source: str = "given series"
    line: int | None = None
    columns: tuple[str, str] = ("series", "time")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ahead(self) -> int:
        """Steps after the last value for which covariates are known."""
        return len(self.known[0]) - len(self) if self.known else 0

    @property
    def on_disk(self) -> str:
        """The digest of the file that holds the series; empty if it is in memory."""
        column = self.values.column
        return column.file.digest if isinstance(column, Column) else ""

    def part(self, start: int, stop: int) -> "Series":
        """Return the steps from `start` to `stop`, with the covariates known behind them."""
        stop = min(stop, len(self))
        first = self.frequency.times(self.start, np.array([start]))[0]
        past = tuple(each.part(start, stop) for each in self.past)
        known = tuple(each.part(start, len(each)) for each in self.known)
        return replace(self, values=self.values.part(start, stop), start=first, past=past, known=known)

    def times(self, start: int, stop: int) -> np.ndarray:
        """Return the time stamps of steps, those after the end included."""
        return self.frequency.times(self.start, np.arange(start, stop))

    def fault(self, message: str) -> DataError:
        """Return what to raise for a fault of the series."""
        return DataError(self.source, self.line, f"series {self.name!r}: {message}" if self.name else message)


def given(values: np.ndarray, name: str = "", start: Any = 0, frequency: Frequency | None = None) -> Series:
    """Return a series of numbers in memory.

    Example:
        >>> len(given(np.arange(5.0)))
        5
    """
    values = np.asarray(values, np.float64)
    return Series(Steps(Given(values), 0, len(values)), name, start, frequency or _STEPS)


def read_series(
    source: "str | Path | Frame", layout: Layout | None = None, progress: Progress | None = None
) -> list[Series]:
    """Read the series of a table.

    Args:
        source: a CSV, TSV or Parquet file, or a frame
        layout: which columns are what
        progress: receives how far a large file is

    Raises:
        DataError: the table cannot be read, lacks a column or a value, or its time stamps are not regular
    """
    layout = layout or Layout()
    rows = Rows(source)
    layout = resolved(rows, layout)
    columns = (*layout.target, *layout.past, *layout.known)

    def opened(file: Arrow) -> list[Series]:
        return _series(file, rows, layout)

    if rows.path is None or not is_large([rows.path]):
        sink = pa.BufferOutputStream()
        gather(sink, rows, layout, columns, None, Progress())
        return opened(Arrow(sink.getvalue()))
    reading = ["series", json.dumps(asdict(layout))]

    def write(sink: pa.NativeFile) -> None:
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            gather(sink, rows, layout, columns, Path(folder), progress or Progress())

    return kept([rows.path.resolve()], reading, write, opened)


def _series(file: Arrow, rows: Rows, layout: Layout) -> list[Series]:
    """The series of an arranged table."""
    batches = [file.reader.get_batch_with_custom_metadata(k) for k in range(file.reader.num_record_batches)]
    content = json.loads(batches[-1][1][b"content"])
    columns = {
        name: Column(file, k, [], [batch.column(k).to_numpy() for batch, _ in batches])
        for k, name in enumerate(file.reader.schema.names)
    }
    file.release()
    frequency, several = Frequency(**content["frequency"]), len(layout.target) > 1
    found = []
    for group in content["groups"]:
        start = np.int64(group["start"])
        for name, (first, last) in zip(layout.target, group["targets"], strict=True):
            begin, end = group["first"] + first, group["first"] + last
            known_to = group["first"] + group["length"]
            time: Any = start.view("datetime64[us]") if content["dated"] else start
            found.append(
                Series(
                    Steps(columns[name], begin, end),
                    "/".join(filter(None, [group["name"], name if several or not group["name"] else ""])),
                    frequency.times(time, np.array([first]))[0] if first else time,
                    frequency,
                    tuple(Steps(columns[each], begin, end) for each in layout.past),
                    tuple(Steps(columns[each], begin, known_to) for each in layout.known),
                    tuple(group["static"]),
                    rows.source,
                    group["row"] + 2 if rows.path and rows.path.suffix.lower() not in (".parquet", ".pq") else None,
                    (layout.series or "series", layout.time or "time"),
                )
            )
    return found
