"""Texts that contain the separator without quotes are never cut: reading them names the line and the remedy."""

import re
from pathlib import Path

import pytest

from glassgate.tasks.data.labelled import Reader
from glassgate.tasks.data.pairs import read_pairs
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.errors import DataError

COUNTS = {  # the number of separators in the text of each row
    "one in each": [1] * 40,
    "two in each": [2] * 40,
    "two in most": [2] * 39 + [3],
    "none to three": [k % 4 for k in range(40)],
    "one in one row": [0] * 17 + [1] + [0] * 22,
    "three in one row": [0] * 17 + [3] + [0] * 22,
}


def text(k: int, count: int, separator: str = ",") -> str:
    return f"the film {k}" + f"{separator} part of it" * count


def table(counts: list[int], header: list[str], separator: str = ",", labels: tuple[str, str] = ("pos", "neg")) -> str:
    """A table with the columns of the header: a text, a label and possibly an id."""
    rows = (
        {"text": text(k, count, separator), "label": labels[k // 2 % 2], "id": str(k)} for k, count in enumerate(counts)
    )
    lines = [header, *([row[name] for name in header] for row in rows)]
    return "".join(separator.join(cells) + "\n" for cells in lines)


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("header", ["text,label", "label,text", "id,text,label", "id,label,text"])
@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("labels", [("pos", "neg"), ("0", "1")])
def test_texts_without_quotes(
    counts: str, header: str, separator: str, labels: tuple[str, str], tmp_path: Path
) -> None:
    names, path = header.split(","), tmp_path / "a.csv"
    path.write_text(table(COUNTS[counts], names, separator, labels))
    first = next(k for k, count in enumerate(COUNTS[counts]) if count)
    got = len(names) + COUNTS[counts][first]
    expected = f"a.csv:{first + 2}: expected {len(names)} columns, as in the first line, got {got}; correct the line, "
    with pytest.raises(DataError, match=re.escape(f"{expected}or put quotes around a cell with '{separator}' in it")):
        list(Reader(path))


@pytest.mark.parametrize(("counts", "line"), [([0, 0, 1, 2] * 9, 4), ([1] * 36, 2)])
def test_unusual_names_hide_no_separator(counts: list[int], line: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(counts, ["text", "label"]).replace("text,label", "Satz,Note", 1))
    with pytest.raises(DataError, match=rf"a\.csv:{line}: expected 2 columns, .* put quotes around"):
        list(Reader(tmp_path / "a.csv"))


@pytest.mark.parametrize("sides", ["source,target", "en,de"])
def test_pairs_without_quotes(sides: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{sides}\n" + "".join(f"{text(k, 1)},der {text(k, 1)}\n" for k in range(40)))
    with pytest.raises(DataError, match=r"a\.csv:2: expected 2 columns, .* got 4; .* put quotes around"):
        read_pairs(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("Films of May,2024\ntext,label,id,user\n" + "a fine film,good,3,u1\na bad film,bad,4,u2\n" * 9, 4),
        ("Measured in Rome\n" + "".join(f"2024-01-{k + 1:02},{k}.5,{k % 3}\n" for k in range(28)), 3),
        ("mpg\tcyl\n" + "".join(f"Mazda RX{k}\t{k}.5\t{k % 3}\n" for k in range(28)), 3),  # names of rows
        ("height,cyl\n" + "".join(f"{k + 1},{k}.5,{k % 3}\n" for k in range(28)), 3),
    ],
)
def test_titles_and_names_of_rows_are_recognised(content: str, names: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    source = sniff(tmp_path / "a.csv")
    assert len(source.columns) == len(source.header) == names
    assert len([cells for _, cells in source.rows()]) == len(source.columns[0].values) + source.has_header


def test_a_label_that_is_a_usual_name_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a fine film,pos\na bad film,neg\n" * 9)
    assert [example.label for example in Reader(tmp_path / "a.csv")] == ["pos", "neg"] * 9
