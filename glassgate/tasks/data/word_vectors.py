"""Reads pretrained vectors of a list of words from a file in the text format of word2vec, fastText and GloVe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassgate.tasks.data.files import open_file
from glassgate.tasks.errors import DataError


@dataclass(frozen=True)
class Vectors:
    """The vectors of the requested words that a file contains.

    Attributes:
        size: the number of values of a vector
        indices: for each vector, the index of its word in the list of requested words
        values: the vectors, `(len(indices), size)`, float32
        num_lower_case: the number of words for which the file has only the lower-case form
        num_requested: the number of requested words
    """

    size: int
    indices: list[int]
    values: np.ndarray
    num_lower_case: int
    num_requested: int

    def coverage(self) -> str:
        """Return a phrase with the number of words that have a vector."""
        fraction = len(self.indices) / max(self.num_requested, 1)
        return (
            f"vectors of {self.size} numbers for {len(self.indices):,} of {self.num_requested:,} words "
            f"({fraction:.1%}), {self.num_lower_case:,} of them from the lower-case form"
        )


def read_vectors(path: str | Path, words: Sequence[str]) -> Vectors:
    """Read the vectors of some words. A word that the file lacks gets the vector of its lower-case form.

    Each line of the file contains a word and its numbers, separated by spaces. The first line may instead contain the
    number of words and the size of the vectors, as in the files of word2vec.
    """
    index_of_word = {word.encode(): index for index, word in enumerate(words)}
    indices_of_lower_case: dict[bytes, list[int]] = {}
    for index, word in enumerate(words):
        if word.lower() != word:
            indices_of_lower_case.setdefault(word.lower().encode(), []).append(index)
    exact: dict[int, np.ndarray] = {}
    fallback: dict[int, np.ndarray] = {}
    for line_number, word_bytes, numbers in _split_lines(path):
        if word_bytes in index_of_word or word_bytes in indices_of_lower_case:
            vector = _parse_vector(path, line_number, numbers)
            fallback |= dict.fromkeys(indices_of_lower_case.get(word_bytes, ()), vector)
            if word_bytes in index_of_word:
                exact[index_of_word[word_bytes]] = vector
    vectors = fallback | exact
    indices = sorted(vectors)
    if not indices:
        raise DataError(
            path,
            None,
            f"expected vectors of the {len(words)} words of the training data, got none; give a file of their language",
        )
    values = np.stack([vectors[index] for index in indices])
    return Vectors(values.shape[1], indices, values, len(fallback.keys() - exact.keys()), len(words))


def _split_lines(path: str | Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the line number, the word and the numbers of each line; all lines must have equally many numbers."""
    size, expected_rows, rows = 0, None, 0
    with open_file(path) as file:
        for line_number, raw in enumerate(file, start=1):
            line = raw.rstrip()
            spaces = line.count(b" ")
            if line_number == 1 and spaces == 1 and line.replace(b" ", b"").isdigit():
                expected_rows, size = map(int, line.split())
                continue
            size = size or spaces
            if spaces < size or not size:
                raise DataError(
                    path,
                    line_number,
                    f"expected a word and {size or 'its'} numbers, separated by blanks, got {spaces + 1} columns; "
                    "give vectors as text, as GloVe and word2vec -binary 0 write them, or download the file again",
                )
            rows += 1
            # A word may contain spaces (as in GloVe 840B), so the numbers are counted from the end.
            word_end = line.index(b" ") if spaces == size else len(line.rsplit(b" ", size)[0])
            yield line_number, line[:word_end], line[word_end:]
    if not rows or (expected_rows is not None and rows < expected_rows):
        expected = "at least one word" if expected_rows is None else f"{expected_rows} words, as its first line states"
        raise DataError(path, None, f"expected {expected}, got {rows}; the file is cut short: download it again")


def _parse_vector(path: str | Path, line_number: int, numbers: bytes) -> np.ndarray:
    try:
        vector = np.array(numbers.split(), dtype=np.float32)
    except ValueError:
        text = numbers.decode(errors="replace").strip()
        raise DataError(
            path, line_number, f"expected numbers after the word, got {text[:40]!r}; correct or remove the line"
        ) from None
    if not np.isfinite(vector).all():
        raise DataError(path, line_number, "expected finite numbers, got NaN or infinity; correct or remove the line")
    return vector
