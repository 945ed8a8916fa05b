"""Time zones of time stamps, and their texts: in the zone and the form of the input."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import pandas as pd

ISO_FORM = "%Y-%m-%d %H:%M:%S%:z"
"""The form of time stamps with a time zone if the form of the input cannot be reproduced."""
# A time stamp with a time of day and an offset from UTC.
_WITH_OFFSET = re.compile(r".*(?:[ T]\d{4,6}|:\d\d(?:\.\d+)?)(?P<gap> ?)(?P<offset>Z|[+-]\d\d(?::?\d\d)?)")
_FORMS = (
    *("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m", "%Y%m%d"),
    *("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m"),
    *("%YQ%q", "%Y Q%q", "%Y-Q%q", "Q%q %Y", "Q%q/%Y", "Q%q-%Y", "Q%q%Y"),
)
_MAX_CHANGES = 20  # the number of changes of the offset by which a zone is recognised
_CONTINENTS = ("Africa/", "America/", "Asia/", "Australia/", "Europe/", "Pacific/")


def offsets_of(texts: pd.Series) -> np.ndarray | None:
    """Return the offset of each time stamp from UTC in minutes, `(R,)`; None if some have none.

    Example:
        >>> offsets_of(pd.Series(["2024-03-31 01:00+01:00", "2024-03-31T03:00Z"])).tolist()
        [60, 0]
    """
    found = texts.str.extract(_WITH_OFFSET.pattern)["offset"]
    if found.isna().any():
        return None
    codes, distinct = pd.factorize(found)
    return np.array([_minutes(text) for text in distinct])[codes]


def find_zone(times: np.ndarray, offsets: np.ndarray) -> str:
    """Return the zone of time stamps in UTC whose offsets are in minutes: an offset, or a name if the offset changes.

    Of the zones that have these offsets, the one is chosen whose offsets of the next two years most of them share. If
    no zone has these offsets, the result is the last offset.

    Example:
        >>> times = np.array(["2024-03-31T00:00", "2024-03-31T01:00"], "datetime64[us]")
        >>> find_zone(times, np.array([60, 120])) in available_timezones(), find_zone(times, np.array([60, 60]))
        (True, '+01:00')
    """
    changes = np.flatnonzero(np.diff(offsets))[-_MAX_CHANGES:]
    zones: dict[str, tuple[timedelta | None, ...]] = {}
    if len(changes):
        checked = np.unique([0, *changes, *(changes + 1), len(times) - 1])
        known = [(_in_utc(times[k]), timedelta(minutes=int(offsets[k]))) for k in checked]
        later = [_in_utc(times.max()) + timedelta(days=7 * week) for week in range(1, 105)]
        for name in sorted(available_timezones()):
            zone = ZoneInfo(name)
            if all(time.astimezone(zone).utcoffset() == offset for time, offset in known):
                zones[name] = tuple(time.astimezone(zone).utcoffset() for time in later)
    if not zones:
        return _offset_text(timedelta(minutes=int(offsets[np.argmax(times)])))
    (usual, _), *_ = Counter(zones.values()).most_common(1)
    names = [name for name, offsets in zones.items() if offsets == usual]
    return next((name for name in names if name.startswith(_CONTINENTS)), names[0])


def zone_of_type(zone: tzinfo, time: pd.Timestamp) -> str:
    """Return the name of the zone of a column of time stamps, or the offset of one of them if the zone has no name."""
    try:
        return ZoneInfo(str(zone)).key
    except (ValueError, ZoneInfoNotFoundError):
        return _offset_text(time.utcoffset())


def as_tzinfo(zone: str) -> tzinfo:
    """Return the zone of a name or an offset."""
    return timezone(timedelta(minutes=_minutes(zone))) if zone[0] in "+-Z" else ZoneInfo(zone)


def to_local(times: np.ndarray, zone: str) -> np.ndarray:
    """Convert time stamps in UTC to local times, `(R,)`."""
    local = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(as_tzinfo(zone)).tz_localize(None)
    return local.to_numpy("datetime64[us]")


def find_form(format: str, pairs: Sequence[tuple[str, Any]], zone: str = "", is_local: bool = False) -> str:
    """Return the form in which time stamps are written; empty if no known form reproduces the given texts.

    The `format` is that in which they were parsed, as in `strptime`, and `pairs` are texts, each with its time stamp.

    Example:
        >>> find_form("%d/%m/%Y %H:%M", [("1/3/2013 7:00", np.datetime64("2013-03-01T07:00", "us"))])
        '%-d/%-m/%Y %-H:%M'
    """
    suffix = ""
    if zone and (match := _WITH_OFFSET.fullmatch(pairs[0][0])):
        offset = match["offset"]
        suffix = match["gap"] + ("Z" if offset == "Z" else "%:z" if ":" in offset else "%z")
    for form, day, hour in product((*_FORMS, re.sub(" ?%z", "", format)), ("%d", "%-d"), ("%H", "%-H")):
        month = "%m" if day == "%d" else "%-m"
        form = form.replace("%d", day).replace("%m", month).replace("%H", hour) + suffix
        if all(text_of(time, form, zone, is_local) == text for text, time in pairs):
            return form
    return ISO_FORM if zone else ""


def text_of(time: Any, form: str, zone: str = "", is_local: bool = False) -> str:
    """Return a time stamp in a form of `strftime`, with the additions %-d, %-m, %-H (without zeros), %q and %:z.

    Example:
        >>> text_of(np.datetime64("2024-03-31T01:00", "us"), "%Y-%m-%dT%H:%M%:z", "Europe/Berlin")
        '2024-03-31T03:00+02:00'
    """
    moment: datetime = time.astype("datetime64[us]").item()
    if zone:
        kind = as_tzinfo(zone)
        moment = moment.replace(tzinfo=kind) if is_local else moment.replace(tzinfo=UTC).astimezone(kind)
    parts = {"%-d": str(moment.day), "%-m": str(moment.month), "%-H": str(moment.hour), "%Y": f"{moment.year:04}"}
    parts |= {"%q": str((moment.month + 2) // 3), "%:z": _offset_text(moment.utcoffset())}
    for part, text in parts.items():
        form = form.replace(part, text)
    return moment.strftime(form)


def _in_utc(time: np.datetime64) -> datetime:
    moment: datetime = time.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def _minutes(offset: str) -> int:
    if offset == "Z":
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return (-1 if offset[0] == "-" else 1) * (60 * int(digits[:2]) + int(digits[2:]))


def _offset_text(offset: timedelta | None) -> str:
    minutes = round((offset or timedelta()).total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
