"""Time series from tables: roles of columns and frequency (schema), tables (reader), checked series (build)."""

from glassgate.tasks.data.series.build import Series, Steps, given, read_series
from glassgate.tasks.data.series.reader import Frame, Table, is_indexed, resolved
from glassgate.tasks.data.series.schema import MISSING, Frequency, Schema, calendar, infer

__all__ = [
    "MISSING", "Frame", "Frequency", "Schema", "Series", "Steps", "Table", "calendar", "given", "infer", "is_indexed",
    "read_series", "resolved",
]  # fmt: skip
