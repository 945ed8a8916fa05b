"""Wide and long tables give the same series; errors name the file and the line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from glassgate.tasks.data import store
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.forecasting.series import Schema, Series, read_series

HOURS = [f"2024-02-28 {hour:02}:00" for hour in range(24)] + [f"2024-02-29 {hour:02}:00" for hour in range(6)]


def wide(count: int = 30) -> dict[str, list[Any]]:
    return {"date": HOURS[:count], "a": list(range(count)), "b": [10.5 * k for k in range(count)]}


def long(count: int = 30) -> dict[str, list[Any]]:
    """Return the same data as a long table, in which the rows of the two series alternate."""
    columns = wide(count)
    return {
        "unique_id": ["a", "b"] * count,
        "ds": [time for time in columns["date"] for _ in range(2)],
        "y": [columns[name][k] for k in range(count) for name in "ab"],
    }


def csv(path: Path, columns: dict[str, list[Any]], separator: str = ",") -> Path:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return path


def content(series: list[Series]) -> list[Any]:
    return [(each.name, str(each.start), str(each.frequency), each.values[:].tolist()) for each in series]


@pytest.mark.parametrize("large", [False, True])
def test_all_forms_of_a_table_hold_the_same_series(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LARGE", 10 if large else 2**26)
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    series = read_series(csv(tmp_path / "wide.csv", wide()))
    assert content(series)[1] == ("b", "2024-02-28T00:00:00.000000", "1 hour", [10.5 * k for k in range(30)])
    assert bool(series[0].digest) == large
    parquet.write_table(pa.table(long()), tmp_path / "long.parquet")
    others: list[Any] = [
        csv(tmp_path / "long.csv", long()),
        csv(tmp_path / "semicolons.csv", wide(), ";"),
        csv(tmp_path / "long.tsv", long(), "\t"),
        tmp_path / "long.parquet",
        pa.table(wide()),
    ]
    for each in others:
        assert content(read_series(each)) == content(series), each
    part = read_series(others[0])[1].part(20, 25)
    assert str(part.start) == "2024-02-28T20:00:00.000000"
    assert part.values[:].tolist() == [210.0, 220.5, 231.0, 241.5, 252.0]


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2024-01-31", periods=30, freq="ME")
    frame = pandas.DataFrame({"unique_id": "shop", "ds": times, "y": range(30)})
    (series,) = read_series(frame)
    assert (series.name, str(series.frequency), series.frequency.season) == ("shop", "1 month", 12)
    assert series.times(29, 32).astype("datetime64[D]").astype(str).tolist() == [
        "2026-06-30",
        "2026-07-31",
        "2026-08-31",
    ]
    indexed = frame.set_index("ds")[["y"]]
    for each in (indexed, indexed.to_period("M").rename_axis("ds")):
        assert read_series(each)[0].values[:].tolist() == series.values[:].tolist()
    assert content(read_series(frame.set_index(["unique_id", "ds"]))) == content([series])
    (numbered,) = read_series(frame[["y"]].set_axis(pandas.RangeIndex(100, 160, 2)))
    assert numbered.times(29, 32).tolist() == [158, 160, 162]
    (unnamed,) = read_series(frame.set_index("ds")["y"].rename(None))
    assert (unnamed.name, unnamed.values[:].tolist()) == ("0", series.values[:].tolist())


def test_a_column_of_times_next_to_an_index() -> None:
    """A part of a frame has an index that does not start at 0. Its column of times, by any usual name, is used."""
    pandas = pytest.importorskip("pandas")
    for name in ("time", "ds"):
        frame = pandas.DataFrame({"y": range(30), name: pandas.date_range("2024-01-01", periods=30)})
        part = content(read_series(frame[10:].reset_index(drop=True)))
        assert content(read_series(frame[10:])) == part
        assert content(read_series(frame[10:].set_index(name, drop=False))) == part
        assert (
            content(read_series(frame[10:].set_index(frame[name][10:].to_numpy()).rename(columns={"ds": "time"})))
            == part
        )


@pytest.mark.parametrize(
    ("stamps", "said", "after"),
    [
        (["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01"], "1 day", "2024-03-02"),
        (["2024-03-07", "2024-03-08", "2024-03-11", "2024-03-12"], "1 weekday", "2024-03-13"),
        (["2023-10", "2023-11", "2023-12", "2024-01"], "1 month", "2024-02"),
        (["2023-03-31", "2023-06-30", "2023-09-30", "2023-12-31"], "3 months", "2024-03-31"),
        ([f"2024/01/01 10:{k}" for k in ("00", "15", "30", "45")], "15 minutes", "2024/01/01 11:00"),
        ([f"2024-01-01T10:00:0{k}Z" for k in range(4)], "1 second", "2024-01-01T10:00:04Z"),
        (["1949", "1951", "1953", "1955"], "2 steps", "1957"),
    ],
)  # fmt: skip
def test_frequencies_are_detected(stamps: list[str], said: str, after: str, tmp_path: Path) -> None:
    (series,) = read_series(csv(tmp_path / "a.csv", {"time": stamps, "value": [1, 2, 4, 8]}))
    assert str(series.frequency) == said
    assert series.frequency.text(series.times(4, 5)[0]) == after


def broken(path: Path, line: int, text: str) -> Path:
    """Return a wide table with one line replaced; an empty replacement removes it."""
    lines = csv(path, wide()).read_text().splitlines()
    lines[line - 1 : line] = [text] if text else []
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (7, "", r"a\.csv:7: 1 step is missing before 2024-02-28 06:00:00, .* in line 6; add"),
        (7, f"{HOURS[4]},1,2", r"a\.csv:7: the time stamp .* 04:00:00 is in line 6, too; remove one of"),
        (7, f"{HOURS[1]},1,2", r"a\.csv:7: the time stamp .* 01:00:00 comes after .* 04:00:00 in line 6; sort the"),
        (7, "2024-02-28 05:10,1,2", r"a\.csv:7: the time stamp .* 05:10:00 is not a whole number of steps of 1 hour"),
        (7, "Thursday,1,2", r"a\.csv:7: column 'date': expected a time stamp such as .*, got 'Thursday'; correct it"),
        (7, f"{HOURS[5]},warm,2", r"a\.csv:7: column 'a': expected a number, got 'warm'; correct it, or name"),
        (7, f"{HOURS[5]},inf,2", r"a\.csv:7: column 'a': expected a number, got infinity"),
        (7, f"{HOURS[5]},,2", r"a\.csv:7: column 'a' lacks a value; fill it in, or repeat .* --missing last"),
        (2, f"{HOURS[0]},NaN,2", r"a\.csv:2: column 'a' lacks a value"),
        (31, f"{HOURS[29]},1,NaN", r"a\.csv:31: column 'b' lacks a value; .* known ahead need --known"),
        (2, f"{HOURS[0]},1,2,3", r"a\.csv:2: expected 3 columns, as in the first line, got 4; correct the line"),
        (7, f"{HOURS[5]},1,2,3", r"a\.csv:7: expected 3 columns, as in the first line, got 4; correct the line"),
        (7, f"{HOURS[5]},1", r"a\.csv:7: expected 3 columns, as in the first line, got 2; correct the line"),
    ],
)  # fmt: skip
def test_errors_name_the_line(line: int, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_series(broken(tmp_path / "a.csv", line, text))


def test_missing_and_non_numeric_columns(tmp_path: Path) -> None:
    table = csv(tmp_path / "a.csv", wide() | {"town": ["Ulm"] * 30})
    with pytest.raises(DataError, match=r"a\.csv:2: column 'town': expected a number, got 'Ulm'; .* with --target"):
        read_series(table)
    with pytest.raises(DataError, match=r"a\.csv: no column 'c'; there are 'date', 'a', 'b', 'town'; name .* --target"):
        read_series(table, Schema(("c",)))
    with pytest.raises(OptionError, match="target: 'a' holds the time stamps, the names of series or a cov"):
        read_series(table, Schema(("a",), past=("a",)))
    with pytest.raises(
        OptionError, match=r"series as \.csv, \.tsv, .*, \.xlsx, \.parquet or \.npy, got the suffix '\.npz'"
    ):
        read_series(tmp_path / "a.npz")
    (tmp_path / "empty.csv").write_text("date,a\n")
    with pytest.raises(DataError, match=r"empty\.csv: the file holds no row of data"):
        read_series(tmp_path / "empty.csv")


def test_gaps_take_the_previous_value(tmp_path: Path) -> None:
    columns = wide(8)
    columns["a"] = ["", 1, "", 3, 4, 5, "", ""]
    for name in columns:
        del columns[name][4]
    series = read_series(csv(tmp_path / "a.csv", columns), Schema(missing="last"))
    assert series[0].values[:].tolist() == [1, 1, 3, 3, 5]
    assert str(series[0].start) == "2024-02-28T01:00:00.000000"
    assert series[1].values[:].tolist() == [0, 10.5, 21, 31.5, 31.5, 52.5, 63, 73.5]


def test_future_covariates_are_in_rows_without_a_target(tmp_path: Path) -> None:
    columns = wide(10) | {"holiday": [0] * 9 + [1], "town": ["Ulm"] * 10}
    columns["a"][7:] = ["", "", ""]
    layout = Schema(("a",), known=("holiday",), static=("town",))
    (series,) = read_series(csv(tmp_path / "a.csv", columns), layout)
    assert (len(series), series.ahead, series.static) == (7, 3, ("Ulm",))
    assert series.known[0][:].tolist() == [0.0] * 9 + [1.0]
    assert series.part(2, 7).ahead == 3
    assert np.isnan(series.values[:]).sum() == 0
