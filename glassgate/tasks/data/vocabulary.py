"""Vocabularies, which map symbols (tokens, characters or labels) to indices."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from glassgate.tasks.data.arrow import Tokens, look_up

PADDING = 0
"""The index of padding."""
UNKNOWN = 1
"""The index of any symbol that the vocabulary lacks."""
FIRST = 2
"""The index of the first symbol of a vocabulary."""


class Vocabulary:
    """Symbols and their indices, which begin at `FIRST`.

    Attributes:
        symbols: the symbols in the order of their indices

    Example:
        >>> words = Vocabulary.of(["a", "rose", "is", "a", "rose"], min_count=2)
        >>> words.symbols
        ['a', 'rose']
        >>> words.encode(["a", "daisy"]).tolist()
        [2, 1]
    """

    def __init__(self, symbols: Sequence[str]):
        self.symbols = list(symbols)
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols, start=FIRST)}

    @classmethod
    def of(cls, symbols: Iterable[str] | Mapping[str, int], min_count: int = 1) -> "Vocabulary":
        """Return the vocabulary of the symbols that occur often enough, in descending order of frequency.

        Args:
            symbols: all occurrences of symbols, or the count of each symbol
            min_count: the minimum count of a symbol
        """
        counts = symbols if isinstance(symbols, Mapping) else Counter(symbols)
        frequent = [symbol for symbol, count in counts.items() if count >= min_count]
        return cls(sorted(frequent, key=lambda symbol: (-counts[symbol], symbol)))

    def __len__(self) -> int:
        """The number of indices, including those of padding and of unknown symbols."""
        return len(self.symbols) + FIRST

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._indices

    def encode(self, symbols: Sequence[str]) -> np.ndarray:
        """Return the index of each symbol, `(L,)`."""
        tokens = Tokens.of(symbols)
        return look_up(tokens, tokens.column.derived(self, self._indices_of))

    def _indices_of(self, symbols: Sequence[str]) -> np.ndarray:
        return np.array([self._indices.get(symbol, UNKNOWN) for symbol in symbols], np.int64)
