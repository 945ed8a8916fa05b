"""Which columns of a table of time series are what, as options say it or as it is found out."""

from dataclasses import dataclass, replace

from glassgate.tasks.data.rows import Rows, Stamps
from glassgate.tasks.errors import OptionError

MISSING = ("error", "last")

_TIMES = ("ds", "date", "time", "timestamp", "datetime")


@dataclass(frozen=True)
class Layout:
    """Which columns of a table are what.

    Attributes:
        target: what is forecast, each column a series of its own; all that are nothing else if empty
        time: of the time stamps; found out if None
        series: of the names of series, where a table holds several below each other; found out if None
        past: covariates that are known up to the present
        known: covariates that are known ahead
        static: numbers or texts that belong to a series
        time_format: what strptime takes; found out if empty
        missing: what to do with gaps: "error", or "last" for the value before
    """

    target: tuple[str, ...] = ()
    time: str | None = None
    series: str | None = None
    past: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    time_format: str = ""
    missing: str = "error"


def resolved(rows: Rows, layout: Layout) -> Layout:
    """Find out the columns that are not named, and see that those that are named exist."""
    names = rows.names
    for option in ("target", "past", "known", "static"):
        for name in getattr(layout, option):
            _check_name(rows, name, option)
    for option in ("time", "series"):
        if getattr(layout, option) is not None:
            _check_name(rows, getattr(layout, option), option)
    time, series = layout.time, layout.series
    if series is None and "unique_id" in names:
        series = "unique_id"
    if time is None:
        time = next((name for name in names if name.lower() in _TIMES), None)
    taken = {time, series, *layout.past, *layout.known, *layout.static}
    if time is None and names[0] not in taken | {*layout.target}:
        _, batch = next(rows.batches([names[0]]), (None, None))
        first = None if batch is None else batch.column(0)[0].as_py()
        if isinstance(first, str) and not first.replace(".", "").isdigit() and Stamps(rows, "").fits(first):
            time = names[0]
            taken.add(time)
    target = layout.target or tuple(name for name in names if name not in taken)
    if series is not None and not layout.target and "y" in target:
        target = ("y",)
    if not target:
        raise rows.fault(None, f"expected a column of numbers to forecast, got {', '.join(map(repr, names))}")
    both = taken & {*target}
    if both:
        raise OptionError(
            f"target: {both.pop()!r} holds the time stamps, the names of series or a covariate; name another column"
        )
    return replace(layout, time=time, series=series, target=target)


def _check_name(rows: Rows, name: str, option: str) -> None:
    if name not in rows.names:
        raise rows.fault(
            None,
            f"no column {name!r}; there are {', '.join(map(repr, rows.names[:12]))}; name one of them with --{option}",
        )
