"""Common tables of series are read: dates in any order, decimal commas, newest rows first, compressed files, Excel."""

import gzip
import io
import json
import zipfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from glassgate.cli.readings import rank
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.errors import DataError
from glassgate.tasks.forecasting import Forecasting, ForecastingOptions
from glassgate.tasks.forecasting.series import Schema, Series, read_series
from glassgate.tasks.progress import Progress

DAYS = [date(2024, 1, 1) + timedelta(k) for k in range(60)]
VALUES = [1000.5 + k for k in range(60)]


class Notes(Progress):
    """Stores all notes."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def read(path: Path, **schema: str) -> tuple[Series, str]:
    notes = Notes()
    (series,) = read_series(path, Schema(**schema), notes)  # type: ignore[arg-type]
    return series, notes.said[-1]


def table(form: str = "%Y-%m-%d", separator: str = ",", number: str = "{:.1f}") -> str:
    rows = "".join(f"{day.strftime(form)}{separator}{number.format(v)}\n" for day, v in zip(DAYS, VALUES, strict=True))
    return f"day{separator}load\n{rows}"


@pytest.mark.parametrize(
    "form",
    [
        *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%y", "%B %d, %Y", "%m/%d/%y", "%Y%m%d", "%d %b %Y"),
        *("%Y/%m/%d %H:%M", "%m/%d/%Y %I:%M %p", "%Y年%m月%d日"),
    ],
)
def test_dates_in_any_order(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    separator = ";" if "," in form else ","
    path.write_text(table(form, separator))
    series, _ = read(path)
    assert (str(series.start)[:10], str(series.frequency), series.values[:].tolist()) == ("2024-01-01", "1 day", VALUES)


def test_dates_that_only_regularity_resolves(tmp_path: Path) -> None:
    months = [f"01/{month:02}/{year}" for year in (2022, 2023) for month in range(1, 13)]
    (tmp_path / "a.csv").write_text("day,load\n" + "".join(f"{each},{k}\n" for k, each in enumerate(months)))
    series, said = read(tmp_path / "a.csv")
    assert str(series.frequency) == "1 month"
    assert "time stamps read as %d/%m/%Y, in which they are regular" in said


def test_ambiguous_dates_need_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day,load\n" + "".join(f"01/{month:02}/2024,{month}\n" for month in range(1, 13)))
    message = (
        r"a\.csv: column 'day': time stamp 2 can be 2024-02-01 00:00:00 or 2024-01-02 00:00:00, and both fit the whole "
        r"column; choose --time-format '%d/%m/%Y' for the first, --time-format '%m/%d/%Y' for the second"
    )
    with pytest.raises(DataError, match=message):
        read(tmp_path / "a.csv")
    assert str(read(tmp_path / "a.csv", time_format="%d/%m/%Y")[0].frequency) == "1 month"
    assert str(read(tmp_path / "a.csv", time_format="%m/%d/%Y")[0].frequency) == "1 day"


@pytest.mark.parametrize(
    ("separator", "numbers", "values", "comma"),
    [
        (";", ["1.000,5", "1.001", "12,25"], [1000.5, 1001, 12.25], True),
        (";", ["0,5", "3", "12"], [0.5, 3, 12], True),
        (";", ["1,000.5", "1,001", "12.25"], [1000.5, 1001, 12.25], False),
        (",", ["0.125", "1.250", "3"], [0.125, 1.25, 3], False),
        (";", ["1.234.567", "1.234", "2"], [1234567, 1234, 2], True),
        (";", ["1,234.567", "1.234", "2"], [1234.567, 1.234, 2], False),
    ],
)
def test_decimal_marks(separator: str, numbers: list[str], values: list[float], comma: bool, tmp_path: Path) -> None:
    rows = "".join(f"{day}{separator}{number}\n" for day, number in zip(DAYS, numbers, strict=False))
    (tmp_path / "a.csv").write_text(f"day{separator}load\n{rows}")
    series, said = read(tmp_path / "a.csv")
    assert series.values[:].tolist() == values
    assert ("decimal commas" in said) is comma


def test_an_ambiguous_number_needs_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day;load\n" + "".join(f"{day};{k}.250\n" for k, day in enumerate(DAYS, 1)))
    with pytest.raises(
        DataError,
        match=r"a\.csv:2: column 'load': 1\.250 can be 1250 or 1\.250, and the other numbers do not show which; "
        r"choose --decimal , for the first, --decimal \. for the second",
    ):
        read(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv", decimal=",")[0].values[:2].tolist() == [1250, 2250]
    assert read(tmp_path / "a.csv", decimal=".")[0].values[:2].tolist() == [1.25, 2.25]


def test_newest_first(tmp_path: Path) -> None:
    head, *rows = table().splitlines()
    (tmp_path / "a.csv").write_text("\n".join([head, *reversed(rows), ""]))
    series, said = read(tmp_path / "a.csv")
    assert series.values[:].tolist() == VALUES
    assert "rows sorted by time, as the newest came first" in said


def test_compressed_in_other_encodings_and_excel(tmp_path: Path) -> None:
    text = table().replace("day,load", "Tag,Größe")
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("inside.csv", text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.csv.zst").write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    pd.read_csv(io.StringIO(text), parse_dates=["Tag"]).to_excel(tmp_path / "a.xlsx", index=False)
    for name in ("a.csv.zip", "a.csv.gz", "a.csv.zst", "a.csv", "a.xlsx"):
        series, said = read(tmp_path / name)
        assert (series.name, series.values[:].tolist()) == ("Größe", VALUES), name
        assert ("encoding cp1252" in said) is (name == "a.csv")
        assert ("sheet 'Sheet1'" in said) is (name == "a.xlsx")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("one.csv", text)
        archive.writestr("two.csv", text)
    with pytest.raises(
        DataError, match=r"b\.csv\.zip: expected an archive of one file, got 2: one\.csv, two\.csv; extract"
    ):
        read((tmp_path / "b.zip").rename(tmp_path / "b.csv.zip"))


def test_a_month_is_in_its_place_after_a_gap() -> None:
    stamps = pd.to_datetime(["2024-01-31", "2024-02-29", "2024-04-30"])
    (series,) = read_series(pd.DataFrame({"ds": stamps, "y": [1.0, 2.0, 4.0]}), Schema(missing="last"))
    assert np.asarray(series.values[:]).tolist() == [1, 2, 2, 4]


def test_messages_about_files_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_text("none")
    with pytest.raises(DataError, match=r"a\.xlsx: expected an Excel workbook, but it does not load"):
        read(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text('day,load\n2024-01-01,"1\n')
    with pytest.raises(DataError, match=r"a\.csv:2: expected CSV, but it does not parse: .*; check the quotes"):
        read(tmp_path / "a.csv")
    with pytest.raises(DataError, match="given frame: expected a data frame or a table, got "):
        read_series(object())


def test_spaces_between_thousands(tmp_path: Path) -> None:
    french = table(separator=";", number="{:,.1f}").replace(",", "\N{NO-BREAK SPACE}").replace(".", ",")
    (tmp_path / "a.csv").write_text(french)
    series, said = read(tmp_path / "a.csv")
    assert (series.values[:].tolist(), said.rsplit("; ", 1)[1]) == (VALUES, "decimal commas")


def test_a_first_row_of_values_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table().split("\n", 1)[1])
    series, said = read(tmp_path / "a.csv")
    assert (len(series), str(series.frequency)) == (len(VALUES), "1 day")
    assert "no header, columns named by number" in said
    (tmp_path / "a.csv").write_text("1.5\n2.5\n3.5\n")
    series, said = read(tmp_path / "a.csv")
    assert series.values[:].tolist() == [1.5, 2.5, 3.5]
    assert said.endswith("no header, columns named by number")


def test_a_workbook_without_a_header_and_one_with_a_title(tmp_path: Path) -> None:
    rows = [[f"2024-01-{k:02}", k] for k in range(1, 9)]
    for above in ([], [["Sales", None], [None, None], ["date", "v"]]):
        pd.DataFrame([*above, *rows]).to_excel(tmp_path / "a.xlsx", index=False, header=False)
        series, said = read(tmp_path / "a.xlsx")
        assert (series.values[:].tolist(), series.frequency.text(series.start)) == ([*range(1, 9)], "2024-01-01")
        assert ("no header" in said) is not bool(above)


def test_later_files_are_read_like_the_training_file(tmp_path: Path) -> None:
    """In a small file, the decimal mark, the order of day and month, and the column of times can be unclear."""
    task = Forecasting(ForecastingOptions(horizon=1, look_back=1))
    train, later = tmp_path / "train.csv", tmp_path / "later.csv"
    train.write_text(
        "Tag;v\n"
        + "".join(f"{day:%d.%m.%Y};{value:.2f}\n" for day, value in zip(DAYS, VALUES, strict=True)).replace(
            ".50", ",50"
        )
    )
    later.write_text("Tag;v\n01.02.2024;1.250\n02.02.2024;1.251\n03.02.2024;1.252\n")
    with pytest.raises(DataError, match="choose --decimal"):
        task.read(later, labelled=False)
    reading = task.examine(train)
    assert dict(reading.options) == {"time": "Tag", "time_format": "%d.%m.%Y", "decimal": ","}
    assert Reading.from_mapping(json.loads(json.dumps(reading.to_mapping()))) == reading
    task.follow(reading)
    (series,) = task.read(later, labelled=False)
    assert (series.values[:].tolist(), str(series.frequency)) == ([1250, 1251, 1252], "1 day")


@pytest.mark.parametrize("name", ["when", None])
def test_the_index_of_a_frame_in_parquet(name: str | None, tmp_path: Path) -> None:
    frame = pd.DataFrame({"load": VALUES}, index=pd.DatetimeIndex(DAYS, name=name))
    frame.to_parquet(tmp_path / "a.parquet")
    series, _ = read(tmp_path / "a.parquet")
    assert (str(series.frequency), series.values[:].tolist()) == ("1 day", VALUES)


def test_numbers_with_marks(tmp_path: Path) -> None:
    """Currencies and percent signs are left out, and K, M and B multiply."""
    path, days = tmp_path / "a.csv", [f"2024-01-{day:02}" for day in range(1, 9)]
    path.write_text("Date,Price,Volume\n" + "".join(f'{day},"$1,20{k}.5",{k}.5K\n' for k, day in enumerate(days)))
    price, volume = read_series(path, Schema(), Notes())
    assert price.values[:].tolist() == [1200.5 + k for k in range(8)]
    assert volume.values[:].tolist() == [1000 * (k + 0.5) for k in range(8)]
    for marked in ("{}%", "\u20ac{}"):
        path.write_text(
            "Date,share\n" + "".join(f"{d},{(marked if k else '$5').format(k)}\n" for k, d in enumerate(days))
        )
        with pytest.raises(DataError, match=rf"a\.csv:3: column 'share': '{marked.format(1)}' is in another unit than"):
            read(path)
    path.write_text("Date,share\n" + "".join(f"{day},{k}{'%' if k else ''}\n" for k, day in enumerate(days)))
    with pytest.raises(DataError, match=r"a\.csv:3: column 'share': '1%' is in another unit than the numbers above"):
        read(path)
    path.write_text("Date,share\n" + "".join(f"{day},{k}e300\n" for k, day in enumerate(days)))
    with pytest.raises(DataError, match=r"a\.csv:3: column 'share': expected a number, got 1e\+300"):
        read(path)


def test_units_and_text_around_the_values(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.csv", "".join(f"2024-01-{day:02},{day},2.5\n" for day in range(1, 9))
    path.write_text(f"date,flow,level\n,m3/s,m\n{rows}\nSource: the river\nread in 2024\n")
    flow, level = read_series(path, Schema(), Notes())
    assert (flow.values[:].tolist(), level.values[:].tolist(), flow.line) == ([*range(1, 9)], [2.5] * 8, 3)
    path.write_text(f"date,flow,level\n{rows}\nSource: the river\n2024-01-09,1,2\n")
    with pytest.raises(DataError, match=r"a\.csv:11: expected 3 columns, as in the first line, got 1"):
        read(path)


def test_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(6, 2))
    assert [each.values[:].tolist() for each in read_series(tmp_path / "a.npy")] == [
        [*range(0, 12, 2)],
        [*range(1, 12, 2)],
    ]
    assert rank(str(tmp_path / "a.npy"))[0].task == "forecasting"
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4)))
    with pytest.raises(
        DataError, match=r"a\.npy: expected numbers of shape \(L,\) or \(L, C\), got float64 \(2, 3, 4\)"
    ):
        read(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    with pytest.raises(DataError, match=r"a\.npy"):
        read_series(tmp_path / "a.npy")


def test_a_column_of_years(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Year,load\n" + "".join(f"{1950 + k},{k}\n" for k in range(60)))
    series, _ = read(tmp_path / "a.csv")
    assert (series.start, len(series), series.name) == (1950, 60, "load")


def test_alternating_rows_of_two_series_without_time_stamps(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("shop,sales\n" + "".join(f"A,{k}.0\nB,{10 + k}.0\n" for k in range(8)))
    first, second = read_series(path, Schema(series="shop"), Notes())
    for series, name, start in ((first, "A", 0), (second, "B", 10)):
        assert (series.name, series.start, series.values[:].tolist()) == (name, 0, [start + k for k in range(8)])
