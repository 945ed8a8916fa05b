"""`--encoding` sets the encoding of every file that a command reads; a run stores it; notes name it if not UTF-8."""

from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.tagging import Tagging, TaggingOptions

ROWS = [("schöne Grüße", "gut"), ("böse Flüche", "schlecht"), ("größere Übel", "schlecht"), ("süße Äpfel", "gut")]
SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "least_count": 1, "held_out": 0.0, "baselines": False}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS * 3), encoding="mac_roman")
    return path


@pytest.fixture
def run(table: Path, tmp_path: Path) -> Path:
    task = Classification(ClassificationOptions(data=str(table), encoding="mac-roman", **SMALL))
    task.fit(run=tmp_path / "run")
    assert "schöne" in task.vocabularies["units"]
    return tmp_path / "run"


def test_a_run_reads_files_in_its_encoding_or_in_a_given_one(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = Classification.load(run)
    assert loaded.options.encoding == "mac-roman"
    assert list(loaded.read(table)[0].content) == ["schöne", "Grüße"]
    other = tmp_path / "other.txt"
    other.write_text("schöne Grüße\n", encoding="utf-16")
    for command, note in (
        (["predict", run, other, "--json", "--encoding", "utf-16"], "texts, encoding UTF-16"),
        (["evaluate", run, table], "encoding mac_roman"),
    ):
        assert main(list(map(str, command))) == 0
        out, err = capsys.readouterr()
        assert note in err
        assert "schöne Grüße" in out or command[0] == "evaluate"
    utf8 = tmp_path / "utf8.txt"
    utf8.write_text("schöne Grüße\n", encoding="utf-8")
    assert main(["predict", str(run), str(utf8), "--json", "--encoding", "utf-8"]) == 0
    out, err = capsys.readouterr()
    assert "schöne Grüße" in out
    assert "encoding" not in err


def test_look_reads_in_the_encoding_and_advises_it(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(table), "--encoding", "mac-roman"]) == 0
    out = capsys.readouterr().out
    assert "schöne Grüße" in out
    assert f"train classification --data {table} --encoding mac-roman" in out
    assert main(["look", str(table), "--encoding", "rot13"]) == 2
    assert "encoding: expected a text encoding of Python" in capsys.readouterr().err


def test_wrong_encodings_are_refused(table: Path) -> None:
    with pytest.raises(DataError, match="expected text in the encoding utf-8, got bytes that are invalid in it; name"):
        Classification(ClassificationOptions(encoding="utf-8")).read(table)
    for wrong in ("no-such", "rot13", "a\0b"):
        with pytest.raises(OptionError, match="encoding: expected a text encoding of Python, such as utf-8, cp1252"):
            TaggingOptions(encoding=wrong)


def test_tagging_reports_the_encoding_of_input_without_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, text = tmp_path / "train.tsv", tmp_path / "text.txt"
    train.write_text("Müller\tN\ngeht\tV\n\nÄpfel\tN\nfallen\tV\n\n" * 4, encoding="cp1252")
    text.write_text("Müller geht\n", encoding="cp1252")
    options = {name: value for name, value in SMALL.items() if name != "held_out"}
    task = Tagging(TaggingOptions(data=str(train), encoding="cp1252", **options, held_out=0.0))
    task.fit(run=tmp_path / "run")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(text)]) == 0
    out, err = capsys.readouterr()
    assert "Müller" in out
    assert "text, encoding cp1252" in err
