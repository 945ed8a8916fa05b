"""Reads pretrained word vectors in the text format of word2vec, fastText and GloVe, for requested words only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassgate.tasks.data.files import opened
from glassgate.tasks.errors import DataError


@dataclass(frozen=True)
class Vectors:
    """The vectors of the requested words that a file contains.

    Attributes:
        size: the length of a vector
        places: the indices of the words with a vector, in the list of requested words
        values: the vectors of these words, `(len(places), size)`, float32
        lower_case: the number of words for which the file has only the lower-case form
        requested: the number of requested words
    """

    size: int
    places: list[int]
    values: np.ndarray
    lower_case: int
    requested: int

    def coverage(self) -> str:
        """Return a sentence with the number of words that have a vector."""
        fraction = len(self.places) / max(self.requested, 1)
        return (
            f"vectors of {self.size} numbers for {len(self.places):,} of {self.requested:,} words ({fraction:.1%}), "
            f"{self.lower_case:,} of them from the lower-case form"
        )


def read_vectors(path: str | Path, words: Sequence[str]) -> Vectors:
    """Read the vectors of some words. Each line has a word and its numbers, separated by spaces.

    The first line may have the number of words and the size of the vectors, as in the files of word2vec.

    Args:
        path: the file
        words: the requested words; a word that the file lacks gets the vector of its lower-case form

    Raises:
        DataError: the file cannot be read, is cut short, or contains a line without a valid vector
    """
    places = {word.encode(): place for place, word in enumerate(words)}
    lowered: dict[bytes, list[int]] = {}
    for place, word in enumerate(words):
        if word.lower() != word:
            lowered.setdefault(word.lower().encode(), []).append(place)
    exact: dict[int, np.ndarray] = {}
    fallback: dict[int, np.ndarray] = {}
    for number, key, numbers in _rows(path):
        if key in places or key in lowered:
            vector = _vector(path, number, numbers)
            fallback |= dict.fromkeys(lowered.get(key, ()), vector)
            if key in places:
                exact[places[key]] = vector
    both = fallback | exact
    kept = sorted(both)
    if not kept:
        raise DataError(
            path,
            None,
            f"expected vectors of the {len(words)} words of the training data, got none; give a file of their language",
        )
    values = np.stack([both[place] for place in kept])
    return Vectors(values.shape[1], kept, values, len(fallback.keys() - exact.keys()), len(words))


def _rows(path: str | Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number of each line, its word and its numbers; all lines must have equally many numbers."""
    size, count, rows = 0, None, 0
    with opened(path) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.rstrip()
            blanks = line.count(b" ")
            if number == 1 and blanks == 1 and line.replace(b" ", b"").isdigit():
                count, size = map(int, line.split())
                continue
            size = size or blanks
            if blanks < size or not size:
                raise DataError(
                    path,
                    number,
                    f"expected a word and {size or 'its'} numbers, separated by blanks, got {blanks + 1} columns; "
                    "give vectors as text, as GloVe and word2vec -binary 0 write them, or download the file again",
                )
            rows += 1
            # A word may contain spaces (as in GloVe 840B), so the numbers are counted from the end.
            place = line.index(b" ") if blanks == size else len(line.rsplit(b" ", size)[0])
            yield number, line[:place], line[place:]
    if not rows or (count is not None and rows < count):
        wanted = "at least one word" if count is None else f"{count} words, as its first line states"
        raise DataError(path, None, f"expected {wanted}, got {rows}; the file is cut short: download it again")


def _vector(path: str | Path, number: int, numbers: bytes) -> np.ndarray:
    try:
        vector = np.array(numbers.split(), dtype=np.float32)
    except ValueError:
        text = numbers.decode(errors="replace").strip()
        raise DataError(
            path, number, f"expected numbers after the word, got {text[:40]!r}; correct or remove the line"
        ) from None
    if not np.isfinite(vector).all():
        raise DataError(path, number, "expected finite numbers, got NaN or infinity; correct or remove the line")
    return vector
