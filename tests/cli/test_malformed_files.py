"""Damaged files of every format, folders and files of another kind: each command names the file in one line."""

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import glassgate as gg
from glassgate.cli import look, main
from glassgate.tasks.data.texts import Text
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.task import Split

ROWS = pd.DataFrame({"text": [f"so {'fine' if k % 2 else 'foul'} {k}" for k in range(60)], "label": [*"ab"] * 30})


def replaced(raw: bytes, member: str, content: bytes | None) -> bytes:
    """Return a ZIP archive with another content of a member, or without it."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            if name != member or content is not None:
                copy.writestr(name, archive.read(name) if name != member or content is None else content)
    return changed.getvalue()


def flipped(raw: bytes, start: int, count: int = 8) -> bytes:
    """Return a file with inverted bytes."""
    return raw[:start] + bytes(255 - byte for byte in raw[start : start + count]) + raw[start + count :]


def malformed() -> dict[str, bytes]:
    """Damaged files by name."""
    buffers = {kind: io.BytesIO() for kind in ("xlsx", "npz", "npy", "parquet")}
    ROWS.to_excel(buffers["xlsx"], index=False)
    ROWS.to_parquet(buffers["parquet"])
    np.savez(buffers["npz"], x=np.ones((4, 3)), y=np.array([*"abab"]))
    np.save(buffers["npy"], np.eye(88)[None, :9])
    xlsx, npz, npy, parquet = (each.getvalue() for each in buffers.values())
    sheet = "xl/worksheets/sheet1.xml"
    text = gzip.compress(ROWS.to_csv(index=False).encode())
    return {
        "no-sheet.xlsx": replaced(xlsx, sheet, None),
        "bad-xml.xlsx": replaced(xlsx, sheet, b"<worksheet><sheetData><row>"),
        "empty-xml.xlsx": replaced(xlsx, "xl/workbook.xml", b""),
        "bytes.xlsx": flipped(xlsx, len(xlsx) // 3, 99),
        "text.xlsx": b"text,label\nfine,good\n",
        "no-array.npz": replaced(npz, "x.npy", b"none"),
        "cut.npz": npz[: len(npz) // 2],
        "header.npy": flipped(npy, 12),
        "empty.npy": b"",
        "cut.npy": npy[:-9],
        "old.mat": b"MATLAB 5.0 MAT-file" + b" " * 109 + b"\xff" * 40,
        "hdf.mat": b"\x89HDF\r\n\x1a\n" + b"\0" * 90,
        "text.mat": b"none",
        "bytes.parquet": flipped(parquet, 30, 200),
        "footer.parquet": flipped(parquet, len(parquet) - 120, 60),
        "cut.parquet": parquet[:40],
        "cut.csv.gz": text[: len(text) // 2],
        "bytes.csv.gz": flipped(text, 40, 9),
        "zip.csv.zip": b"PK\3\4" + b"\xff" * 99,
        "zst.csv.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 99,
        "xz.csv.xz": b"\xfd7zXZ\0" + b"\xff" * 99,
        "bz2.csv.bz2": b"BZh9" + b"\xff" * 99,
        "nul.csv": b"text,label\nfi\0ne,good\n",
        "nul.json": b'[{"text": "a\0"}]',
        "cut.json": b'[{"text": "fine", "label": "good"},',
        "cut.jsonl": b'{"text": "fine", "label": "good"}\n{"text":',
        "words.jsonl": b"fine\ngood\n",
        "cut.ts": b"@problemName x\n@classLabel true a b\n",
        "words.ts": b"@problemName x\n@classLabel true a b\n@data\none,two:a\n",
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, content in malformed().items():
        (folder / name).write_bytes(content)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with gg.engine("reference"):
        options = LanguageModelOptions(hidden_size=4, epochs=1, batch_size=2)
        LanguageModel(options).fit(Split([Text("tick tock " * 20)]), run=folder)
    return str(folder)


@pytest.mark.parametrize("name", [*malformed(), "empty"])
def test_each_command_names_a_damaged_file(
    name: str, files: Path, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(files / name)
    series = name.endswith((".npz", ".npy", ".mat", ".ts"))
    task = "language-model" if series and not name.endswith(".ts") else "classification"
    for words in (
        ["look", path],
        ["train", task, f"--data={path}", f"--run={tmp_path}/run"],
        *([] if series or name == "text.xlsx" else [["evaluate", run, path], ["predict", run, path]]),
    ):
        assert main(words) == 2, words
        *_, message = capsys.readouterr().err.splitlines()
        assert message.startswith(f"glassgate {words[0]}: {path}")
        assert ";" in message or ", " in message.removeprefix(f"glassgate {words[0]}: {path}")
    assert not (tmp_path / "run").exists()


def test_look_reads_the_first_rows_of_a_workbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(look, "_MAX_SHEET_ROWS", 20)
    path = tmp_path / "a.xlsx"
    ROWS.to_excel(path, index=False)
    assert main(["look", str(path)]) == 0
    out = capsys.readouterr().out
    assert "; 19 texts, 2 labels" in out
    assert out.endswith("look reads the first 20 rows of a workbook, and training all of them\n")
    ROWS[:18].to_excel(path, index=False)
    os.utime(path, (1, 1))
    assert main(["look", str(path)]) == 0
    assert "look reads" not in capsys.readouterr().out
    monkeypatch.setattr(look, "_MAX_SHEET_ROWS", 150)
    times = pd.DataFrame({"time": pd.date_range("2024-01-01", periods=200, freq="h"), "load": range(200)})
    times.to_excel(path, index=False)
    assert main(["look", str(path)]) == 0
    out = capsys.readouterr().out
    assert "149 steps" in out
    assert "look reads the first 150 rows" in out


def test_a_nested_archive_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([[[60], [200]]] * 2))
    assert main(["look", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"glassgate look: {path}: train[0]: expected")
