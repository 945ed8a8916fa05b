"""Builds time series from the rows of a table: groups the rows by series, orders them by time, and checks them.

The numbers of all series are in arrays, in memory or, for a large file, in the cache folder.
"""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glassgate.storage import cache_folder, temporary_folder
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.store import ArrayRange, Arrays, Store, is_large, open_cached
from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting.series.columns import Numbers, Schema, resolve_schema
from glassgate.tasks.forecasting.series.frequency import Frequency, format_time, infer_frequency
from glassgate.tasks.forecasting.series.series import Series
from glassgate.tasks.forecasting.series.table import Frame, Table
from glassgate.tasks.forecasting.series.times import Stamps
from glassgate.tasks.progress import Progress

_SAMPLE_SIZE = 2**17  # time stamps from which the frequency is inferred


def read_series(
    source: "str | Path | Frame",
    schema: Schema | None = None,
    progress: Progress | None = None,
    reading: Reading = NO_READING,
) -> list[Series]:
    """Read the series of a file or a data frame.

    Args:
        source: a CSV, TSV, Excel or Parquet file, or a data frame
        schema: the roles of the columns
        progress: receives notes, and the progress of a large file
        reading: the reading of the training file, see `columns.reading_of`

    Raises:
        DataError: the table cannot be read, lacks a column or a value, or has irregular time stamps
    """
    progress = progress or Progress()
    schema = schema or Schema()
    table = Table(source, schema.decimal)
    schema = resolve_schema(table, schema, reading)

    def write(arrays: Arrays) -> dict[str, Any]:
        with temporary_folder(cache_folder()) as folder:
            return _Rows(table, schema, Arrays(folder), progress, reading).write(arrays)

    if table.path is not None and is_large([table.path]):
        settings = ["series, 2", json.dumps(asdict(schema)), reading.to_mapping()]
        return _load_series(open_cached([Path(table.path)], settings, write), table, schema, progress)
    arrays = Arrays()
    content = _Rows(table, schema, Arrays(), Progress(), reading).write(arrays)
    return _load_series(arrays.in_memory(content), table, schema, progress)


def _load_series(store: Store, table: Table, schema: Schema, progress: Progress) -> list[Series]:
    """Return the series that `_Rows.write` has written."""
    content, columns = store.content, {name: ArrayRange(array, store) for name, array in store.arrays.items()}
    frequency, has_several_targets = Frequency(**content["frequency"]), len(schema.target) > 1
    all_series = []
    for group in content["groups"]:
        start = np.int64(group["start"])
        time: Any = start.view("datetime64[us]") if frequency.has_dates else start
        for target, (first, stop) in zip(schema.target, group["targets"], strict=True):
            begin, end, known_end = (group["first"] + offset for offset in (first, stop, group["length"]))
            name = target if has_several_targets or not group["name"] else ""
            series = Series(
                columns[target].part(begin, end),
                "/".join(filter(None, [group["name"], name])),
                frequency.times(time, np.array([first]))[0] if first else time,
                frequency,
                tuple(columns[covariate].part(begin, end) for covariate in schema.past),
                tuple(columns[covariate].part(begin, known_end) for covariate in schema.known),
                tuple(group["static"]),
                table.source,
                group["line"],
                (schema.series or "series", schema.time or "time"),
                schema.series is not None,
            )
            all_series.append(series)
    if table.path is not None:
        steps = sum(map(len, all_series))
        counts = f"{table.source}: {len(all_series):,} series, {steps:,} steps of {frequency}{table.note}"
        progress.note("; ".join([counts, *content["notes"]]))
    return all_series


class _Rows:
    """All R rows of a table. `order` and `bounds` group them by series.

    Args:
        arrays: an empty store for the columns of the table, in memory or in a temporary folder

    Attributes:
        names, static: the name and the static properties of each series; one empty name without a column of names
        row_numbers, values: the number of each row in the table, and the columns of numbers by name, `(R,)` each
        times: the time stamps, `(R,)`; without a column of time stamps, the index of each row in its series
        order, bounds: a permutation of the rows in which series k is from `bounds[k]` to `bounds[k + 1]`
        notes: remarks for the user, such as a detected number format
    """

    def __init__(self, table: Table, schema: Schema, arrays: Arrays, progress: Progress, reading: Reading) -> None:
        self.table, self.schema = table, schema
        self.notes: list[str] = []
        columns = dict.fromkeys(filter(None, [schema.series, schema.time, *schema.numbers, *schema.static]))
        numbers = Numbers(table, schema.numbers, schema.decimal, reading.get("decimal"))
        if numbers.decimal == ",":
            self.notes.append("decimal commas")
        self.stamps = Stamps(table.fault, schema.time or "", schema.time_format, reading.get("time_format") or "")
        progress.converting(table.source, 0.0)
        index_of_series: dict[str, int] = {}
        self.static: list[list[float | str]] = []
        has_rows = False
        for part in table.parts(list(columns)):
            has_rows = True
            arrays.add("row numbers", part.index.to_numpy())
            series = part[schema.series].astype("string").fillna("") if schema.series else pd.Series("", part.index)
            local_indices, names = pd.factorize(series)
            for name, first in zip(map(str, names), np.unique(local_indices, return_index=True)[1], strict=True):
                if name not in index_of_series:
                    index_of_series[name] = len(index_of_series)
                    self.static.append([_number_or_text(part[column].iloc[first]) for column in schema.static])
            arrays.add("series", np.array([index_of_series[str(name)] for name in names], np.int64)[local_indices])
            if schema.time:
                self.stamps.add(part[schema.time])
            for name in schema.numbers:
                arrays.add(f"values of {name}", numbers.read(part[name]))
        if not has_rows:
            raise table.fault(None, "the file holds no row of data; give one with a row for each time step")
        progress.converting(table.source, 1.0)
        self.names = list(index_of_series)
        self.row_numbers, series_of_row = arrays["row numbers"], arrays["series"]
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(series_of_row, minlength=len(self.names)))])
        self.order = np.argsort(series_of_row, kind="stable")
        self.values = {name: arrays[f"values of {name}"] for name in schema.numbers}
        if schema.time:
            self.times, chosen_format = self.stamps.finish()
            if chosen_format:
                self.notes.append(f"time stamps read as {chosen_format}, in which they are regular")
        else:
            self.times = np.empty_like(self.order)
            self.times[self.order] = np.arange(len(self.order)) - self.bounds[series_of_row[self.order]]
        self._reverse_descending()

    def _reverse_descending(self) -> None:
        """Reverse the series whose rows are in descending order of time."""
        note = "rows sorted by time, as the newest came first"
        for start, stop in pairwise(self.bounds):
            distances = np.diff(self.times[self.order[start:stop]]).astype(np.int64)
            if len(distances) and (distances < 0).all():
                self.order[start:stop] = self.order[start:stop][::-1]
                self.notes += [] if note in self.notes else [note]

    def frequency(self) -> Frequency:
        """The distance between the time stamps of the longest series."""
        longest = int(np.diff(self.bounds).argmax())
        times = self.times[self._positions_of(longest)[:_SAMPLE_SIZE]]
        if len(times) < 2 or (times == times[0]).all():
            raise self.table.fault(
                self._row_number(longest, 0),
                f"expected at least two different time stamps, got only {format_time(times[0])}; give a longer series, "
                "or pass the column that identifies the series with --series",
            )
        try:
            stamps, frequency = self.stamps, infer_frequency(times)
            return replace(frequency, form=stamps.form, zone=stamps.zone, is_local=stamps.is_local)
        except ValueError:
            raise self._order_error(longest, 1, times) from None

    def write(self, arrays: Arrays) -> dict[str, Any]:
        """Add the columns of numbers, one series after the other; return the descriptions of all series."""
        groups: list[dict[str, Any]] = []
        frequency, first = self.frequency(), 0
        for index in range(len(self.names)):
            columns, group = self._check_series(index, frequency)
            for name, values in zip(self.schema.numbers, columns, strict=True):
                arrays.add(name, values)
            groups.append(group | {"first": first})
            first += group["length"]
        return {"frequency": asdict(frequency), "groups": groups, "notes": self.notes}

    def _positions_of(self, index: int) -> np.ndarray:
        """The positions of the rows of a series."""
        return self.order[self.bounds[index] : self.bounds[index + 1]]

    def _row_number(self, index: int, k: int) -> int:
        """The number that row k of a series has in the table. k counts from 0."""
        return int(self.row_numbers[self._positions_of(index)[k]])

    def _check_series(self, index: int, frequency: Frequency) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Check a series; return its columns, with gaps filled, and its description."""
        row_positions = self._positions_of(index)
        times = self.times[row_positions]
        steps, on_grid = frequency.steps(times)
        self._check_times(index, times, steps, on_grid, frequency)
        # In a gap, each step takes the row before the gap.
        selected = row_positions[np.searchsorted(steps, np.arange(steps[-1] + 1), side="right") - 1]
        row_numbers, targets, arrays = self.row_numbers[selected], [], []
        for name, column in self.values.items():
            values = np.array(column[selected])
            if name in self.schema.target:
                first, stop = self._target_range(name, values, row_numbers)
                targets.append([first, stop])
                values[first:stop] = self._fill_missing(name, values[first:stop], row_numbers[first:])
            else:
                values = self._fill_missing(name, values, row_numbers, name in self.schema.past)
            arrays.append(values)
        row_number = self._row_number(index, 0)
        return arrays, {
            "name": self.names[index],
            "start": int(times[0].astype(np.int64)),
            "length": len(selected),
            "line": row_number if self.table.has_lines else None,
            "static": self.static[index],
            "targets": targets,
        }

    def _check_times(
        self, index: int, times: np.ndarray, steps: np.ndarray, on_grid: np.ndarray, frequency: Frequency
    ) -> None:
        """Check that the time stamps of a series are in ascending order, regular and, if required, without gaps."""
        step_distances, time_distances = np.diff(steps), np.diff(times).astype(np.int64)
        if (time_distances <= 0).any():
            raise self._order_error(index, int((time_distances <= 0).argmax()) + 1, times)
        if not on_grid.all():
            k = int((~on_grid).argmax())
            raise self.table.fault(
                self._row_number(index, k),
                f"the time stamp {format_time(times[k])} is not a whole number of steps of {frequency} after the "
                f"first one, {format_time(times[0])}; correct it, or bring all series to one frequency",
            )
        if (step_distances > 1).any() and self.schema.missing == "error":
            k = int((step_distances > 1).argmax())
            gap = "1 step is" if step_distances[k] == 2 else f"{step_distances[k] - 1} steps are"
            raise self.table.fault(
                self._row_number(index, k + 1),
                f"{gap} missing before {format_time(times[k + 1])}, after {format_time(times[k])} in "
                f"{self.table.describe_row(self._row_number(index, k))}; add them, or repeat the previous value "
                "with --missing last",
            )

    def _order_error(self, index: int, k: int, times: np.ndarray) -> DataError:
        """The error that time stamp k of a series is not later than time stamp k - 1."""
        previous_row = self.table.describe_row(self._row_number(index, k - 1))
        series = f" of series {self.names[index]!r}" if self.names[index] else ""
        time, previous = format_time(times[k]), format_time(times[k - 1])
        fault = f"comes after {previous} in {previous_row}; sort the rows by time"
        if times[k] == times[k - 1]:
            fault = f"is in {previous_row}, too; remove one of the two"
        return self.table.fault(
            self._row_number(index, k),
            f"the time stamp {time}{series} {fault}, or pass the column that identifies the series with --series",
        )

    def _target_range(self, name: str, values: np.ndarray, row_numbers: np.ndarray) -> tuple[int, int]:
        """The range of steps from the first to the last value of a target.

        Later rows may contain only covariates known ahead.
        """
        is_present = ~np.isnan(values)
        if not is_present.any():
            raise self.table.fault(
                int(row_numbers[0]), f"column {name!r} has no value; remove the column or the series"
            )
        first, stop = int(is_present.argmax()), len(values) - int(is_present[::-1].argmax())
        if self.schema.missing == "error":
            if first:
                raise self._missing_value_error(name, int(row_numbers[0]))
            if stop < len(values) and not self.schema.known:
                remedy = "; rows that hold covariates known ahead need --known"
                raise self._missing_value_error(name, int(row_numbers[stop]), remedy)
        return first, stop

    def _fill_missing(
        self, name: str, values: np.ndarray, row_numbers: np.ndarray, is_past: bool = False
    ) -> np.ndarray:
        """Replace missing values, `(L,)`, by the value before, or raise an error, as the schema requires.

        A covariate known up to the present (`is_past`) may end where the target ends.
        """
        is_present = ~np.isnan(values)
        if is_present.all():
            return values
        first_missing, is_error = int(is_present.argmin()), self.schema.missing == "error"
        if is_error and is_past and self.schema.known and not is_present[first_missing:].any():
            return values
        if is_error or first_missing == 0:  # a later value would leak information from the future
            raise self._missing_value_error(name, int(row_numbers[first_missing]))
        return pd.Series(values).ffill().to_numpy()

    def _missing_value_error(self, name: str, row: int, remedy: str = "") -> DataError:
        return self.table.fault(
            row, f"column {name!r} lacks a value; fill it in, or repeat the previous value with --missing last{remedy}"
        )


def _number_or_text(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
