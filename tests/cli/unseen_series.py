"""Series in the forms of public data sets and of exports, with their expected start, frequency and values."""

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

VALUES = [round(100 + 20 * math.sin(k / 2) + k % 7 / 3, 2) for k in range(150)]
OTHERS = [round(5 + math.cos(k / 3) + k % 5 / 10, 3) for k in range(150)]
HOURS = [datetime(2020, 1, 1) + timedelta(hours=k) for k in range(150)]
DAYS = [datetime(2020, 1, 1) + timedelta(days=k) for k in range(150)]
MONTHS = [datetime(1990 + k // 12, k % 12 + 1, 1) for k in range(150)]
TEXTS = [
    (f"the {['dog', 'cat', 'film'][k % 3]} number {k} was {['bad', 'good'][k % 2]}", "ba"[k % 2]) for k in range(60)
]
NUMBERS = [(text, f"{len(text) * 0.37 + k * 0.013:.3f}") for k, (text, _) in enumerate(TEXTS)]
PAIRS = [(f"the {'very ' * (k % 6)}old dog {k}", f"der {'sehr ' * (k % 6)}alte Hund {k}") for k in range(60)]
SERIES = [([round(math.sin(t) + k % 2 * t / 10, 3) for t in range(20)], str(1 + k % 2)) for k in range(40)]


def table(rows: Sequence[Sequence[object]], header: str = "", **form: Any) -> str:
    """A CSV with a header of names separated by blanks."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **form).writerows([*([header.split()] if header else []), *rows])
    return file.getvalue()


def timed(
    times: Sequence[datetime], form: str, *columns: Sequence[object], header: str = "date v w", **options: Any
) -> str:
    columns = columns or (VALUES,)
    rows = [[format(time, form), *values] for time, *values in zip(times, *columns, strict=True)]
    return table(rows, " ".join(header.split()[: len(columns) + 1]), **options)


def hourly(*values: Sequence[float]) -> list[Any]:
    return [("2020-01-01T00:00:00", "1 hour", each) for each in values or (VALUES,)]


def daily(*values: Sequence[float]) -> list[Any]:
    return [("2020-01-01T00:00:00", "1 day", each) for each in values or (VALUES,)]


def monthly(*values: Sequence[float]) -> list[Any]:
    return [("1990-01-01T00:00:00", "1 month", each) for each in values or (VALUES,)]


def steps(*values: Sequence[float], start: int = 0, unit: str = "1 step") -> list[Any]:
    return [(start, unit, each) for each in values or (VALUES,)]


def comma(values: Sequence[float]) -> list[str]:
    return [str(value).replace(".", ",") for value in values]


EPOCH = int(HOURS[0].timestamp())
DATES = [f"{day:%Y-%m-%d}" for day in DAYS]
MONTH_NAMES = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
WORLD_BANK = '\ufeff"Data Source","World Development Indicators",\n\n"Last Updated","2024-06-28",\n\n'
Case = tuple[str, str, Any]

FORECASTING: dict[str, Case] = {
    "units in cells": ("a.csv", timed(DAYS, "%F", [f"{v} \u00b0C" for v in VALUES]), daily()),
    "write.table of R": (
        "a.txt",
        '"date" "v"\n' + "".join(f'"{k + 1}" "{d}" {v}\n' for k, (d, v) in enumerate(zip(DATES, VALUES, strict=True))),
        daily(),
    ),
    "dates as numbers of Excel": ("a.csv", table([[43831 + k, v] for k, v in enumerate(VALUES)], "Date v"), daily()),
    "an index without a name": ("a.csv", timed(HOURS, "%F %T").replace("date", "", 1), hourly()),
    "the data of electricity": (
        "LD.txt",
        timed(HOURS, "%F %T", comma(VALUES), header='"" MT', delimiter=";"),
        hourly(),
    ),
    "milliseconds": (
        "a.csv",
        table([[(EPOCH + 3600 * k) * 1000, v] for k, v in enumerate(VALUES)], "opened close"),
        steps(start=EPOCH * 1000, unit="3,600,000 steps"),
    ),
    "seconds with decimals": (
        "a.csv",
        table([[f"{EPOCH + 3600 * k}.0", v] for k, v in enumerate(VALUES)], "timestamp close"),
        steps(start=EPOCH, unit="3,600 steps"),
    ),
    "YYYYMMDDHH": ("a.csv", timed(HOURS, "%Y%m%d%H", header="STAMP v"), hourly()),
    "YYYYMM": ("a.csv", timed(MONTHS, "%Y%m", header="Month v"), monthly()),
    "1990M01": ("a.csv", timed(MONTHS, "%YM%m", header="TIME v"), monthly()),
    "ISO weeks": (
        "a.csv",
        timed([datetime(2019, 12, 30) + timedelta(weeks=k) for k in range(150)], "%G-W%V"),
        [("2019-12-30T00:00:00", "1 week", VALUES)],
    ),
    "decimal years of R": (
        "a.csv",
        table([[k + 1, f"{1990 + k / 12:.6f}", v] for k, v in enumerate(VALUES)], "id time value"),
        monthly(),
    ),
    "seconds since the start": ("a.csv", table([[f"{k / 100:.2f}", v] for k, v in enumerate(VALUES)], "t x"), steps()),
    "a year and the name of a month": (
        "a.csv",
        timed(MONTHS, "%Y,%b", header="Year,Month v").replace('"', ""),
        monthly(),
    ),
    "a year and a quarter": (
        "a.csv",
        table([[1990 + k // 4, k % 4 + 1, v] for k, v in enumerate(VALUES)], "year quarter gdp"),
        [("1990-01-01T00:00:00", "3 months", VALUES)],
    ),
    "a year per row": (
        "a.csv",
        "Global means\n"
        + table([[1990 + k, *VALUES[12 * k : 12 * k + 12], 1] for k in range(12)], f"Year {MONTH_NAMES} J-D"),
        monthly(VALUES[:144]),
    ),
    "the World Bank": (
        "a.csv",
        WORLD_BANK
        + table(
            [["Aruba", "ABW", *[""] * 10, *VALUES[:140], ""], ["Africa", "AFE", *OTHERS, ""]],
            f"Country Code {' '.join(map(str, range(1870, 2020)))}",
        ).replace("2019", "2019,", 1),
        [(1880, "1 step", VALUES[:140]), (1870, "1 step", OTHERS)],
    ),
    "dates as columns": (
        "a.csv",
        table(
            [["", "Ulm", *VALUES], ["X", "Bonn", *OTHERS]],
            " ".join(["state", "town", *(f"{d:%-m/%-d/%y}" for d in DAYS)]),
        ),
        daily(VALUES, OTHERS),
    ),
    "M4": (
        "a.csv",
        table([["M1", *VALUES], ["M2", *OTHERS[:130], *[""] * 20]], " ".join(f"V{k}" for k in range(1, 152))),
        steps(VALUES, OTHERS[:130], start=1),
    ),
    "GluonTS": (
        "a.json",
        "".join(
            f"{json.dumps({'start': '2020-01-01 00:00:00', 'target': v, 'item_id': n, 'freq': '1H'})}\n"
            for n, v in (("A", VALUES), ("B", OTHERS))
        ),
        hourly(VALUES, OTHERS),
    ),
    "JSON records": ("a.json", json.dumps([{"date": d, "v": v} for d, v in zip(DATES, VALUES, strict=True)]), daily()),
    "JSON columns": ("a.json", json.dumps({"date": DATES, "value": VALUES}), daily()),
    "JSON numbers": ("a.json", json.dumps(VALUES), steps()),
    "JSON by date": ("a.json", json.dumps(dict(zip(DATES, VALUES, strict=True)), indent=1), daily()),
    "JSON by name": ("a.json", json.dumps({"A": VALUES, "B": OTHERS[:130]}), steps(VALUES, OTHERS[:130])),
    "JSON pairs under a key": (
        "a.json",
        json.dumps({"prices": [[(EPOCH + 3600 * k) * 1000, v] for k, v in enumerate(VALUES)]}),
        steps(start=EPOCH * 1000, unit="3,600,000 steps"),
    ),
    "nested JSON": (
        "a.json",
        json.dumps({"units": {"t": "C"}, "hourly": {"time": [f"{h:%FT%R}" for h in HOURS], "t": VALUES}}),
        hourly(),
    ),
    "rows by date as texts": (
        "a.json",
        json.dumps(
            {
                "Meta": {"1": "x"},
                "Daily": {d: {"open": str(v), "close": str(w)} for d, v, w in zip(DATES, VALUES, OTHERS, strict=True)},
            }
        ),
        daily(VALUES, OTHERS),
    ),
    "pandas": ("a.json", json.dumps({"v": {str(k): v for k, v in enumerate(VALUES)}}), steps()),
    "aligned columns": (
        "a.dat",
        "".join(f"{v:9.2f} {w:9.3f}\n" for v, w in zip(VALUES, OTHERS, strict=True)),
        steps(VALUES, OTHERS),
    ),
    "a column": ("a.dat", "".join(f"{v:9.2f}\n" for v in VALUES), steps()),
    "aligned dates and times": (
        "a.dat",
        "".join(f"{h:%F %T} {v:9.2f}\n" for h, v in zip(HOURS, VALUES, strict=True)),
        hourly(),
    ),
    "aligned years, months and decimal years": (
        "co2.txt",
        "# CO2\n# made on 5 May\n"
        + "".join(
            f" {m.year} {m.month:2} {m.year + (m.month - 0.5) / 12:.4f} {v}\n"
            for m, v in zip(MONTHS, VALUES, strict=True)
        ),
        monthly(),
    ),
    "no header": ("a.csv", timed(HOURS, "%F %T", VALUES, OTHERS, header=""), hourly(VALUES, OTHERS)),
    "no header, semicolons": ("a.csv", timed(HOURS, "%d.%m.%Y %R", comma(VALUES), header="", delimiter=";"), hourly()),
    "a date, a beginning and an end": (
        "a.csv",
        table(
            [
                [f"{h:%d.%m.%Y}", f"{h:%R}", f"{h + timedelta(hours=1):%R}", v]
                for h, v in zip(HOURS, comma(VALUES), strict=True)
            ],
            "Datum Anfang Ende Last",
            delimiter=";",
        ),
        hourly(),
    ),
    "clocks with points": (
        "a.csv",
        "Date;Time;CO;;\n"
        + "".join(f"{h:%d/%m/%Y;%H.%M.%S};{v};;\n" for h, v in zip(HOURS, comma(VALUES), strict=True)),
        hourly(),
    ),
    "a date that is not first": (
        "a.csv",
        table([[k, d, v] for k, (d, v) in enumerate(zip(DATES, VALUES, strict=True))], "id day v"),
        daily(),
    ),
    "titles": ("a.csv", f"Station: Ulm\nUnit: mm\n\n{timed(DAYS, '%F')}", daily()),
    "an empty last column": ("a.csv", timed(DAYS, "%F").replace("\n", ",\n"), daily()),
    "names in several rows": (
        "a.csv",
        f"Price,Close,High\nTicker,X,X\nDate,,\n{timed(DAYS, '%F', VALUES, OTHERS, header='')}",
        daily(VALUES, OTHERS),
    ),
    "comments with as many columns": (
        "a.csv",
        "# device: X1, rev 2\n# started, 2020\n" + timed(HOURS, "%FT%T", VALUES, header="when v"),
        hourly(),
    ),
    "thousands by apostrophes": (
        "a.csv",
        table([[d, f"{1000 * v:,.2f}".replace(",", "'")] for d, v in zip(DATES, VALUES, strict=True)], "Datum Wert"),
        daily([1000 * v for v in VALUES]),
    ),
    "thousands by narrow blanks": (
        "a.csv",
        table(
            [
                [d, f"{1000 * v:,.2f}".replace(",", "\u202f").replace(".", ",")]
                for d, v in zip(DATES, VALUES, strict=True)
            ],
            "date valeur",
            delimiter=";",
        ),
        daily([1000 * v for v in VALUES]),
    ),
    "negative numbers in parentheses": (
        "a.csv",
        timed(DAYS, "%F", [f"({v})" if k % 5 == 0 else v for k, v in enumerate(VALUES)]),
        daily([-v if k % 5 == 0 else v for k, v in enumerate(VALUES)]),
    ),
    "days of the week": ("a.csv", timed(DAYS, "%a, %d %b %Y", header="Date Close"), daily()),
    "Chinese dates": (
        "a.csv",
        "\u65e5\u671f,\u6536\u76d8\u4ef7\n"
        + "".join(f"{d.year}\u5e74{d.month}\u6708{d.day}\u65e5,{v}\n" for d, v in zip(DAYS, VALUES, strict=True)),
        daily(),
    ),
    "units in names, steps by seconds": (
        "a.tsv",
        "t [s]\tU [V]\n" + "".join(f"{k / 2}\t{v}\n" for k, v in enumerate(VALUES)),
        steps(),
    ),
    "years in a row, decimal commas": (
        "a.csv",
        table([["Ulm", *comma(VALUES)]], f"region {' '.join(str(1850 + k) for k in range(150))}", delimiter=";"),
        [(1850, "1 step", VALUES)],
    ),
}

ROWS_OF_SERIES: dict[str, Case] = {
    "lists of values with a label": (
        "a.jsonl",
        "".join(json.dumps({"id": k, "values": v, "label": label}) + "\n" for k, (v, label) in enumerate(SERIES)),
        SERIES,
    ),
    "numbered series": ("a.csv", table([[k, *values, label] for k, (values, label) in enumerate(SERIES)]), SERIES),
    "numbered series with names": (
        "a.csv",
        table(
            [[k, *values, label] for k, (values, label) in enumerate(SERIES)],
            f"i {' '.join(f't{k}' for k in range(20))} y",
        ),
        SERIES,
    ),
    "named series": (
        "a.csv",
        table(
            [[f"X{k}.V", *values, label] for k, (values, label) in enumerate(SERIES)],
            f"i {' '.join(f't{k}' for k in range(20))} y",
        ),
        SERIES,
    ),
}
