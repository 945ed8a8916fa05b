"""Vectors are read with and without a header line; an exact word precedes its lower-case form; errors name the line."""

import re
from pathlib import Path

import numpy as np
import pytest

from glassgate.tasks.data.word_vectors import read_vectors
from glassgate.tasks.errors import DataError

GLOVE = "the 1 2 3\nRose -1.5 0 2e-1\nrose 7 8 9\n. . . 4 5 6\nis 0 0 1\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("first", ["", "5 3\n"])
def test_glove_and_word2vec(tmp_path: Path, first: str) -> None:
    words = ["Rose", "The", "daisy", "is", "ROSE", ". . ."]
    read = read_vectors(write(tmp_path, first + GLOVE), words)
    assert read.size == 3
    assert read.indices == [0, 1, 3, 4, 5]
    assert np.allclose(read.values, [[-1.5, 0, 0.2], [1, 2, 3], [0, 0, 1], [7, 8, 9], [4, 5, 6]])
    assert read.num_lower_case == 2
    assert read.coverage() == "vectors of 3 numbers for 5 of 6 words (83.3%), 2 of them from the lower-case form"


def test_lines_as_word2vec_ends_them_and_words_in_another_encoding(tmp_path: Path) -> None:
    read = read_vectors(write(tmp_path, b"3 2\ncaf\xe9 1 2 \ncaf\xc3\xa9 3 4 \na 5 6 \n"), ["café"])
    assert read.values.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a 1 2\nb 1\n",
            "vectors.txt:2: expected a word and 2 numbers, separated by blanks, got 2 columns; give",
        ),
        ("a\n", "vectors.txt:1: expected a word and its numbers, separated by blanks, got 1 columns"),
        ("2 2\na 1 2\n\n", "vectors.txt:3: expected a word and 2 numbers, separated by blanks, got 1 columns"),
        ("a 1 2\nb 1 x\n", "vectors.txt:2: expected numbers after the word, got '1 x'; correct or remove the line"),
        ("b 1 nan\n", "vectors.txt:1: expected finite numbers, got NaN or infinity; correct or remove the line"),
        ("9 2\na 1 2\n", "vectors.txt: expected 9 words, as its first line states, got 1; the file is cut short"),
        ("", "vectors.txt: expected at least one word, got 0; the file is cut short: download it again"),
        ("c 1 2\n", "vectors.txt: expected vectors of the 2 words of the training data, got none; give a file of"),
    ],
)
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_vectors(write(tmp_path, text), ["a", "b"])


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: no such file; check the path"):
        read_vectors(tmp_path / "none.txt", ["a"])
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: this is a folder; give a file")):
        read_vectors(tmp_path, ["a"])
