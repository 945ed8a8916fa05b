"""A corpus: examples as arrays of numbers in a store, in memory or in the cache folder.

| kind of a field | value in an example | stored arrays |
|---|---|---|
| `SEQUENCE` | symbols, such as tokens or the labels of tokens | indices of symbols, offsets |
| `SYMBOL` | one symbol, such as a label, or None | indices of symbols |
| `NUMBERS` | whole numbers, such as the line of each token | numbers, offsets |
| `NUMBER` | one whole number; None is stored as 0 | numbers |

Indexing builds an example. Examples without tokens, such as series, are kept as objects, next to the arrays of their
labels.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate, chain, count, pairwise
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from glassgate.tasks.data.files import count_lines, row_limit
from glassgate.tasks.data.store import ArrayRange, Arrays, Store, is_large, open_cached
from glassgate.tasks.data.vocabulary import Symbols, Tokens
from glassgate.tasks.progress import Progress

Example = TypeVar("Example")

SEQUENCE, SYMBOL, NUMBERS, NUMBER = "sequence", "symbol", "numbers", "number"
"""The kinds of fields."""

_LISTS = (SEQUENCE, NUMBERS)
_SYMBOLS = (SEQUENCE, SYMBOL)
_OFFSETS = "offsets of "
# Examples are stored when there are this many, or as many tokens.
_MAX_EXAMPLES = 2**14
_MAX_TOKENS = 2**18
_BLOCK = 2**20  # values that are read at once


def corpus_of_files(
    examples: Iterable[Any],
    fields: Mapping[str, str],
    build: Callable[..., Example],
    sources: Sequence[str | Path],
    settings: Sequence[object],
    progress: Progress | None = None,
) -> "Corpus[Example]":
    """Return the corpus of files. That of large files is on disk, and written only by the first call.

    Args:
        examples: the examples; not read if an earlier call has stored them
        fields: the attributes to store, with the kind of each; the first attribute contains the tokens
        build: builds an example from these attributes
        sources: the files
        settings: everything else that determines the stored values, as JSON values
        progress: receives the progress of a large file
    """
    if not is_large(sources):
        return Corpus.of(examples, fields, build)
    first, converting = str(sources[0]), (progress or Progress()).converting

    def write(arrays: Arrays) -> dict[str, list[Any]]:
        converting(first, 0.0)
        lines = max(1, count_lines(first))
        symbols = _convert(examples, fields, arrays, lambda line: converting(first, min(1.0, line / lines)))
        converting(first, 1.0)
        return symbols

    limit = row_limit()
    key = [*settings, *([limit.max_rows] if limit else [])]
    return Corpus(open_cached([*map(Path, sources)], key, write), fields, build)


def _convert(
    examples: Iterable[Any],
    fields: Mapping[str, str],
    arrays: Arrays,
    report: Callable[[int], None] = lambda line: None,
) -> dict[str, list[Any]]:
    """Add the fields of examples to `arrays`, and pass lines to `report`. Return the symbols of each field."""
    index_of = {name: defaultdict[Any, int](count().__next__) for name, kind in fields.items() if kind in _SYMBOLS}
    ends = {name: 0 for name, kind in fields.items() if kind in _LISTS}
    for name in ends:
        arrays.add(f"{_OFFSETS}{name}", np.zeros(1, np.int64))
    last_line = 0
    for group in _groups(examples, next(iter(ends), "")):
        for name, kind in fields.items():
            values: Sequence[Any] = [getattr(example, name) for example in group]
            if kind in _LISTS:
                offsets = np.fromiter(accumulate(map(len, values), initial=ends[name]), np.int64)
                arrays.add(f"{_OFFSETS}{name}", offsets[1:])
                ends[name] = int(offsets[-1])
            if kind in _SYMBOLS:
                indices = _indices(values if kind == SEQUENCE else [values], index_of[name])
                arrays.add(name, indices.astype(np.min_scalar_type(len(index_of[name]))))
            else:
                each_value = chain.from_iterable(values) if kind == NUMBERS else (value or 0 for value in values)
                numbers = np.fromiter(each_value, np.uint32)
                arrays.add(name, numbers)
                last_line = max([last_line, *numbers[-1:].tolist()])
        report(last_line)
    return {name: [*symbols] for name, symbols in index_of.items()}


def _indices(sequences: Sequence[Any], index_of: Mapping[Any, int]) -> np.ndarray:
    """The index of each symbol of all sequences. Those of characters are looked up in a table, which is faster."""
    if not all(isinstance(sequence, str) for sequence in sequences):
        return np.fromiter(map(index_of.__getitem__, chain.from_iterable(sequences)), np.uint32)
    codes = np.frombuffer("".join(sequences).encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(codes)
    present, table = np.flatnonzero(counts), np.zeros(len(counts), np.uint32)
    table[present] = [index_of[chr(code)] for code in present.tolist()]
    return table[codes]


def _groups(examples: Iterable[Any], tokens: str) -> Iterator[list[Any]]:
    """Yield examples in groups, at least one; `tokens` names the attribute with their tokens, if they have one."""
    group: list[Any] = []
    size = 0
    for example in examples:
        group.append(example)
        size += len(getattr(example, tokens)) if tokens else 0
        if len(group) >= _MAX_EXAMPLES or size >= _MAX_TOKENS:
            yield group
            group, size = [], 0
    yield group


class Corpus(Sequence[Example]):
    """All examples of a file or of a collection, or a selection of them in any order.

    Args:
        store: the arrays of the fields, and their symbols
        fields: the attributes with arrays, with the kind of each
        build: builds an example from these attributes; None if the examples are kept as objects
        objects: the examples that are kept as objects

    Attributes:
        has_tokens: whether examples are built from the arrays, the first of which contains their tokens
        examples: the examples before the conversion by `map`

    Example:
        >>> words = Corpus.of([["a", "rose"], ["a", "day"]])
        >>> len(words), words[1], list(words[:1])
        (2, ['a', 'day'], [['a', 'rose']])
    """

    examples: "Corpus[Any]"

    def __init__(
        self,
        store: Store,
        fields: Mapping[str, str],
        build: Callable[..., Example] | None = None,
        objects: Sequence[Example] = (),
    ):
        self._store, self.fields, self._build, self._objects = store, fields, build, objects
        self.has_tokens = build is not None
        self._columns = {name: ArrayRange(store.arrays[name], store) for name in fields}
        self._symbols = {name: Symbols(symbols) for name, symbols in store.content.items()}
        self._offsets = {name: store.arrays[f"{_OFFSETS}{name}"] for name, kind in fields.items() if kind in _LISTS}
        self._count = len(self._offsets[next(iter(fields))]) - 1 if self.has_tokens else len(objects)
        self._rows: np.ndarray = np.arange(self._count, dtype=np.uint32)

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        fields: Mapping[str, str] | None = None,
        build: Callable[..., Example] | None = None,
    ) -> "Corpus[Example]":
        """Return a corpus in memory; a corpus is returned unchanged.

        Args:
            fields: the attributes that become arrays, with the kind of each
            build: builds an example from these attributes; None to keep the examples as objects
        """
        if isinstance(examples, cls):
            return examples
        fields, arrays = fields or {}, Arrays()
        objects = [] if build else [*examples]
        symbols = _convert(examples if build else objects, fields, arrays)
        return cls(arrays.in_memory(symbols), fields, build, objects)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example, `(N,)`, if they have tokens."""
        return np.diff(self._offsets[next(iter(self.fields))]).astype(np.int32)[self._rows]

    @property
    def digest(self) -> str:
        """A hash of the version of the file, the settings of the reader and the selection; empty if in memory."""
        rows = hashlib.blake2b(self._rows.tobytes(), digest_size=16).hexdigest()
        return self._store.digest and f"{self._store.digest} {rows}"

    def map(self, convert: Callable[[Example], Any]) -> "Corpus[Any]":
        """Return converted examples. Those with tokens are converted when they are indexed or cut, others now."""
        converted: Corpus[Any] = copy(self)
        converted.examples = self
        if (build := self._build) is not None:
            converted._build = lambda **values: convert(build(**values))
        else:
            converted._objects, converted._rows = [*map(convert, self)], np.arange(len(self))
        return converted

    def whole(self, field: str) -> Tokens:
        """Return the sequences of all examples of a file as one sequence."""
        return Tokens(self._columns[field], self._symbols[field])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> "Corpus[Example]": ...
    def __getitem__(self, index: int | slice | np.ndarray) -> "Example | Corpus[Example]":
        if isinstance(index, slice | np.ndarray):
            selection = copy(self)
            selection._rows = self._rows[index]
            return selection
        return self.cut(index) if self.has_tokens else self._objects[self._rows[index]]

    def cut(self, index: int, start: int = 0, stop: int | None = None) -> Example:
        """Return an example with only the tokens from `start` to `stop` (exclusive) of an example with tokens."""
        assert self._build is not None
        row = int(self._rows[index])
        values: dict[str, Any] = {}
        for name, kind in self.fields.items():
            if kind in _LISTS:
                first, end = self._offsets[name][row : row + 2].tolist()
                part = self._columns[name].part(first, end)
                part = part if stop is None else part.part(start, stop)
                values[name] = Tokens(part, self._symbols[name]) if kind == SEQUENCE else part[:]
            else:
                value = int(self._columns[name][row : row + 1][0])
                values[name] = self._symbols[name][value] if kind == SYMBOL else value or None
        return self._build(**values)

    def counts(self, field: str) -> Counter[Any]:
        """Return the counts of a field's symbols other than None, and release the pages that were read."""
        symbols = self._symbols[field]
        totals = np.zeros(len(symbols), np.int64)
        for indices, _ in self._selected(field):
            totals += np.bincount(indices, minlength=len(symbols))
        return symbols.counter(totals)

    def adjacent_pairs(self, field: str) -> set[tuple[Any, Any]]:
        """Return each pair of adjacent symbols, and the pair (None, symbol) for each first symbol of an example."""
        symbols = self._symbols[field]
        firsts, pairs = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for indices, lengths in self._selected(field):
            begins = np.cumsum(lengths) - lengths
            adjacent = indices[:-1].astype(np.int64) * len(symbols) + indices[1:]
            pairs = np.union1d(pairs, np.delete(adjacent, begins[1:] - 1))
            firsts = np.union1d(firsts, indices[begins])
        first_pairs = {(None, symbols[first]) for first in firsts}
        return first_pairs | {(symbols[pair // len(symbols)], symbols[pair % len(symbols)]) for pair in pairs}

    def has_unknown(self, field: str, is_known: Callable[[Any], bool]) -> bool:
        """Whether the file has symbols, other than None, for which `is_known` is false."""
        return any(symbol is not None and not is_known(symbol) for symbol in self._symbols[field])

    def first_without(self, field: str) -> int | None:
        """Return the index of the first example in the file that lacks the field; None if no example lacks it."""
        is_none = np.array([symbol is None for symbol in self._symbols[field]], bool)
        read, rows = 0, np.sort(self._rows)
        for indices, lengths in self._selected(field) if is_none.any() else ():
            if (missing := is_none[indices]).any():
                row = rows[read + np.searchsorted(np.cumsum(lengths), missing.argmax(), side="right")]
                return int((self._rows == row).argmax())
            read += len(lengths)
        return None

    def _selected(self, field: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield a field's symbol indices in the selected examples, and their number per example, in the file's order.

        They are yielded in blocks of whole examples, whose pages are then released.
        """
        offsets = self._offsets[field] if field in self._offsets else np.arange(self._count + 1)
        is_selected = np.zeros(self._count, bool)
        is_selected[self._rows] = True
        bounds = np.unique(np.searchsorted(offsets, np.arange(0, offsets[-1], _BLOCK)))
        for start, stop in pairwise([*bounds.tolist(), self._count]):
            lengths, chosen = np.diff(offsets[start : stop + 1]), is_selected[start:stop]
            indices = self._columns[field][offsets[start] : offsets[stop]]
            yield indices[np.repeat(chosen, lengths)], lengths[chosen]
            self._store.release()
