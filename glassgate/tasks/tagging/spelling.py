"""The indices of the characters of words."""

from collections.abc import Sequence

import numpy as np

from glassgate.tasks.data.vocabulary import PADDING, Vocabulary

LONGEST_WORD = 32
"""The maximum number of characters of a word; the middle of longer words, such as links, is removed."""


class Spellings:
    """The indices of the characters of words, concatenated in one array.

    Args:
        words: the words
        characters: the vocabulary of characters

    Example:
        >>> Spellings(["a", "no"], Vocabulary(["a", "n", "o"])).rows(np.array([1, 0])).tolist()
        [[3, 4], [2, 0]]
    """

    def __init__(self, words: Sequence[str], characters: Vocabulary):
        half = LONGEST_WORD // 2
        words = [word if len(word) <= LONGEST_WORD else word[:half] + word[-half:] for word in words]
        self.lengths = np.fromiter(map(len, words), np.int64, len(words))
        self.starts = np.cumsum(self.lengths) - self.lengths
        # The padding keeps positions after the last word inside the array.
        self.numbers = np.pad(characters.encode("".join(words)).astype(np.int32), (0, LONGEST_WORD))

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Return the characters of some words, `(L, W)`, padded to the longest."""
        lengths = self.lengths[which, None]
        places = np.arange(max(1, lengths.max(initial=0)))
        return np.where(places < lengths, self.numbers[self.starts[which, None] + places], PADDING).astype(np.int64)
