"""Sequences of tokens, in memory or on disk, and vocabularies, which map tokens, characters or labels to indices."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar, cast, overload

import numpy as np

from glassgate.tasks.data.store import ArrayRange, LazyArray
from glassgate.tasks.errors import DataError

PADDING = 0
"""The index of padding."""
UNKNOWN = 1
"""The index of any symbol that the vocabulary lacks."""
FIRST = 2
"""The index of the first symbol of a vocabulary."""

_CHUNK = 2**16  # tokens that are looked up at once; longer sequences are lazy
_COUNT_CHUNK = 2**22  # tokens that are counted at once

Result = TypeVar("Result")


class Symbols(list[Any]):
    """The distinct symbols of a corpus, such as tokens or labels, and values that are computed from them."""

    def __init__(self, symbols: Iterable[Any]):
        super().__init__(symbols)
        self._derived: dict[object, Any] = {}

    def derived(self, key: object, make: Callable[[Sequence[str]], Result]) -> Result:
        """Return a value derived from the symbols, computed once for each key."""
        if key not in self._derived:
            self._derived[key] = make(self)
        value: Result = self._derived[key]
        return value

    def counter(self, totals: np.ndarray) -> Counter[Any]:
        """Return the symbols other than None that occur, given the count of each symbol."""
        pairs = zip(self, totals.tolist(), strict=True)
        return Counter({symbol: total for symbol, total in pairs if total and symbol is not None})


class Tokens(Sequence[str]):
    """Tokens as indices of symbols, in memory or on disk; those on disk are read when they are indexed.

    Example:
        >>> tokens = Tokens.of("to be or not to be".split())
        >>> tokens.symbols, tokens.indices(1, 6).tolist()
        (['to', 'be', 'or', 'not'], [1, 2, 3, 0, 1])
    """

    def __init__(self, column: ArrayRange, symbols: Symbols):
        self._column, self.symbols = column, symbols

    @classmethod
    def of(cls, tokens: Sequence[str]) -> "Tokens":
        """Return tokens in memory; a `Tokens` is returned unchanged."""
        if isinstance(tokens, cls):
            return tokens
        index_of = defaultdict[str, int](count().__next__)
        indices = np.fromiter(map(index_of.__getitem__, tokens), np.uint32, len(tokens))
        return cls(ArrayRange(indices), Symbols(index_of))

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Tokens": ...
    def __getitem__(self, index: int | slice) -> "str | Tokens":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1
            return Tokens(self._column.part(start, stop), self.symbols)
        position = range(len(self))[index]
        return cast(str, self.symbols[int(self.indices(position, position + 1)[0])])

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from map(self.symbols.__getitem__, self.indices(start, start + _CHUNK).tolist())

    def indices(self, start: int, stop: int) -> np.ndarray:
        """Return the indices of the symbols of some tokens."""
        return self._column[start:stop]

    def counts(self) -> Counter[str]:
        """Return the count of each symbol, and release the pages that were read."""
        totals = np.zeros(len(self.symbols), np.int64)
        for start in range(0, len(self), _COUNT_CHUNK):
            totals += np.bincount(self.indices(start, start + _COUNT_CHUNK), minlength=len(self.symbols))
            self._column.release()
        return self.symbols.counter(totals)

    def look_up(self, table: np.ndarray) -> np.ndarray:
        """Return the value of each token, given that of each symbol; a `LazyArray` for many tokens on disk."""

        def read(start: int, stop: int) -> np.ndarray:
            values: np.ndarray = table[self.indices(start, stop)]
            return values

        if len(self) <= _CHUNK or not self._column.digest:
            return read(0, len(self))
        in_order = table[sorted(range(len(table)), key=self.symbols.__getitem__)]
        digest = f"{self._column.digest} {self._column.start} {self._column.stop}".encode() + in_order.tobytes()
        return cast(np.ndarray, LazyArray(read, len(self), digest))


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

    @classmethod
    def of_labels(cls, counts: Mapping[str, int], source: object) -> "Vocabulary":
        """Return the vocabulary of the labels of a training file; at least two are required."""
        vocabulary = cls.of(counts)
        if len(vocabulary.symbols) < 2:
            got = ", ".join(vocabulary.symbols) or "none"
            remedy = "add examples with another label, or choose another --label-column"
            raise DataError(source, None, f"expected at least 2 different labels, got {got}; {remedy}")
        return vocabulary

    def __len__(self) -> int:
        """The number of indices, including those of padding and of unknown symbols."""
        return len(self.symbols) + FIRST

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._indices

    def encode(self, symbols: Sequence[str]) -> np.ndarray:
        """Return the index of each symbol, `(L,)`."""
        if isinstance(symbols, Tokens):
            return symbols.look_up(symbols.symbols.derived(self, self.encode))
        return np.fromiter((self._indices.get(symbol, UNKNOWN) for symbol in symbols), np.int64, len(symbols))
