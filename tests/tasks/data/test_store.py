"""A large text is converted once to memory-mapped files, and trains the same network as a text in memory."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from glassgate.storage import cache_folder
from glassgate.tasks.data import corpus, store, vocabulary
from glassgate.tasks.data import texts as text
from glassgate.tasks.data.vocabulary import Tokens
from glassgate.tasks.errors import DataError
from glassgate.tasks.fill_blanks import FillBlanks, FillBlanksOptions
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from tests.forked import run_python

LINES = "Salt, and pepper;\tda\u00df \u6211 \U0001f400.\r\nBread & butter\n\n"


@pytest.fixture(autouse=True)
def _small_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every file as large, and make blocks so small that there are many."""
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "LARGE", 1)
    monkeypatch.setattr(store, "_BLOCK", 100)
    monkeypatch.setattr(vocabulary, "_CHUNK", 50)
    monkeypatch.setattr(vocabulary, "_COUNT_CHUNK", 70)
    monkeypatch.setattr(corpus, "_MAX_TOKENS", 100)
    monkeypatch.setattr(text, "_BLOCK", 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_bytes(("\ufeff" + LINES * 60).encode())
    return file


def cached() -> list[Path]:
    return sorted((cache_folder() / "data").glob("*"))


def both(path: Path, token_kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tokens, list[str]]:
    """Return the tokens of a file as stored on disk, and in memory."""
    (on_disk,) = text.read_text(path, token_kind, "file")
    assert isinstance(on_disk.tokens, Tokens)
    with monkeypatch.context() as here:
        here.setattr(store, "LARGE", 2**60)
        (in_memory,) = text.read_text(path, token_kind, "file")
    return on_disk.tokens, list(in_memory.tokens)


@pytest.mark.parametrize("token_kind", ["character", "word", "token"])
def test_stored_tokens_equal_those_in_memory(path: Path, token_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, expected = both(path, token_kind, monkeypatch)
    assert list(tokens) == expected
    assert [tokens[0], tokens[-1], tokens[70]] == [expected[0], expected[-1], expected[70]]
    assert list(tokens[50:140]) == expected[50:140]
    assert tokens[50:300].counts() == Counter(expected[50:300])
    assert len(tokens[10:5]) == 0


def test_stored_numbers_equal_those_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, expected = both(path, "word", monkeypatch)
    vocabulary = text.vocabulary([text.Text(tokens[:100])], "word", 2)
    assert vocabulary.symbols == text.vocabulary([text.Text(expected[:100])], "word", 2).symbols
    numbers, truth = vocabulary.encode(tokens), vocabulary.encode(expected)
    before = text.shift_right(numbers, 7)
    assert len(numbers) == len(before) == len(truth)
    for place in (slice(0, 0), slice(0, 1), slice(0, 130), slice(1, 2), slice(60, 70), slice(128, 10**6)):
        assert numbers[place].dtype == np.int64
        assert numbers[place].tolist() == truth[place].tolist()
        assert before[place].tolist() == text.shift_right(truth, 7)[place].tolist()


def test_numbers_are_in_a_memory_map(path: Path) -> None:
    (example,) = text.read_text(path, "character", "file")
    assert isinstance(example.tokens, Tokens)
    numbers = example.tokens.indices(3, 9)
    assert numbers.dtype == np.uint8
    assert not numbers.flags.writeable
    assert not numbers.flags.owndata
    (folder,) = cached()
    address = numbers.__array_interface__["data"][0]
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]
    ranges = [[int(end, 16) for end in words[0].split("-")] for words in maps]
    assert any(start <= address < stop for start, stop in ranges)


def test_pages_of_read_data_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_READS_PER_RELEASE", 1000)
    path = tmp_path / "long.txt"
    path.write_text("salt and pepper\n" * 200_000)
    (example,) = text.read_text(path, "character", "file")
    assert isinstance(example.tokens, Tokens)
    (folder,) = cached()
    for place in range(999):
        example.tokens[place * 3000]
    assert in_memory(folder) > 1000
    example.tokens[0]
    assert in_memory(folder) < 200


def in_memory(folder: Path) -> int:
    """Return how much of the files in a folder this process has mapped and keeps in memory, in KiB."""
    parts = Path("/proc/self/smaps").read_text().split(folder.name)[1:]
    return sum(int(re.findall(r"Rss: +(\d+)", part)[0]) for part in parts)


def test_a_second_process_uses_the_stored_data(path: Path) -> None:
    text.read_text(path, "word", "file")
    (folder,) = cached()
    before = [(file, file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.iterdir()]
    code = (
        "import sys; from glassgate.tasks.data import texts; from glassgate.tasks.data import corpus, store\n"
        "store.LARGE = 1; corpus._convert = None\n"
        "print(len(texts.read_text(sys.argv[1], 'word', 'file')[0].tokens))"
    )
    assert int(run_python("-c", code, str(path)).stdout) == len(text.read_text(path, "word", "file")[0].tokens)
    assert [(file, file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.iterdir()] == before


def test_changed_files_and_other_tokens_are_read_again(path: Path) -> None:
    text.read_text(path, "word", "file")
    text.read_text(path, "character", "file")
    assert len(cached()) == 2
    path.write_text("Other words\n" * 30)
    (example,) = text.read_text(path, "word", "file")
    assert list(example.tokens) == ["Other", "words", "\n"] * 30
    assert len(cached()) == 3


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("name", ["content.json", "0", "1"])
def test_a_truncated_file_is_converted_again(path: Path, name: str, share: float) -> None:
    (example,) = text.read_text(path, "word", "file")
    expected = list(example.tokens)
    (folder,) = cached()
    file = folder / name
    content = file.read_bytes()
    file.unlink()  # the old memory map keeps the old file
    file.write_bytes(content[: int(len(content) * share)])
    (again,) = text.read_text(path, "word", "file")
    assert list(again.tokens) == expected
    assert file.read_bytes() == content
    assert cached() == [folder]


def test_folders_that_were_exchanged_are_converted_again(path: Path, tmp_path: Path) -> None:
    expected = [list(text.read_text(path, kind, "file")[0].tokens) for kind in ("word", "token")]
    first, second = cached()
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    for folder in (first, second):
        with pytest.raises(ValueError, match=folder.name):
            store.Store.open(folder)
    assert [list(text.read_text(path, kind, "file")[0].tokens) for kind in ("word", "token")] == expected
    for folder in (first, second):
        store.Store.open(folder)


def test_arrays_on_disk_equal_those_in_memory(tmp_path: Path) -> None:
    """A file is written again when its type is too narrow for the next values."""
    in_memory, on_disk = store.Arrays(), store.Arrays(tmp_path / "0123")
    (tmp_path / "0123").mkdir()
    for arrays in (in_memory, on_disk):
        for number in range(40):
            dtype = np.uint8 if number < 10 else np.uint16 if number < 30 else np.uint32
            arrays.add("indices", np.arange(number, dtype=dtype) + dtype(np.iinfo(dtype).max - 100))
            arrays.add("times", np.arange(number).astype("datetime64[us]"))
        arrays.add("empty", np.zeros(0))
    on_disk.finish("0123", {"a": 1})
    stored = store.Store.open(tmp_path / "0123")
    assert stored.content == {"a": 1}
    for name, expected in in_memory.in_memory({}).arrays.items():
        for array in (on_disk[name], stored.arrays[name]):
            assert array.dtype == expected.dtype
            assert array.tolist() == expected.tolist()


def test_errors_are_those_of_a_small_file(path: Path) -> None:
    path.write_bytes("gööd\n".encode() * 50 + b"ab\xff\n")
    with pytest.raises(DataError, match=r"text\.txt:51: expected UTF-8 .* got byte 0xff in column 3; correct"):
        text.read_text(path, "character", "file")
    path.write_bytes(b" \n" * 50)
    with pytest.raises(DataError, match="has only white space"):
        text.read_text(path, "character", "file")
    assert not cached()


@pytest.mark.parametrize("token_kind", ["character", "byte", "word"])
def test_training_is_the_same(path: Path, tmp_path: Path, token_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "data": str(path),
        "tokens": token_kind,
        "hidden_size": 8,
        "embedding_size": 4,
        "epochs": 2,
        "batch_size": 4,
    }
    on_disk = LanguageModel(LanguageModelOptions.from_mapping(sizes)).fit(run=tmp_path / "disk")
    blanks = FillBlanks(FillBlanksOptions.from_mapping(sizes)).fit()
    monkeypatch.setattr(store, "LARGE", 2**60)
    in_memory = LanguageModel(LanguageModelOptions.from_mapping(sizes)).fit(run=tmp_path / "memory")
    for name in ("dev", "test", "history"):
        assert on_disk[name] == in_memory[name]
    assert blanks["test"] == FillBlanks(FillBlanksOptions.from_mapping(sizes)).fit()["test"]
