"""Labelled texts and series are read from each format; errors name the file, the line and the remedy."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data import labelled as files
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.labelled_series import READERS, find_targets
from glassgate.tasks.errors import DataError, OptionError
from tests.tasks.data.test_files_as_they_are import Notes

TS = "# a comment\n@problemName p\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n7,?:8,9:b\n"


def read(path: Path, **options: Any) -> list[Labelled]:
    return list(files.Reader(path, **options))


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'label,text\ngood,"fine, ""really"""\nbad,foul\n'),
        ("a.tsv", 'text\tlabel\nfine, "really"\tgood\nfoul\tbad\n'),
        ("a.jsonl", '{"text": "fine, \\"really\\"", "label": "good"}\n\n{"text": "foul", "label": "bad"}\n'),
    ],
)
def test_texts(tmp_path: Path, name: str, content: str) -> None:
    examples = read(write(tmp_path / name, content))
    assert [(each.content, each.label) for each in examples] == [('fine, "really"', "good"), ("foul", "bad")]
    assert [each.label for each in read(tmp_path / name, labelled=False)] == [None, None]


def test_columns_by_number_and_lines_that_quotes_join(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'good,"two\nlines"\nbad,one\n')
    examples = read(path, text_column="2", label_column="1")
    assert [(each.content, each.label, each.line) for each in examples] == [
        ("two\nlines", "good", 2),
        ("one", "bad", 3),
    ]


def test_numbers_of_columns_are_no_names(tmp_path: Path) -> None:
    """A first row that contains the number of a column is not a header because of it."""
    path = tmp_path / "a.tsv"
    path.write_text("good\t2\ta fine day\nbad\t4\ta foul day\n")
    examples = list(files.Reader(path, "tsv", "3", "1"))
    assert [(each.content, each.label) for each in examples] == [("a fine day", "good"), ("a foul day", "bad")]
    path.write_text("good\t3\ta fine day\nbad\t1\ta foul day\n")
    assert len(list(files.Reader(path, "tsv", "3", "1"))) == 2


def test_series(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ts", TS)
    one, other = read(path, missing="drop")
    assert one.content.tolist() == [[1, 4], [2, 5], [3, 6]]  # type: ignore[union-attr]
    assert (one.label, other.label, other.content.tolist()) == ("a", "b", [[7, 8]])  # type: ignore[union-attr]
    assert read(path, missing="interpolate")[1].content.tolist() == [[7, 8], [7, 9]]  # type: ignore[union-attr]
    with pytest.raises(
        DataError,
        match=r"a\.ts:6: missing values \(NaN\): 1, the first in step 2 of channel 1; fill them, or choose --missing",
    ):
        read(path)


def test_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6.0).reshape(2, 3), y=np.array([1, 0]), lengths=np.array([3, 2]))
    examples = read(tmp_path / "a.npz")
    assert [(each.content.ravel().tolist(), each.label) for each in examples] == [  # type: ignore[union-attr]
        ([0, 1, 2], "1"),
        ([3, 4], "0"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "words,label\n1,y\n2,y\n",
            r"a\.csv:1: expected a column 'text', got 'words', 'label'; name yours with --text-",
        ),
        (
            "a.csv",
            "text,label\nx,y\na,b,c\n",
            r"a\.csv:3: expected 2 columns, as in the first line, got 3; correct the line",
        ),
        ("a.csv", "text,label\n ,y\n", r"a\.csv:2: the text is empty; remove the row"),
        ("a.csv", "text,label\nx,\n", r"a\.csv:2: the label is empty"),
        ("a.csv", 'text,label\n"x,y\n', r"a\.csv:2: expected CSV, but it does not parse: .*; check the quotes"),
        ("a.csv", "text,label\n", r"a\.csv: the file holds no example"),
        (
            "a.jsonl",
            '{"text": "x", "label": "y"}\n{"text": "x"}\n',
            r"a\.jsonl:2: the label is empty; remove the row, give it a label",
        ),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: expected a key 'text', got '1'; name yours"),
        (
            "a.jsonl",
            '{"text"\n',
            r"a\.jsonl:1: expected a JSON object in one line, but the line does not parse: .*; correct the line",
        ),
        ("a.jsonl", '{"text": 3, "label": 1}\n', r"a\.jsonl:1: expected a string under 'text', got int; quote it"),
        (
            "a.ts",
            "@data\n1,x:a\n",
            r"a\.ts:2: expected numbers, got: .*; correct it, or write \? for a missing one",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1:2,3:a\n",
            r"a\.ts:3: expected channels of one length, got 1, 2 values; fill up with \?",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2,inf:a\n",
            r"a\.ts:3: expected numbers, got infinity in step 3 of channel 1; correct it",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1:b\n",
            r"a\.ts:3: expected one of the labels of @classLabel, a, got 'b'; correct it",
        ),
        ("a.ts", "@timeStamps true\n@data\n", r"a\.ts:1: expected only values, got time stamps"),
        ("a.ts", "1,2:a\n", r"a\.ts:1: expected a tag such as @classLabel or @data"),
        ("a.ts", "@classLabel true a\n", r"a\.ts: expected a line @data and the series after it"),
    ],
)
def test_faults(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, content))


def test_faults_of_series(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ts", "@classLabel true a\n@data\n?,?:a\n")
    with pytest.raises(DataError, match=r"a\.ts:3: the series is empty; remove it"):
        read(path, missing="drop")
    with pytest.raises(DataError, match="channel 1 has no value to interpolate from; remove the series"):
        read(path, missing="interpolate")
    np.savez(tmp_path / "a.npz", z=np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npz: expected x, numbers of shape .*, got z float64 \(3,\)"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    with pytest.raises(DataError, match=r"b\.npz: expected y of shape \(3,\), one per series of x, got \(2,\)"):
        read(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", x=np.array([[1, 2], [3, np.nan]]))
    with pytest.raises(DataError, match=r"c\.npz, series 2: missing values \(NaN\): 1, the first in step 2"):
        read(tmp_path / "c.npz")


def test_impossible_formats(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"a\.odd: cannot detect the format by the suffix '\.odd'; known are \.csv"):
        read(write(tmp_path / "a.odd", "x"))
    with pytest.raises(OptionError, match="plain text has no labels; give CSV, TSV or JSON lines"):
        read(write(tmp_path / "a.txt", "x"))
    with pytest.raises(
        DataError,
        match=f"{re.escape(str(tmp_path))}: expected a file, or a folder with a folder of text files for each class",
    ):
        read(tmp_path)


def test_links_out_of_a_folder_are_skipped_with_a_note(tmp_path: Path) -> None:
    root, secret = tmp_path / "data", tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("private")
    for name in ("good", "bad"):
        (root / name).mkdir(parents=True)
        (root / name / "a.txt").write_text(f"a {name} day")
    (root / "good" / "key.txt").symlink_to(secret / "key.txt")
    (root / "bad" / "all").symlink_to(secret)
    (root / "other").symlink_to(secret)
    (root / "good" / "again.txt").symlink_to(root / "bad" / "a.txt")
    for labelled in (True, False):
        notes = Notes()
        examples = Classification(ClassificationOptions()).read(root, labelled, notes)
        assert sorted(" ".join(each.content).strip() for each in examples) == ["a bad day", "a bad day", "a good day"]
        links = 3 if labelled else 2 + 1
        assert f"{root}: {links} symbolic links out of the folder skipped" in " ".join(notes.said)
    for file in root.rglob("a*.txt"):
        file.unlink()
    with pytest.raises(DataError, match="got only symbolic links out of the folder; copy the files"):
        Classification(ClassificationOptions()).read(root)


def test_a_folder_of_series_needs_one_column_of_labels(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"s{k}.csv").write_text("x\n1\n2\n4\n")
    with pytest.raises(DataError, match="expected a table that lists the files with their labels; add one"):
        list(READERS["series-folder"](tmp_path, "label", True))
    (tmp_path / "index.csv").write_text("file,left,right\n" + "".join(f"s{k},a,b\n" for k in range(3)))
    with pytest.raises(DataError, match="expected one column of labels, got 'left', 'right'; name it with --label-col"):
        find_targets(tmp_path)
    assert [label for *_, label in READERS["series-folder"](tmp_path, "right", True)] == ["b"] * 3
