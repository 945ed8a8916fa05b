"""The characters of words as indices into a vocabulary."""

from collections.abc import Sequence

import numpy as np

from glassgate.tasks.data.vocabulary import PADDING, Vocabulary

LONGEST_WORD = 32
"""The maximum number of characters of a word. The middle of a longer word, such as a link, is removed."""


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
        # `rows` also reads positions after the last word. The padding keeps them inside of the array.
        self.indices = np.pad(characters.encode("".join(words)).astype(np.int32), (0, LONGEST_WORD))

    def rows(self, word_indices: np.ndarray) -> np.ndarray:
        """Return the characters of the words with these indices, one row per word, padded to the longest word."""
        lengths = self.lengths[word_indices, None]
        offsets = np.arange(max(1, lengths.max(initial=0)))
        indices = self.indices[self.starts[word_indices, None] + offsets]
        return np.where(offsets < lengths, indices, PADDING).astype(np.int64)
