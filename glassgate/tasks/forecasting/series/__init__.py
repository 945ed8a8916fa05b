"""Time series from tables.

| module | contents |
|---|---|
| `reader` | reads the rows of a table |
| `schema` | the roles of the columns, and the frequency of the time stamps |
| `columns` | detects the roles, and parses numbers |
| `stamps`, `time_columns` | parse time stamps, in one or in several columns |
| `json_tables`, `wide`, `tsf` | tables in JSON, with a series per row, and of the Monash repository |
| `build` | groups the rows by series, and checks them |
| `steps` | a series in memory or on disk |
| `zones` | time zones, and the texts of time stamps |
"""

from glassgate.tasks.forecasting.series.build import read_series
from glassgate.tasks.forecasting.series.columns import reading_of, resolve_schema
from glassgate.tasks.forecasting.series.reader import Frame, Table, has_time_index
from glassgate.tasks.forecasting.series.schema import MISSING, Frequency, Schema, calendar_features, infer_frequency
from glassgate.tasks.forecasting.series.steps import Series, series_of

__all__ = [
    "MISSING",
    "Frame",
    "Frequency",
    "Schema",
    "Series",
    "Table",
    "calendar_features",
    "has_time_index",
    "infer_frequency",
    "read_series",
    "reading_of",
    "resolve_schema",
    "series_of",
]  # fmt: skip
