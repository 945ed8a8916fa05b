"""Vocabularies: symbols and their indices."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from glassgate.tasks.data.store.arrow import StoredTokens, look_up

PADDING = 0
UNKNOWN = 1
FIRST = 2


class Vocabulary:
    """Symbols with indices from 2; 0 is padding, 1 is any unknown symbol.

    Example:
        >>> words = Vocabulary.of(["a", "rose", "is", "a", "rose"], least=2)
        >>> words.symbols
        ['a', 'rose']
        >>> words.encode(["a", "daisy"]).tolist()
        [2, 1]
    """

    def __init__(self, symbols: Sequence[str]):
        self.symbols = list(symbols)
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols, start=FIRST)}

    @classmethod
    def of(cls, symbols: Iterable[str] | Mapping[str, int], least: int = 1) -> "Vocabulary":
        """Return a vocabulary of frequent symbols, in descending order of frequency.

        Args:
            symbols: all occurrences of symbols, or the count of each symbol
            least: the minimum count of a symbol
        """
        counts = symbols if isinstance(symbols, Mapping) else Counter(symbols)
        frequent = [symbol for symbol, count in counts.items() if count >= least]
        return cls(sorted(frequent, key=lambda symbol: (-counts[symbol], symbol)))

    def __len__(self) -> int:
        return len(self.symbols) + FIRST

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._numbers

    def encode(self, symbols: Sequence[str]) -> np.ndarray:
        """Return the index of each symbol, `(L,)`."""
        if isinstance(symbols, StoredTokens):
            return look_up(symbols, symbols.column.derived(self, self.encode))
        numbers = self._numbers
        return np.fromiter((numbers.get(symbol, UNKNOWN) for symbol in symbols), np.int64, len(symbols))
