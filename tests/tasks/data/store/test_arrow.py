"""A large text stays on disk, in a memory map that is made once, and trains as if it were in memory."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from glassgate.storage import cache_folder
from glassgate.tasks.data import texts as text
from glassgate.tasks.data.store import arrow as mapped
from glassgate.tasks.data.store import units as running
from glassgate.tasks.errors import DataError
from glassgate.tasks.fill_blanks import FillBlanks, FillBlanksOptions
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions

LINES = "Salt, and pepper;\tda\u00df \u6211 \U0001f400.\r\nBread & butter\n\n"


@pytest.fixture(autouse=True)
def _small_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as large, and record batches and blocks are so small that there are many."""
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mapped, "LARGE", 1)
    monkeypatch.setattr(mapped, "_CHUNK", 50)
    monkeypatch.setattr(mapped, "_COUNTED", 70)
    monkeypatch.setattr(running, "_BLOCK", 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_bytes(("\ufeff" + LINES * 60).encode())
    return file


def cached() -> list[Path]:
    return sorted((cache_folder() / "data").iterdir())


def both(path: Path, unit: str, monkeypatch: pytest.MonkeyPatch) -> tuple[mapped.Units, list[str]]:
    """The units of a file on disk, and in memory."""
    (on_disk,) = text.read_text(path, unit, "file")
    assert isinstance(on_disk.units, mapped.Units)
    with monkeypatch.context() as here:
        here.setattr(mapped, "LARGE", 2**60)
        (in_memory,) = text.read_text(path, unit, "file")
    return on_disk.units, list(in_memory.units)


@pytest.mark.parametrize("unit", ["character", "word", "token"])
def test_stored_tokens_equal_those_in_memory(path: Path, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    units, wanted = both(path, unit, monkeypatch)
    assert list(units) == wanted
    assert [units[0], units[-1], units[70]] == [wanted[0], wanted[-1], wanted[70]]
    assert list(units[50:140]) == wanted[50:140]
    assert units[50:300].counts() == Counter(wanted[50:300])
    assert len(units[10:5]) == 0


def test_stored_numbers_equal_those_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units, wanted = both(path, "word", monkeypatch)
    vocabulary = text.vocabulary([text.Text(units[:100])], "word", 2)
    assert vocabulary.symbols == text.vocabulary([text.Text(wanted[:100])], "word", 2).symbols
    numbers, truth = vocabulary.encode(units), vocabulary.encode(wanted)
    before = text.shifted(numbers, 7)
    assert len(numbers) == len(before) == len(truth)
    for place in (slice(0, 0), slice(0, 1), slice(0, 130), slice(1, 2), slice(60, 70), slice(128, 10**6)):
        assert numbers[place].dtype == np.int64
        assert numbers[place].tolist() == truth[place].tolist()
        assert before[place].tolist() == text.shifted(truth, 7)[place].tolist()


def test_numbers_are_in_a_memory_map(path: Path) -> None:
    (example,) = text.read_text(path, "character", "file")
    assert isinstance(example.units, mapped.Units)
    numbers = example.units.numbers(3, 9)
    assert numbers.dtype == np.uint8
    assert not numbers.flags.writeable
    assert not numbers.flags.owndata
    (file,) = cached()
    address = numbers.__array_interface__["data"][0]
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(file.name)]
    ranges = [[int(end, 16) for end in words[0].split("-")] for words in maps]
    assert any(start <= address < stop for start, stop in ranges)


def test_pages_of_read_data_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_READS", 1000)
    path = tmp_path / "long.txt"
    path.write_text("salt and pepper\n" * 200_000)
    (example,) = text.read_text(path, "character", "file")
    assert isinstance(example.units, mapped.Units)
    (file,) = cached()
    for place in range(999):
        example.units[place * 3000]
    assert in_memory(file) > 1000
    example.units[0]
    assert in_memory(file) < 200


def in_memory(file: Path) -> int:
    """How much of a file this process has mapped and holds, in KiB."""
    parts = Path("/proc/self/smaps").read_text().split(file.name)[1:]
    return sum(int(re.findall(r"Rss: +(\d+)", part)[0]) for part in parts)


def test_a_second_process_uses_the_stored_data(path: Path) -> None:
    text.read_text(path, "word", "file")
    (file,) = cached()
    before = file.stat().st_mtime_ns, file.stat().st_ino
    code = (
        "import sys; from glassgate.tasks.data import texts; from glassgate.tasks.data.store import arrow, units\n"
        "arrow.LARGE = 1; units._write = None\n"
        "print(len(texts.read_text(sys.argv[1], 'word', 'file')[0].units))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(text.read_text(path, "word", "file")[0].units)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_changed_files_and_other_tokens_are_read_again(path: Path) -> None:
    text.read_text(path, "word", "file")
    text.read_text(path, "character", "file")
    assert len(cached()) == 2
    path.write_text("Other words\n" * 30)
    (example,) = text.read_text(path, "word", "file")
    assert list(example.units) == ["Other", "words", "\n"] * 30
    assert len(cached()) == 3


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_converted_again(path: Path, share: float) -> None:
    (example,) = text.read_text(path, "word", "file")
    wanted = list(example.units)
    (file,) = cached()
    content = file.read_bytes()
    file.unlink()  # the map of before keeps the old file
    file.write_bytes(content[: int(len(content) * share)])
    (again,) = text.read_text(path, "word", "file")
    assert list(again.units) == wanted
    assert file.read_bytes() == content
    assert cached() == [file]


def test_errors_are_those_of_a_small_file(path: Path) -> None:
    path.write_bytes("gööd\n".encode() * 50 + b"ab\xff\n")
    with pytest.raises(DataError, match=r"text\.txt:51: expected UTF-8, .* got byte 0xff in column 3; correct"):
        text.read_text(path, "character", "file")
    path.write_bytes(b" \n" * 50)
    with pytest.raises(DataError, match="has only blanks"):
        text.read_text(path, "character", "file")
    assert not cached()


@pytest.mark.parametrize("unit", ["character", "byte", "word"])
def test_training_is_the_same(path: Path, tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"data": str(path), "tokens": unit, "hidden_size": 8, "embedding_size": 4, "epochs": 2, "batch_size": 4}
    on_disk = LanguageModel(LanguageModelOptions.from_mapping(sizes)).fit(run=tmp_path / "disk")
    blanks = FillBlanks(FillBlanksOptions.from_mapping(sizes)).fit()
    monkeypatch.setattr(mapped, "LARGE", 2**60)
    in_memory = LanguageModel(LanguageModelOptions.from_mapping(sizes)).fit(run=tmp_path / "memory")
    for name in ("dev", "test", "history"):
        assert on_disk[name] == in_memory[name]
    assert blanks["test"] == FillBlanks(FillBlanksOptions.from_mapping(sizes)).fit()["test"]
