"""Data from a pipe is read like a file, in every format, by every task and by every command.

The files are longer than the part that is examined to detect their format."""

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat

from glassgate.cli import main
from glassgate.tasks import task_class
from glassgate.tasks.data import files
from glassgate.tasks.data.detect import SUFFIXES
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.errors import DataError

Pipe = Callable[[Path], str]
SMALL = ["--hidden-size=4", "--embedding-size=4", "--epochs=1", "--batch-size=64"]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Return a function that sends a file through a pipe to standard input."""
    threads, streams = [], []

    def send(path: Path) -> str:
        reader, writer = os.pipe()

        def write() -> None:
            with open(writer, "wb") as sink:
                sink.write(path.read_bytes())

        threads.append(threading.Thread(target=write))
        threads[-1].start()
        streams.append(open(reader))  # noqa: SIM115, closed below
        monkeypatch.setattr(sys, "stdin", streams[-1])
        return files.STDIN

    yield send
    for each in threads:
        each.join()
    for stream in streams:
        stream.close()


def _columns(count: int) -> str:
    return "".join(f"w{k % 7} {'AB'[k % 2]}\n" + "\n" * (k % 5 == 4) for k in range(count))


def _write(folder: Path) -> dict[str, Path]:
    """Write a file of each kind that tasks read; return their paths by name."""
    rows = [{"text": f"so {'fine' if k % 2 else 'foul'} {k % 5}", "label": "ab"[k % 2]} for k in range(50)]
    tagged = [{"tokens": ["the", "cat"], "tags": ["D", "N"]}, {"tokens": ["it", "rains"], "tags": ["P", "V"]}] * 20
    hours = [f"2024-01-{1 + k // 24:02} {k % 24:02}:00" for k in range(240)]
    texts: dict[str, str] = {
        "columns.conll": _columns(500),
        "tagged.tsv": _columns(500).replace(" ", "\t"),
        "tokens.csv": "sentence,word,tag\n" + "".join(f"{k // 3},w{k % 5},{'XY'[k % 2]}\n" for k in range(90)),
        "tagged.jsonl": "".join(json.dumps(each) + "\n" for each in tagged),
        "tagged.conllu": "".join(f"1\tw{k}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n" for k in range(40)),
        "tagged.json": json.dumps(tagged),
        "code.py": "import os\n\n\ndef f(x):\n    return x + 1\n",
        "rows.csv": "text,label\n" + "".join(f"{each['text']},{each['label']}\n" for each in rows),
        "rows.tsv": "text\tlabel\n" + "".join(f"{each['text']}\t{each['label']}\n" for each in rows),
        "rows.jsonl": "".join(json.dumps(each) + "\n" for each in rows),
        "series.ts": "@problemName x\n@classLabel true a b\n@data\n" + "1,2,3:a\n3,2,1:b\n" * 20,
        "series.arff": "@relation r\n@attribute a numeric\n@attribute c {a,b}\n@data\n" + "1,a\n3,b\n" * 20,
        "lines.iob": "show boston\tO B-to flight\nwhat is it\tO O O fare\n" * 20,
        "text.txt": "salt and pepper, bread and butter.\n" * 50,
        "pairs.tsv": "".join(f"number {k}\tNummer {k}\n" for k in range(60)),
        "series.csv": "time,load\n" + "".join(f"{hour},{k % 24}\n" for k, hour in enumerate(hours)),
        "rows.json": json.dumps(rows),
        "fasttext.txt": "".join(f"__label__{each['label']} {each['text']}\n" for each in rows),
        "numbers.csv": "text,label\n" + "".join(f"{each['text']},{k}.5\n" for k, each in enumerate(rows)),
        "series.tsv": "time\tload\n" + "".join(f"{hour}\t{k % 24}\n" for k, hour in enumerate(hours)),
        "blanks.txt": "salt and __ butter.\n" * 3,
        "music.json": json.dumps([[[60], [62, 64], [65]] * 4] * 3),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    pd.DataFrame(rows).to_excel(folder / "rows.xlsx", index=False)
    pd.DataFrame({"time": hours, "load": [k % 24 for k in range(240)]}).to_excel(folder / "series.xlsx", index=False)
    pq.write_table(pa.Table.from_pylist(tagged), folder / "tagged.parquet")
    pd.read_csv(folder / "tokens.csv").to_excel(folder / "tokens.xlsx", index=False)
    pieces = np.empty(1, object)
    pieces[0] = np.eye(88, dtype=np.uint8)[:9]
    savemat(folder / "music.mat", {"traindata": pieces})
    pq.write_table(pa.table({"time": hours, "load": [k % 24 for k in range(240)]}), folder / "series.parquet")
    np.savez(folder / "series.npz", x=np.arange(40.0).reshape(10, 4), y=np.array([*"ab"] * 5))
    np.savez(folder / "music.npz", train=np.eye(88, dtype=np.uint8)[None, :9])
    np.save(folder / "music.npy", np.eye(88, dtype=np.uint8)[None, :9])
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _write(tmp_path_factory.mktemp("data"))


# Each kind of file: its task, the options to read the file, and the additional options to read it from a pipe.
KINDS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("tagging", "columns.conll", {}, {}),
    ("tagging", "columns.conll", {}, {"format": "columns"}),
    ("tagging", "tagged.tsv", {}, {"format": "tsv"}),
    ("tagging", "tokens.csv", {}, {"format": "csv"}),
    ("tagging", "tagged.jsonl", {}, {}),
    ("tagging", "tagged.parquet", {}, {}),
    ("tagging", "code.py", {}, {"format": "python"}),
    ("tagging", "tagged.conllu", {}, {}),
    ("tagging", "tagged.conllu", {}, {"format": "conllu"}),
    ("tagging", "tokens.xlsx", {}, {}),
    ("tagging", "tagged.json", {}, {}),
    ("tagging", "lines.iob", {}, {}),
    ("tagging", "text.txt", {"labelled": False}, {}),
    ("classification", "rows.csv", {}, {}),
    ("classification", "rows.tsv", {}, {"format": "tsv"}),
    ("classification", "rows.jsonl", {}, {}),
    ("classification", "rows.parquet", {}, {}),
    ("classification", "series.ts", {}, {}),
    ("classification", "series.npz", {}, {}),
    ("classification", "series.arff", {}, {}),
    ("classification", "rows.xlsx", {}, {}),
    ("classification", "fasttext.txt", {}, {}),
    ("classification", "rows.json", {}, {}),
    ("forecasting", "series.xlsx", {"horizon": 3}, {}),
    ("language-model", "text.txt", {}, {}),
    ("language-model", "text.txt", {"sequence": "line"}, {}),
    ("language-model", "text.txt", {"tokens": "byte"}, {}),
    ("language-model", "rows.jsonl", {}, {}),
    ("language-model", "rows.parquet", {}, {}),
    ("language-model", "music.json", {}, {}),
    ("language-model", "music.npz", {}, {}),
    ("language-model", "music.npy", {}, {}),
    ("language-model", "music.mat", {}, {}),
    ("language-model", "rows.json", {"tokens": "word"}, {}),
    ("fill-blanks", "text.txt", {}, {}),
    ("fill-blanks", "rows.jsonl", {}, {}),
    ("regression", "numbers.csv", {}, {}),
    ("translation", "pairs.tsv", {}, {}),
    ("forecasting", "series.csv", {"horizon": 3}, {}),
    ("forecasting", "series.parquet", {"horizon": 3}, {}),
    ("forecasting", "series.tsv", {"horizon": 3}, {}),
]


@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_every_format_has_a_file(task: str) -> None:
    formats = task_class(task).options_type.__dataclass_fields__["format"].metadata["choices"]
    paths = [Path(name) for kind, name, *_ in KINDS if kind == task]
    tested = {SUFFIXES[path.suffix] for path in paths} | {path.stem for path in paths}
    assert {*formats} - tested - {"auto"} <= {"folder", "series-folder"}  # folders are not sent through a pipe


def _content(example: Any) -> Any:
    """Return the content of an example without its source."""
    if isinstance(example, np.ndarray):
        return example.tolist()
    if hasattr(example, "frequency"):
        return (example.name, example.values[:].tolist(), str(example.start))
    names = ("tokens", "labels", "content", "label", "target", "steps", "line")
    fields = [getattr(example, name) for name in names if hasattr(example, name)]
    return [
        each.tolist() if isinstance(each, np.ndarray) else each if isinstance(each, str) or each is None else str(each)
        if callable(each) else each if isinstance(each, int) else [*each]
        for each in fields
        if not callable(each)
    ]  # fmt: skip


@pytest.mark.parametrize(("task", "name", "options", "more"), KINDS)
def test_every_format(
    task: str, name: str, options: dict[str, Any], more: dict[str, Any], data: dict[str, Path], piped: Pipe
) -> None:
    kind, labelled = task_class(task), options.get("labelled", True)
    options = {name: value for name, value in options.items() if name != "labelled"}
    own = kind(kind.options_type.from_mapping(options))
    other = kind(kind.options_type.from_mapping(options | more))
    read = [_content(each) for each in own.read(data[name], labelled)]
    assert read
    assert [_content(each) for each in other.read(piped(data[name]), labelled)] == read
    assert [_content(each) for each in other.read(files.STDIN, labelled)] == read  # a second time, from the same input


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zst", "zip"])
def test_every_compression(compression: str, data: dict[str, Path], piped: Pipe, tmp_path: Path) -> None:
    frame, path = pd.read_csv(data["rows.csv"]), tmp_path / f"rows.csv.{compression}"
    if compression == "zst":
        with pa.OSFile(str(path), "wb") as sink, pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data["rows.csv"].read_bytes())
    else:
        frame.to_csv(path, index=False)
    task = task_class("classification")
    read = [[_content(each) for each in task(task.options_type()).read(source)] for source in (path, piped(path))]
    assert read[0] == read[1] == [_content(each) for each in task(task.options_type()).read(data["rows.csv"])]


def test_a_named_format_keeps_the_lines_that_recognise_it(tmp_path: Path, piped: Pipe) -> None:
    path = tmp_path / "long.tsv"
    path.write_text(_columns(21_000).replace(" ", "\t"))
    kind = task_class("tagging")
    task = kind(kind.options_type.from_mapping({"format": "tsv"}))
    assert len(task.read(piped(path))) == len(task.read(path)) == 4_200


def test_a_named_pipe_can_be_read_repeatedly(tmp_path: Path, data: dict[str, Path]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(data["columns.conll"].read_bytes()))
    thread.start()
    kind = task_class("tagging")
    task = kind(kind.options_type.from_mapping({"format": "columns"}))
    assert [_content(each) for each in task.read(pipe)] == [_content(each) for each in task.read(data["columns.conll"])]
    thread.join()


def _out(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "name", "more", "commands"),
    [
        ("tagging", "columns.conll", ["--format=columns"], ["evaluate", "predict"]),
        ("classification", "rows.csv", ["--format=csv"], ["evaluate", "predict"]),
        ("language-model", "text.txt", [], ["evaluate", "predict"]),
        ("regression", "numbers.csv", [], ["evaluate", "predict"]),
        ("fill-blanks", "text.txt", [], ["evaluate", "predict blanks.txt", "fill blanks.txt"]),
        ("translation", "pairs.tsv", ["--beam=1"], ["evaluate", "predict", "translate"]),
        ("forecasting", "series.csv", ["--horizon=3", "--look-back=6"], ["evaluate", "predict", "forecast"]),
    ],
)
def test_every_command(
    task: str,
    name: str,
    more: list[str],
    commands: list[str],
    data: dict[str, Path],
    piped: Pipe,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = data[name]
    for run, source in (("file", str(path)), ("pipe", piped(path))):
        _out(["train", task, f"--data={source}", f"--run={tmp_path / run}", *more, *SMALL], capsys)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("file", "pipe")]
    assert weights[0] == weights[1]
    for words in commands:
        command, _, other = words.partition(" ")
        file = data[other or name]
        given = file.read_text().rstrip("\n") if command == "fill" else str(file)  # its argument is a text
        answer = _out([command, str(tmp_path / "file"), given], capsys)
        assert answer
        assert _out([command, str(tmp_path / "file"), piped(file)], capsys) == answer
    if task != "forecasting":
        short = tmp_path / name  # a report measures all predictions of a file
        short.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
        report = ["report", str(tmp_path / "file"), "--terminal", "--file"]
        shown = [_out([*report, each], capsys) for each in (str(short), piped(short))]
        source = re.compile(rf"^(-|{re.escape(name)})(?=$|[:,])", re.MULTILINE)
        assert source.sub("", shown[0]) == source.sub("", shown[1])
    look = ["look", "--task", task, *(word for word in more if word.startswith("--format"))]
    shown = [_out([*look, each], capsys).split("\n\n")[1:-1] for each in (str(path), piped(path))]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ["tokens.csv", "code.py", "columns.conll"])
def test_a_run_reads_standard_input_in_the_format_of_its_training_file(
    name: str, data: dict[str, Path], piped: Pipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _out(["train", "tagging", f"--data={data[name]}", f"--run={tmp_path / 'run'}", *SMALL], capsys)
    for command in ("evaluate", *(["predict"] if name != "columns.conll" else [])):
        answer = _out([command, str(tmp_path / "run"), str(data[name])], capsys)
        assert _out([command, str(tmp_path / "run"), piped(data[name])], capsys) == answer


def test_look_takes_the_format_of_standard_input(
    data: dict[str, Path], piped: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _out(["look", piped(data["code.py"]), "--format", "python"], capsys)
    assert shown.startswith("-: data for tagging")
    assert "i\tkeyword" in shown


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files have no path on this system")
def test_copies_of_pipes_have_no_name_so_that_none_is_left_behind(
    data: dict[str, Path], piped: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = data["rows.csv"]
    assert list(read_lines(piped(path))) == list(read_lines(path))
    assert list(read_lines("-")) == list(read_lines(path))
    assert not list(tmp_path.iterdir())


def test_a_copy_on_a_full_disk(data: dict[str, Path], piped: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(
        DataError,
        match=r"input: could not be copied to a temporary file \(.*\); set TMPDIR to a folder with more space",
    ):
        list(read_lines(piped(data["rows.csv"])))
