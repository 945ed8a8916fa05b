"""Time series from tables.

| module | contents |
|---|---|
| `layouts` | tables in JSON, with a series per row, and of the Monash repository |
| `table` | reads the rows of a table |
| `times`, `zones` | parse time stamps, and print them in the form of the input |
| `frequency` | the distance between time stamps |
| `columns` | detects the roles of columns, and parses numbers |
| `series` | a series in memory or on disk |
| `build` | groups the rows by series, and checks them |
"""

from glassgate.tasks.forecasting.series.build import read_series
from glassgate.tasks.forecasting.series.columns import MISSING, Schema, reading_of, resolve_schema
from glassgate.tasks.forecasting.series.frequency import Frequency, calendar_features, infer_frequency, with_zone
from glassgate.tasks.forecasting.series.series import Series, series_of
from glassgate.tasks.forecasting.series.table import Frame, Table, has_time_index

__all__ = [
    "MISSING", "Frame", "Frequency", "Schema", "Series", "Table", "calendar_features", "has_time_index",
    "infer_frequency", "read_series", "reading_of", "resolve_schema", "series_of", "with_zone",
]  # fmt: skip
