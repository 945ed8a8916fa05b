"""Common files are read without conversion; an ambiguous one raises an error that asks for an option."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from glassgate.cli import main
from glassgate.cli.readings import rank
from glassgate.tasks import task_class
from glassgate.tasks.data.lines import detect_encoding, read_lines
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

ROWS = [("a fine day", "good"), ("a foul day", "bad"), ("so fine, so good", "good"), ("no good", "bad")]
CHINESE = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\n\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\u3002\n"
TRADITIONAL = "\u4eca\u5929\u5929\u6c23\u5f88\u597d\u3002\n\u6211\u5011\u53bb\u516c\u5712\u6563\u6b65\u3002\n"
JAPANESE = (
    "\u4eca\u65e5\u306f\u3044\u3044\u5929\u6c17\u3067\u3059\u306d\u3002\n\u79c1\u306f\u5b66\u751f\u3067\u3059\u3002\n"
)
GERMAN = "Die Stra\u00dfe ist sch\u00f6n \u2013 \u201eja\u201c.\nM\u00fcller zahlt f\u00fcnf \u20ac.\n"


class Notes(Progress):
    """Stores all notes."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def read(task: str, path: Path, **options: Any) -> tuple[list[Any], str]:
    kind, notes = task_class(task), Notes()
    made = kind(kind.options_type.from_mapping({"data": str(path)} | options))
    return [*made.read(path, progress=notes)], " ".join(notes.said)


def texts(path: Path, **options: Any) -> tuple[list[tuple[str, str]], str]:
    examples, said = read("classification", path, tokens="token", **options)
    both = [(" ".join(each.content).strip(), each.label) for each in examples]
    return both, said


@pytest.mark.parametrize(
    ("text", "encoding", "reported"),
    [
        (CHINESE, "gbk", "GBK"),
        (CHINESE, "gb18030", "GBK"),
        (TRADITIONAL, "big5", "Big5"),
        (JAPANESE, "shift_jis", "Shift-JIS"),
        (JAPANESE, "euc_jp", "EUC-JP"),
        (GERMAN, "cp1252", "cp1252"),
    ],
)
def test_encodings(text: str, encoding: str, reported: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    examples, said = read("language-model", path)
    assert "".join(examples[0].tokens) == text
    assert said == f"{path}: text, encoding {reported}"


def test_utf_8_is_never_read_as_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("plain\n" * 300_000 + CHINESE, encoding="utf-8")
    assert detect_encoding(path) == "utf_8"
    assert list(read_lines(path))[-1][1] == CHINESE.splitlines()[-1]


def write(folder: Path, kind: str) -> Path:
    """Write the rows as a file of a kind."""
    path = folder / f"a.{kind}"
    keyed = [{"text": text, "label": label} for text, label in ROWS]
    if kind == "json":
        path.write_text(json.dumps(keyed, indent=1))
    elif kind == "xlsx":
        pd.DataFrame(keyed).to_excel(path, index=False)
    elif kind == "folder":
        for number, (text, label) in enumerate(ROWS):
            (path / label).mkdir(parents=True, exist_ok=True)
            (path / label / f"{number}.txt").write_text(text)
    elif kind == "fasttext.txt":
        path.write_text("".join(f"__label__{label} {text}\n" for text, label in ROWS))
    elif kind == "csv.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.csv", "text;label\n" + "".join(f"{text};{label}\n" for text, label in ROWS))
    else:
        path.write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    return path


@pytest.mark.parametrize("kind", ["json", "xlsx", "folder", "fasttext.txt", "csv.zip", "tsv"])
def test_texts_and_labels(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, kind)
    examples, said = texts(path)
    assert sorted(examples) == sorted(ROWS)
    assert said.endswith("; 4 texts, 2 labels")
    assert rank(str(path))[0].task == "classification"
    assert main(["look", str(path)]) == 0
    assert "train on it: glassgate train classification" in capsys.readouterr().out


def test_an_ambiguous_table_without_a_header_needs_an_option(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("yes,good\nno,bad\nyes,good\nno,bad\n")
    with pytest.raises(
        DataError, match=r"the labels can be in column '1' or '2', such as .*; choose one with --label-column, by num"
    ):
        texts(path)
    assert texts(path, text_column="1", label_column="2")[0][0] == ("yes", "good")
    path.write_text("".join(f"{label},{text.replace(',', '')}\n" for text, label in ROWS))
    assert texts(path)[0][0] == ("a fine day", "good")
    assert "no header" in texts(path)[1]


def test_missing_texts_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfine,good\n,bad\nfoul,bad\nso so,\n")
    with pytest.raises(
        DataError, match=r"a\.csv:3: the text is empty; remove the row, give it a text, or choose --miss"
    ):
        texts(path)
    examples, said = texts(path, missing="drop")
    assert examples == [("fine", "good"), ("foul", "bad")]
    assert said.endswith("2 rows without text or label dropped")
    (tmp_path / "a.jsonl").write_text('{"text": null, "label": "a"}\n{"text": "x", "label": "b"}\n')
    assert texts(tmp_path / "a.jsonl", missing="drop")[0] == [("x", "b")]


def test_line_breaks_in_quotes_of_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"a fine\nday"\tgood\nfoul\tbad\n')
    assert texts(path)[0] == [("a fine \n day", "good"), ("foul", "bad")]
    path.write_text('text\tlabel\n"a" fine day\tgood\nfoul "\tbad\n')
    assert texts(path)[0] == [('"a" fine day', "good"), ('foul "', "bad")]


def test_tokens_in_excel_and_in_a_json_array(tmp_path: Path) -> None:
    frame = pd.DataFrame({"sentence": [1, 1, 2], "word": ["EU", "runs", "no"], "tag": ["B-ORG", "O", "O"]})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    rows = [{"tokens": ["EU", "runs"], "tags": ["B-ORG", "O"]}, {"tokens": ["no"], "tags": ["O"]}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    for name in ("a.xlsx", "a.json"):
        examples, _ = read("tagging", tmp_path / name)
        assert [list(zip(each.tokens, each.labels, strict=True)) for each in examples] == [
            [("EU", "B-ORG"), ("runs", "O")],
            [("no", "O")],
        ]
        assert rank(str(tmp_path / name))[0].task == "tagging"


def test_notes_without_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roll = np.eye(88, dtype=np.uint8)[None, :9]
    savemat = pytest.importorskip("scipy.io").savemat
    cells = np.empty((1, 1), object)
    cells[0, 0] = roll[0]
    savemat(tmp_path / "a.mat", {"traindata": cells})
    np.save(tmp_path / "a.npy", roll)
    np.savez(tmp_path / "a.npz", train=roll)
    (tmp_path / "a.json").write_text(json.dumps({"train": [[[60], [62, 64]]]}))
    for name in ("a.mat", "a.npy", "a.npz", "a.json"):
        (examples,), _ = read("language-model", tmp_path / name)
        assert examples.steps.shape[1] == 88
        assert main(["look", str(tmp_path / name)]) == 0
        assert "88 keys" in capsys.readouterr().out


def test_pairs_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"number {k}\tNummer {k}\n" for k in range(30)))
    assert read("translation", path)[0][1].target == "Nummer 1"
    assert rank(str(path))[0].task == "translation"


def test_look_takes_the_options_of_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("day;load\n" + "".join(f"{k:02}/{1 + k // 13:02}/2024;{k},5\n" for k in range(1, 13)))
    assert main(["look", str(path), "--task=forecasting"]) == 2
    assert "--time-format '%d/%m/%Y' for the first" in capsys.readouterr().err
    words = ["--task=forecasting", "--time-format=%d/%m/%Y", "--horizon=2", "--look-back=2"]
    assert main(["look", str(path), *words]) == 0
    out = capsys.readouterr().out
    assert "12 steps of 1 day, 01/01/2024 to 12/01/2024" in out  # dates as in the file
    assert out.endswith(f"--data {path} --time-format=%d/%m/%Y --horizon=2 --look-back=2\n")
    with pytest.raises(SystemExit):
        main(["look", str(path), "--nonsense=3"])
    assert "unknown option --nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "[1, 2", r"a\.json:1: expected JSON, but it does not parse: .*; correct the file"),
        ("a.json", '{\n"a": 1}', r"a\.json: expected a list of JSON objects, got dict; write one object per row"),
        ("a.xlsx", "none", r"a\.xlsx: expected an Excel workbook, but it does not load"),
        ("a.txt", "__label__a __label__b x\n", r"a\.txt:1: expected one __label__NAME and a text, got 2 labels; corr"),
        ("a.jsonl", '{"text": null, "label": "y"}\n', r"a\.jsonl:1: the text is empty; .* or choose --missing drop"),
        ("a.jsonl", '{"text": "x", "label": null}\n', r"a\.jsonl:1: the label is empty; .* or choose --missing drop"),
        (
            "a.csv",
            "text,topic,sentiment\nx,y,z\n",
            r"a\.csv:1: the labels can be in column 'sentiment' or 'topic'; choose one with --label-column",
        ),
        (
            "a.jsonl",
            '{"review": "x", "tweet": "y", "label": "z"}\n',
            r"a\.jsonl:1: the texts can be in column 'review' or 'tweet'; choose one with --text-column",
        ),
        (
            "a.csv",
            "text,label\na\0b,c\n",
            r"a\.csv: expected text, got bytes of value 0, as in binary files and in",
        ),
    ],
)
def test_messages(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        texts(tmp_path / name)


def test_empty_files_of_a_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, "folder")
    (folder / "good" / "empty.txt").touch()
    with pytest.raises(DataError, match=r"empty\.txt: the text is empty; remove the file, give it a text, or"):
        texts(folder)
    examples, said = texts(folder, missing="drop")
    assert sorted(examples) == sorted(ROWS)
    assert said.endswith("1 row without text or label dropped")


def test_standard_input_has_no_file_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.txt").open("w+") as file:
        file.write("two words here\n" * 3)
        file.seek(0)
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(
            DataError, match="standard input: expected labels, got plain text; name the format of the in"
        ):
            read("tagging", Path("-"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.json", "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)),
        ("array.json", json.dumps({"version": 1, "data": [{"text": text, "label": label} for text, label in ROWS]})),
        ("end.txt", "".join(f"{text} __label__{label}\n" for text, label in ROWS)),
    ],
)
def test_files_that_only_their_content_shows(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert texts(tmp_path / name)[0] == ROWS
    assert rank(str(tmp_path / name))[0].task == "classification"


def test_parts_of_the_data_are_no_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "good").mkdir(parents=True)
        (tmp_path / part / "good" / "1.txt").write_text("fine")
    with pytest.raises(DataError, match="expected a folder for each class, got parts of the data; give one part, such"):
        texts(tmp_path)


def test_an_archive_of_macos(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("a.csv", "text,label\nx,y\nz,w\n")
        archive.writestr("__MACOSX/._a.csv", b"\0\5")
    assert texts(tmp_path / "a.csv.zip")[0] == [("x", "y"), ("z", "w")]


def test_rows_without_text_or_label_of_a_frame() -> None:
    frame = pd.DataFrame({"text": ["a", None, "c"], "label": ["x", "y", None]})
    kind = task_class("classification")
    with pytest.raises(DataError, match="given rows:2: the text is empty"):
        kind(kind.options_type()).split_of(frame)
    dropped = kind(kind.options_type.from_mapping({"missing": "drop"})).split_of(frame)
    assert [([*each.content], each.label) for each in dropped.train] == [(["a"], "x")]


def test_a_table_of_tokens_with_an_unknown_suffix(tmp_path: Path) -> None:
    rows = "".join(f"{k // 3},w{k},{'AB'[k % 2]}\n" for k in range(9))
    (tmp_path / "tokens.data").write_text("sentence,word,tag\n" + rows)
    examples, said = read("tagging", tmp_path / "tokens.data")
    assert [len(each.tokens) for each in examples] == [3, 3, 3]
    assert "words in column 'word', labels in 'tag', sentences by 'sentence', separated by commas" in said


def test_labels_before_texts_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in ROWS))
    assert rank(str(tmp_path / "a.tsv"))[0].task == "classification"
