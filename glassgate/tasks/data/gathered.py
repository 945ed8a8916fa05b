"""The rows of each series of a table brought together, their time stamps and values checked, and written as Arrow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.frequency import Frequency, infer
from glassgate.tasks.data.layout import Layout
from glassgate.tasks.data.rows import Rows, Stamps
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_BATCH = 2**16  # rows of a record batch
_LOOKED_AT = 2**17  # time stamps that tell the frequency


def gather(
    sink: pa.NativeFile, rows: Rows, layout: Layout, columns: Sequence[str], folder: Path | None, progress: Progress
) -> None:
    """Bring the rows of each series together, check them, and write the columns of one series after the other."""
    table = Gathered(rows, layout, columns, folder, progress)
    schema = pa.schema([(name, pa.float64()) for name in columns])
    frequency, groups, written = table.frequency(), [], 0
    with pa.ipc.new_file(sink, schema) as writer:
        waiting: list[list[np.ndarray]] = []

        def flush() -> None:
            whole = [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
            for start in range(0, len(whole[0]), _BATCH):
                writer.write_batch(
                    pa.record_batch([pa.array(each[start : start + _BATCH]) for each in whole], schema=schema)
                )
            waiting.clear()

        for number in range(len(table.names)):
            arrays, content = table.checked(number, frequency)
            groups.append(content | {"first": written})
            written += len(arrays[0])
            waiting.append(arrays)
            if sum(len(each[0]) for each in waiting) >= _BATCH:
                flush()
        if waiting:
            flush()
        # The content comes last: it says how long each series is after gaps are filled.
        content = {"frequency": asdict(frequency), "groups": groups, "dated": frequency.dated}
        writer.write_batch(
            pa.record_batch([pa.array([], pa.float64())] * len(columns), schema=schema),
            custom_metadata={"content": json.dumps(content)},
        )


class Gathered:
    """All rows of a table, those of each series together, in the order of the file.

    Attributes:
        names: of the series; one without a name where the table holds one
    """

    def __init__(
        self, rows: Rows, layout: Layout, columns: Sequence[str], folder: Path | None, progress: Progress
    ) -> None:
        self.rows = rows
        self.layout = layout
        self.columns = columns
        ids = [layout.series] if layout.series else []
        times = [layout.time] if layout.time else []
        read = list(dict.fromkeys([*ids, *times, *columns, *layout.static]))
        counts: dict[str, int] = {} if ids else {"": 0}
        report = progress.keeping if folder else lambda file, share: None
        report(rows.source, 0.0)
        for _, batch in rows.batches(read):
            for name, count in _counted(batch, layout.series):
                counts[name] = counts.get(name, 0) + count
        total = sum(counts.values())
        if not total:
            raise rows.fault(None, "the file holds no row of data; give one with a row for each time step")
        self.names = list(counts)
        self.bounds = np.concatenate([[0], np.cumsum(list(counts.values()))])
        self.static: list[list[float | str]] = [[] for _ in self.names]
        self.times = _room(folder, "times", total, np.int64)
        self.places = _room(folder, "places", total, np.int64)
        self.values = {name: _room(folder, f"values{k}", total, np.float64) for k, name in enumerate(columns)}
        self.dated = False
        numbers = {name: number for number, name in enumerate(self.names)}
        filled, stamps = self.bounds[:-1].copy(), Stamps(rows, layout.time or "", layout.time_format)
        for places, batch in rows.batches(read):
            groups = _grouped(batch, layout.series, numbers)
            order = np.argsort(groups, kind="stable")
            kinds, first, sizes = np.unique(groups[order], return_index=True, return_counts=True)
            where = np.repeat(filled[kinds] - first, sizes) + np.arange(len(order))
            filled[kinds] += sizes
            self.places[where] = places[order]
            if times:
                found = stamps.read(places, batch.column(times[0]))
                self.dated = found.dtype.kind == "M"
                self.times[where] = found.astype(np.int64)[order]
            else:
                self.times[where] = (where - self.bounds[groups[order]]).astype(np.int64)
            for name, room in self.values.items():
                room[where] = rows.numbers(name, places, batch.column(name))[order]
            for kind, place in zip(kinds, order[first], strict=True):
                if not self.static[kind]:
                    self.static[kind] = [_static(batch.column(name)[int(place)].as_py()) for name in layout.static]
            report(rows.source, min(0.99, float(filled.sum() - self.bounds[:-1].sum()) / total))
        report(rows.source, 1.0)

    def stamps(self, number: int) -> np.ndarray:
        """The time stamps of a series."""
        found = self.times[self.bounds[number] : self.bounds[number + 1]]
        return np.asarray(found.view("datetime64[us]") if self.dated else found)

    def frequency(self) -> Frequency:
        """How far apart the time stamps of the longest series are."""
        longest = int(np.diff(self.bounds).argmax())
        times = self.stamps(longest)[:_LOOKED_AT]
        if len(times) < 2 or (times == times[0]).all():
            raise self.rows.fault(
                int(self.places[self.bounds[longest]]),
                f"expected at least two time stamps, got {len(times)} of {_shown(times[0])}; give a longer series, or "
                "name the column of the series' names with --series",
            )
        try:
            return infer(times)
        except ValueError:
            raise self._disorder(longest, 1, times) from None

    def checked(self, number: int, frequency: Frequency) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Return a series' columns without gaps, and what else is kept of it."""
        start, stop = self.bounds[number : number + 2]
        times = self.stamps(number)
        places, on_grid = frequency.places(times)
        self._check_times(number, times, places, on_grid, frequency)
        taken = np.searchsorted(places, np.arange(places[-1] + 1), side="right") - 1
        lines = self.places[start:stop][taken]
        targets, arrays = [], []
        for name, room in self.values.items():
            values = room[start:stop][taken]
            if name in self.layout.target:
                first, last = self._ends(name, values, lines)
                targets.append([first, last])
                values[first:last] = self._filled(name, values[first:last], lines[first:])
            else:
                values = self._filled(name, values, lines, name in self.layout.past)
            arrays.append(values)
        content = {
            "name": self.names[number],
            "start": int(times[0].astype(np.int64)),
            "length": len(taken),
            "row": int(self.places[start]),
            "static": self.static[number],
            "targets": targets,
        }
        return arrays, content

    def _check_times(
        self, number: int, times: np.ndarray, places: np.ndarray, on_grid: np.ndarray, frequency: Frequency
    ) -> None:
        far = np.diff(places)
        raw = np.diff(times).astype(np.int64)
        if (raw <= 0).any():
            raise self._disorder(number, int((raw <= 0).argmax()) + 1, times)
        if not on_grid.all():
            k = int((~on_grid).argmax())
            raise self.rows.fault(
                self._row(number, k),
                f"the time stamp {_shown(times[k])} is not a whole number of steps of {frequency} after the first one, "
                f"{_shown(times[0])}; correct it, or bring all series to one frequency",
            )
        if (far > 1).any() and self.layout.missing == "error":
            k = int((far > 1).argmax())
            lost = "1 step is" if far[k] == 2 else f"{far[k] - 1} steps are"
            before = self.rows.line(self._row(number, k))
            raise self.rows.fault(
                self._row(number, k + 1),
                f"{lost} missing before {_shown(times[k + 1])}, after "
                f"{_shown(times[k])} in {before}; add them, or take the value before with --missing last",
            )

    def _disorder(self, number: int, k: int, times: np.ndarray) -> DataError:
        before = self.rows.line(self._row(number, k - 1))
        of = f" of series {self.names[number]!r}" if self.names[number] else ""
        if times[k] == times[k - 1]:
            message = (
                f"the time stamp {_shown(times[k])}{of} stands in {before}, too; remove one of the two, or name the "
                "column of the series' names with --series"
            )
        else:
            message = (
                f"the time stamp {_shown(times[k])}{of} comes after {_shown(times[k - 1])} in {before}; sort the rows "
                "by time, or name the column of the series' names with --series"
            )
        return self.rows.fault(self._row(number, k), message)

    def _row(self, number: int, k: int) -> int:
        return int(self.places[self.bounds[number] + k])

    def _ends(self, name: str, values: np.ndarray, lines: np.ndarray) -> tuple[int, int]:
        """Where the values of a target begin and end: rows behind hold what is known ahead."""
        there = ~np.isnan(values)
        if not there.any():
            raise self.rows.fault(
                int(lines[0]), f"column {name!r} has no value at all; remove the column or the series"
            )
        first, last = int(there.argmax()), len(there) - int(there[::-1].argmax())
        if self.layout.missing == "error":
            if first:
                raise self._lacks(name, int(lines[0]))
            if last < len(there) and not self.layout.known:
                raise self._lacks(name, int(lines[last]), "; rows that hold covariates known ahead need --known")
        return first, last

    def _filled(self, name: str, values: np.ndarray, lines: np.ndarray, past: bool = False) -> np.ndarray:
        there = ~np.isnan(values)
        if there.all():
            return values
        if self.layout.missing == "error":
            if past and self.layout.known and there[: there.argmin()].all() and not there[there.argmin() :].any():
                return values  # behind the last value of the target
            raise self._lacks(name, int(lines[there.argmin()]))
        if not there[0]:  # a later value would tell what was not known yet
            raise self._lacks(name, int(lines[0]))
        return np.asarray(values[np.maximum.accumulate(np.where(there, np.arange(len(values)), 0))])

    def _lacks(self, name: str, row: int, more: str = "") -> DataError:
        return self.rows.fault(
            row, f"column {name!r} lacks a value; fill it in, or take the value before with --missing last{more}"
        )


def _counted(batch: pa.RecordBatch, series: str | None) -> Iterator[tuple[str, int]]:
    if series is None:
        yield "", batch.num_rows
        return
    for each in batch.column(series).cast(pa.string()).value_counts():
        yield each["values"].as_py() or "", each["counts"].as_py()


def _grouped(batch: pa.RecordBatch, series: str | None, numbers: Mapping[str, int]) -> np.ndarray:
    """The number of each row's series, `(R,)`."""
    if series is None:
        return np.zeros(batch.num_rows, np.int64)
    coded = batch.column(series).cast(pa.string()).fill_null("").dictionary_encode()
    table = np.array([numbers[name] for name in coded.dictionary.to_pylist()], np.int64)
    return table[coded.indices.to_numpy(zero_copy_only=False)]


def _room(folder: Path | None, name: str, size: int, kind: type) -> np.ndarray:
    return np.zeros(size, kind) if folder is None else np.memmap(folder / name, kind, "w+", shape=(size,))


def _static(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _shown(time: np.generic) -> str:
    return str(time.astype("datetime64[s]")).replace("T", " ") if time.dtype.kind == "M" else str(time)
