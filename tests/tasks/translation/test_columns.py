"""The columns of the sides of pairs: named by options, found by their content, or asked for."""

import csv
import json
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.errors import UserError
from glassgate.tasks.translation import Translation, TranslationOptions

ROWS = [(f"the dog {k} is old", f"der Hund {k} ist alt", f"a remark on row {k}") for k in range(40)]
NAMES = ("Frage", "Antwort", "Notiz")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three texts in each row, none of whose names is that of a side."""
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *ROWS])
    return tmp_path / "a.csv"


def read(path: Path, labelled: bool = True, **options: object) -> list[tuple[str, str | None]]:
    task = Translation(TranslationOptions.from_mapping({"data": str(path), **options}))
    task.follow(task.examine(path))
    return [(pair.source, pair.target) for pair in task.read(path, labelled)]


def test_options_name_the_columns(table: Path) -> None:
    pairs = [(answer, question) for question, answer, _ in ROWS]
    assert read(table, source_column="Antwort", target_column="Frage") == pairs
    assert read(table, source_column="2", target_column="1") == pairs
    assert read(table, labelled=False, source_column="Antwort", target_column="Frage") == [(a, None) for a, _ in pairs]
    with pytest.raises(UserError, match="expected a column 'Anwort', got 'Frage', 'Antwort', 'Notiz'; name yours with"):
        read(table, source_column="Anwort")
    assert read(table, source_column="Antwort", target_column="Frage", reverse=True) == pairs


def test_several_texts_are_a_question(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(table)]) == 2
    question = "the sources can be in column 'Frage' or 'Antwort' or 'Notiz'; choose one with --source-column"
    assert question in capsys.readouterr().err
    assert main(["look", str(table), "--source-column", "Frage"]) == 2
    assert "the translations can be in column 'Antwort' or 'Notiz'" in capsys.readouterr().err
    assert main(["look", str(table), "--source-column", "Frage", "--target-column", "Antwort"]) == 0
    assert f"{ROWS[0][0]}\t{ROWS[0][1]}" in capsys.readouterr().out


SIDES = [{"id": f"x{k}", "de": german, "en": english} for k, (english, german, _) in enumerate(ROWS)]
UNREAD: dict[str, tuple[str, str]] = {  # the name and the content of a file that a run without columns translates
    "one key": ("b.jsonl", "".join(f"{json.dumps({'id': k, 'text': row[0]})}\n" for k, row in enumerate(ROWS))),
    "two sides": ("b.jsonl", "".join(f"{json.dumps({'en': row[0], 'de': row[1]})}\n" for row in ROWS)),
    "a list": ("b.json", json.dumps([{"sentence": row[0], "label": "a"} for row in ROWS])),
    "a column": ("b.csv", "text\n" + "".join(f"{row[0]}\n" for row in ROWS)),
    "an index and a column": ("b.csv", "Nr,Satz\n" + "".join(f"{k},{row[0]}\n" for k, row in enumerate(ROWS))),
    "lines": ("b.txt", "".join(f"{row[0]}\n" for row in ROWS)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_run_without_columns_reads_data_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / UNREAD[name][0]
    path.write_text(UNREAD[name][1])
    assert [pair.source for pair in Translation(TranslationOptions()).read(path, labelled=False)] == [
        row[0] for row in ROWS
    ]


def test_a_run_without_columns_asks_for_the_sources(table: Path) -> None:
    with pytest.raises(UserError, match="the sources can be in column 'Frage' or 'Antwort' or 'Notiz'; choose one"):
        Translation(TranslationOptions()).read(table, labelled=False)


def test_a_reversed_run_translates_the_second_of_two_sides(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in SIDES))
    pairs = Translation(TranslationOptions(reverse=True)).read(tmp_path / "b.jsonl", labelled=False)
    assert pairs[0] == Pair(ROWS[0][0], None, f"{tmp_path}/b.jsonl", 1)
