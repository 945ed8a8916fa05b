"""Builds time series from the rows of a table: groups, orders and checks them. Series of a large file stay on disk."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from glassgate.storage import cache_folder
from glassgate.tasks.data.series.columns import Numbers, Stamps, resolved
from glassgate.tasks.data.series.reader import Frame, Table
from glassgate.tasks.data.series.schema import Frequency, Schema, infer, shown
from glassgate.tasks.data.series.steps import Series, Steps
from glassgate.tasks.data.store.arrow import Arrow, Column, cached, is_large
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_BATCH = 2**16  # rows of a record batch
_SAMPLE = 2**17  # the number of time stamps from which the frequency is inferred


def read_series(
    source: "str | Path | Frame", schema: Schema | None = None, progress: Progress | None = None
) -> list[Series]:
    """Read the series of a table.

    Args:
        source: a CSV, TSV, Excel or Parquet file, or a data frame
        schema: the roles of the columns
        progress: receives notes, and the progress of a large file

    Raises:
        DataError: the table cannot be read, lacks a column or a value, or has irregular time stamps
    """
    progress = progress or Progress()
    table = Table(source)
    schema = resolved(table, schema or Schema())

    def write(sink: pa.NativeFile) -> None:
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            _Rows(table, schema, Path(folder), progress).write(sink)

    def opened(file: Arrow) -> list[Series]:
        return _series(file, table, schema, progress)

    if table.path is not None and is_large([table.path]):
        return cached([Path(table.path)], ["series", json.dumps(asdict(schema))], write, opened)
    sink = pa.BufferOutputStream()
    _Rows(table, schema, None, Progress()).write(sink)
    return opened(Arrow(sink.getvalue()))


def _series(file: Arrow, table: Table, schema: Schema, progress: Progress) -> list[Series]:
    """Return the series of a file that `_Rows.write` has written."""
    batches = [file.reader.get_batch_with_custom_metadata(k) for k in range(file.reader.num_record_batches)]
    content = json.loads(batches[-1][1][b"content"])
    columns = {
        name: Column(file, [], [batch.column(k).to_numpy() for batch, _ in batches])
        for k, name in enumerate(file.reader.schema.names)
    }
    file.release()
    frequency, several = Frequency(**content["frequency"]), len(schema.target) > 1
    all_series = []
    for group in content["groups"]:
        start = np.int64(group["start"])
        time: Any = start.view("datetime64[us]") if frequency.dated else start
        for name, (first, last) in zip(schema.target, group["targets"], strict=True):
            begin, end, known_to = (group["first"] + each for each in (first, last, group["length"]))
            series = Series(
                Steps(columns[name], begin, end),
                "/".join(filter(None, [group["name"], name if several or not group["name"] else ""])),
                frequency.times(time, np.array([first]))[0] if first else time,
                frequency,
                tuple(Steps(columns[each], begin, end) for each in schema.past),
                tuple(Steps(columns[each], begin, known_to) for each in schema.known),
                tuple(group["static"]),
                table.source,
                group["line"],
                (schema.series or "series", schema.time or "time"),
            )
            all_series.append(series)
    if table.path is not None:
        steps = sum(map(len, all_series))
        notes = [f"{len(all_series):,} series, {steps:,} steps of {frequency}{table.note}"]
        progress.note("; ".join([f"{table.source}: {notes[0]}", *content["notes"]]))
    return all_series


class _GrowingArray:
    """An array that grows by parts, in memory or in a file."""

    def __init__(self, folder: Path | None, name: str):
        self.path = None if folder is None else folder / name
        self.parts: list[np.ndarray] = []

    def add(self, part: np.ndarray) -> None:
        if self.path is None:
            self.parts.append(part)
        else:
            with self.path.open("ab") as file:
                part.tofile(file)
            self.parts = [part[:0]]

    def whole(self) -> np.ndarray:
        if self.path is None or not self.path.stat().st_size:
            return np.concatenate(self.parts)
        return np.memmap(self.path, self.parts[0].dtype, "r")


class _Rows:
    """All rows of a table, ordered by series.

    Attributes:
        names: the names of the series; one empty name if the table has no column of series names
        order: a permutation of the rows in which the rows of each series are adjacent
        bounds: the positions in `order` at which each series begins and ends
        notes: remarks for the user, such as a recognised number format
    """

    def __init__(self, table: Table, schema: Schema, folder: Path | None, progress: Progress) -> None:
        self.table, self.schema = table, schema
        self.notes: list[str] = []
        roles = [*([schema.series] if schema.series else []), *([schema.time] if schema.time else [])]
        columns = list(dict.fromkeys([*roles, *schema.numbers, *schema.static]))
        numbers = Numbers(table, schema.numbers, schema.decimal)
        if numbers.decimal == ",":
            self.notes.append("decimal commas")
        stamps = Stamps(table, schema.time or "", schema.time_format)
        progress.converting(table.source, 0.0)
        known: dict[str, int] = {}
        self.static: list[list[float | str]] = []
        rows, codes = _GrowingArray(folder, "rows"), _GrowingArray(folder, "codes")
        values = {name: _GrowingArray(folder, f"values{k}") for k, name in enumerate(schema.numbers)}
        for places, part in table.parts(columns):
            rows.add(places)
            series = part[schema.series].astype("string").fillna("") if schema.series else pd.Series("", part.index)
            local, names = pd.factorize(series)
            for name, first in zip(map(str, names), np.unique(local, return_index=True)[1], strict=True):
                if name not in known:
                    known[name] = len(known)
                    self.static.append([_static(part[each].iloc[first]) for each in schema.static])
            codes.add(np.array([known[str(name)] for name in names], np.int64)[local])
            if schema.time:
                stamps.add(places, part[schema.time])
            for name, column in values.items():
                column.add(numbers.read(name, places, part[name]))
        if not rows.parts:
            raise table.fault(None, "the file holds no row of data; give one with a row for each time step")
        progress.converting(table.source, 1.0)
        self.names = list(known)
        self.rows = rows.whole()
        groups = codes.whole()
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=len(self.names)))])
        self.order = np.argsort(groups, kind="stable")
        self.values = {name: column.whole() for name, column in values.items()}
        if schema.time:
            self.times, form = stamps.finished()
            if form:
                self.notes.append(f"time stamps read as {form}, in which they are regular")
        else:
            self.times = np.arange(len(self.rows)) - self.bounds[groups]
        self._reverse()

    def _reverse(self) -> None:
        """Reverse the series whose rows begin with the newest."""
        reversed_series = 0
        for start, stop in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            times = self.times[self.order[start:stop]]
            if len(times) > 1 and (np.diff(times).astype(np.int64) < 0).all():
                self.order[start:stop] = self.order[start:stop][::-1]
                reversed_series += 1
        if reversed_series:
            self.notes.append("rows with the newest first, sorted by time")

    def frequency(self) -> Frequency:
        """The distance between the time stamps of the longest series."""
        longest = int(np.diff(self.bounds).argmax())
        times = self.times[self._of(longest)[:_SAMPLE]]
        if len(times) < 2 or (times == times[0]).all():
            raise self.table.fault(
                self._row(longest, 0),
                f"expected at least two time stamps, got {len(times)} of {shown(times[0])}; give a longer series, or "
                "name the column of the series' names with --series",
            )
        try:
            return infer(times)
        except ValueError:
            raise self._disorder(longest, 1, times) from None

    def write(self, sink: pa.NativeFile) -> None:
        """Write the columns of one series after the other, followed by the descriptions of all series."""
        columns = self.schema.numbers
        schema = pa.schema([(name, pa.float64()) for name in columns])
        groups: list[dict[str, Any]] = []
        frequency, written = self.frequency(), 0
        with pa.ipc.new_file(sink, schema) as writer:
            for arrays in self._batches(frequency, groups):
                writer.write_batch(pa.record_batch([pa.array(each) for each in arrays], schema=schema))
            for group in groups:
                group["first"], written = written, written + group["length"]
            content = {"frequency": asdict(frequency), "groups": groups, "notes": self.notes}
            writer.write_batch(
                pa.record_batch([pa.array([], pa.float64())] * len(columns), schema=schema),
                custom_metadata={"content": json.dumps(content)},
            )

    def _batches(self, frequency: Frequency, groups: list[dict[str, Any]]) -> Iterator[list[np.ndarray]]:
        """Yield the columns in parts of at most `_BATCH` rows; append the description of each series to `groups`."""
        waiting: list[list[np.ndarray]] = []
        for number in range(len(self.names)):
            arrays, group = self._checked(number, frequency)
            groups.append(group)
            waiting.append(arrays)
            if number + 1 == len(self.names) or sum(len(each[0]) for each in waiting) >= _BATCH:
                whole = [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
                yield from ([each[k : k + _BATCH] for each in whole] for k in range(0, len(whole[0]), _BATCH))
                waiting.clear()

    def _of(self, number: int) -> np.ndarray:
        return self.order[self.bounds[number] : self.bounds[number + 1]]

    def _row(self, number: int, k: int) -> int:
        return int(self.rows[self._of(number)[k]])

    def _checked(self, number: int, frequency: Frequency) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Check a series; return its columns, with gaps filled, and its description."""
        order = self._of(number)
        times = self.times[order]
        places, on_grid = frequency.places(times)
        self._check_times(number, times, places, on_grid, frequency)
        taken = order[np.searchsorted(places, np.arange(places[-1] + 1), side="right") - 1]
        lines, targets, arrays = self.rows[taken], [], []
        for name, column in self.values.items():
            values = np.array(column[taken])
            if name in self.schema.target:
                first, last = self._ends(name, values, lines)
                targets.append([first, last])
                values[first:last] = self._filled(name, values[first:last], lines[first:])
            else:
                values = self._filled(name, values, lines, name in self.schema.past)
            arrays.append(values)
        row = self._row(number, 0)
        return arrays, {
            "name": self.names[number],
            "start": int(times[0].astype(np.int64)),
            "length": len(taken),
            "line": row if self.table.is_text else None,
            "static": self.static[number],
            "targets": targets,
        }

    def _check_times(
        self, number: int, times: np.ndarray, places: np.ndarray, on_grid: np.ndarray, frequency: Frequency
    ) -> None:
        far, raw = np.diff(places), np.diff(times).astype(np.int64)
        if (raw <= 0).any():
            raise self._disorder(number, int((raw <= 0).argmax()) + 1, times)
        if not on_grid.all():
            k = int((~on_grid).argmax())
            raise self.table.fault(
                self._row(number, k),
                f"the time stamp {shown(times[k])} is not a whole number of steps of {frequency} after the first one, "
                f"{shown(times[0])}; correct it, or bring all series to one frequency",
            )
        if (far > 1).any() and self.schema.missing == "error":
            k = int((far > 1).argmax())
            lost = "1 step is" if far[k] == 2 else f"{far[k] - 1} steps are"
            raise self.table.fault(
                self._row(number, k + 1),
                f"{lost} missing before {shown(times[k + 1])}, after {shown(times[k])} in "
                f"{self.table.line(self._row(number, k))}; add them, or take the value before with --missing last",
            )

    def _disorder(self, number: int, k: int, times: np.ndarray) -> DataError:
        before = self.table.line(self._row(number, k - 1))
        of = f" of series {self.names[number]!r}" if self.names[number] else ""
        if times[k] == times[k - 1]:
            message = (
                f"the time stamp {shown(times[k])}{of} is in {before}, too; remove one of the two, or name the "
                "column of the series' names with --series"
            )
        else:
            message = (
                f"the time stamp {shown(times[k])}{of} comes after {shown(times[k - 1])} in {before}; sort the rows "
                "by time, or name the column of the series' names with --series"
            )
        return self.table.fault(self._row(number, k), message)

    def _ends(self, name: str, values: np.ndarray, lines: np.ndarray) -> tuple[int, int]:
        """Return the range of rows with values of a target; later rows contain only covariates known ahead."""
        there = ~np.isnan(values)
        if not there.any():
            raise self.table.fault(int(lines[0]), f"column {name!r} has no value; remove the column or the series")
        first, last = int(there.argmax()), len(there) - int(there[::-1].argmax())
        if self.schema.missing == "error":
            if first:
                raise self._lacks(name, int(lines[0]))
            if last < len(there) and not self.schema.known:
                raise self._lacks(name, int(lines[last]), "; rows that hold covariates known ahead need --known")
        return first, last

    def _filled(self, name: str, values: np.ndarray, lines: np.ndarray, past: bool = False) -> np.ndarray:
        there = ~np.isnan(values)
        if there.all():
            return values
        if self.schema.missing == "error":
            if past and self.schema.known and there[: there.argmin()].all() and not there[there.argmin() :].any():
                return values  # only the values after the end of the target are missing
            raise self._lacks(name, int(lines[there.argmin()]))
        if not there[0]:  # a later value would leak future information
            raise self._lacks(name, int(lines[0]))
        return pd.Series(values).ffill().to_numpy()

    def _lacks(self, name: str, row: int, more: str = "") -> DataError:
        return self.table.fault(
            row, f"column {name!r} lacks a value; fill it in, or take the value before with --missing last{more}"
        )


def _static(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
