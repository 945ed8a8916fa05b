"""Time series from tables: schema (roles, frequency), reader (tables), columns, steps (series), build (checks)."""

from glassgate.tasks.data.series.build import read_series
from glassgate.tasks.data.series.columns import resolved
from glassgate.tasks.data.series.reader import Frame, Table, is_indexed
from glassgate.tasks.data.series.schema import MISSING, Frequency, Schema, calendar, infer
from glassgate.tasks.data.series.steps import Series, Steps, series_of

__all__ = [
    "MISSING", "Frame", "Frequency", "Schema", "Series", "Steps", "Table", "calendar", "infer", "is_indexed",
    "read_series", "resolved", "series_of",
]  # fmt: skip
