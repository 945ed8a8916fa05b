"""Every word of standard input is predicted, or a note lists the columns that are read."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassgate.tasks import task_class
from glassgate.tasks.data.files import STDIN
from tests.tasks.data.test_files_as_they_are import Notes

Read = Callable[[Any, str], tuple[list[list[str]], str]]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that reads a text from standard input without labels: its words, and the notes."""

    def read(task: Any, text: str) -> tuple[list[list[str]], str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        notes = Notes()
        examples = task.read(STDIN, labelled=False, progress=notes)
        contents = [next(filter(None, (getattr(each, name, None) for name in FIELDS))) for each in examples]
        words = [each.split() if isinstance(each, str) else list(each) for each in contents]
        return words, " ".join(notes.said)

    return read


FIELDS = ("tokens", "content", "source")


@pytest.fixture(scope="module")
def taggers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A task with the vocabularies of training data, for each format of this data; its labels are D, N and B-PER."""
    path = tmp_path_factory.mktemp("data") / "train.conll"
    path.write_text("The D\ncat N\n\nBo B-PER\n\n" * 3)
    made = {}
    for format in ("auto", "columns", "tsv"):
        kind = task_class("tagging")
        file = path if format != "tsv" else path.with_suffix(".tsv")
        file.write_text(path.read_text().replace(" ", "\t" if format == "tsv" else " "))
        task = made[format] = kind(kind.options_type.from_mapping({"data": str(file), "format": format}))
        task.vocabularies = task.collect(task.read(file))
    return made


@pytest.mark.parametrize("format", ["auto", "columns", "tsv"])
@pytest.mark.parametrize(
    "text",
    [
        "The cat\tsat down",
        "The\tcat\n",
        "The\tcat\nThe\tdog\n\nBo\tsat\n",
        "Bo\t\tsat",
        "a b c\nd e f\n",
        "# no comment\nThe cat\tsat\n",
        "\tThe cat",
        "The cat sat\n# 1 2\n",
    ],
)
def test_a_tab_in_text_is_white_space(format: str, text: str, taggers: dict[str, Any], typed: Read) -> None:
    sequences, note = typed(taggers[format], text)
    assert sequences == [line.split() for line in text.splitlines() if line.split()]
    assert "not read" not in note


@pytest.mark.parametrize(("format", "blank"), [("auto", "\t"), ("columns", " "), ("columns", "\t"), ("tsv", "\t")])
def test_columns_are_read_as_in_training_and_a_note_names_them(
    format: str, blank: str, taggers: dict[str, Any], typed: Read
) -> None:
    sequences, note = typed(taggers[format], "The D\ncat N\n\nBo I-PER\n".replace(" ", blank))
    assert sequences == [["The", "cat"], ["Bo"]]
    assert note == "standard input: words in column 1; the other columns are not read"


def test_translation(typed: Read) -> None:
    kind = task_class("translation")
    task = kind(kind.options_type())
    assert typed(task, "Hello\tworld\n") == ([["Hello", "world"]], "")
    assert typed(task, "Hello\tworld\nGood day\n") == ([["Hello", "world"], ["Good", "day"]], "")
    note = "standard input: sources in column 1; the other columns are not translated"
    assert typed(task, "Hello\tHallo\nOne\tEins\tno. 2\n") == ([["Hello"], ["One"]], note)


def test_tables_of_texts(typed: Read, tmp_path: Path) -> None:
    kind = task_class("classification")
    assert typed(kind(kind.options_type()), "good\tfood, text\n") == ([["good", "food", ",", "text"]], "")
    note = "standard input: texts in column 'text', separated by commas; the other columns are not read"
    assert typed(kind(kind.options_type()), "text,more\ngood,food\n") == ([["good"]], note)
    task = kind(kind.options_type.from_mapping({"format": "tsv", "text_column": "1", "label_column": "2"}))
    words, note = typed(task, "good\tfood\n")
    assert words == [["good"]]
    assert note.endswith("the other columns are not read")
    note = "standard input: format fasttext; the other columns are not read"
    assert typed(kind(kind.options_type()), "__label__a good food\n") == ([["good", "food"]], note)
