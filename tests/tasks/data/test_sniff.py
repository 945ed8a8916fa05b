"""A file is examined with the dialect and the header with which it is read."""

from pathlib import Path

import pytest

from glassgate.tasks.data.kinds import NUMBER
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.forecasting.series import Table


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("Sales, by month\n\nmonth;sales\n" + "2024-01;3\n" * 8, ["month", "sales"]),  # a title
        ("sep=|\nday|sales\n" + "1|3,5\n" * 8, ["day", "sales"]),
        ('city, "sales"\n' + 'Paris, "3"\n' * 8, ["city", "sales"]),  # blanks before quotes
        ("1,sales\n2,3.5\n3,4.5\n4,4.1\n", ["1", "sales"]),  # only the second name is not a number
    ],
)
def test_columns_have_the_names_of_the_table(content: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    source = sniff(path)
    assert [column.name for column in source.columns] == names
    assert source.has_header
    assert next(source.rows(1))[1] == [column.values[0] for column in source.columns]
    assert Table(path).names == names
    assert source.columns[1].kind == NUMBER


def test_rows_without_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,3.5\n2,4.5\n3,4.1\n")
    assert not sniff(path).has_header
    assert not Table(path).has_header
