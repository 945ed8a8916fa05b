"""A corpus: examples as columns of numbers, in memory or in the cache folder behind a memory map.

| kind of a field | value in an example | column |
|---|---|---|
| `SEQUENCE` | symbols, such as tokens or the labels of tokens | indices of symbols, offsets, symbols |
| `SYMBOL` | one symbol, such as a label, or None | indices of symbols, symbols |
| `NUMBERS` | whole numbers, such as the line of each token | numbers, offsets |
| `NUMBER` | one whole number; None is stored as 0 | numbers |

Indexing builds an example. Examples without tokens, such as series, are kept as objects, next to the columns of their
labels.
"""

import hashlib
import json
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.arrow import Arrow, Column, Tokens, is_large, open_cached
from glassgate.tasks.data.files import count_lines, row_limit
from glassgate.tasks.progress import Progress

Example = TypeVar("Example")

SEQUENCE, SYMBOL, NUMBERS, NUMBER = "sequence", "symbol", "lines", "line"
"""The kinds of fields; the names are part of the keys of cached files."""

_LISTS = (SEQUENCE, NUMBERS)
_SYMBOLS = (SEQUENCE, SYMBOL)
# A record batch is written when it has this many examples or tokens.
_MAX_EXAMPLES = 2**14
_MAX_TOKENS = 2**20


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
        sources: the files; if they are large, the examples are stored on disk
        settings: the settings of the reader, as JSON values
        progress: receives the progress of a large file

    Raises:
        DataError: the files cannot be read, or the disk is full
    """
    if not is_large(sources):
        return Corpus.of(examples, fields, build)
    callbacks = progress or Progress()
    paths = [Path(source) for source in sources]

    def write(sink: pa.NativeFile) -> None:
        callbacks.converting(str(sources[0]), 0.0)
        lines = max(1, count_lines(paths[0]))

        def report(line: int) -> None:
            callbacks.converting(str(sources[0]), min(1.0, line / lines))

        _write(sink, examples, fields, report)
        callbacks.converting(str(sources[0]), 1.0)

    limit = row_limit()
    key = [*settings, *fields, *([limit.max_rows] if limit else [])]
    return open_cached(paths, key, write, lambda file: Corpus(_Table(file, _read(file), fields, build)))


class Corpus(Sequence[Example]):
    """All examples of a file or of a collection, or a selection of them in any order.

    Attributes:
        fields: the attributes with a column, with the kind of each
        has_tokens: whether examples are built from the columns, the first of which contains their tokens; otherwise
            they are kept as objects
        lengths: the number of tokens of each example, `(N,)`, if it has tokens

    Example:
        >>> words = Corpus.of([["a", "rose"], ["a", "day"]])
        >>> len(words), words[1], list(words[:1])
        (2, ['a', 'day'], [['a', 'rose']])
    """

    def __init__(self, table: "_Table[Example]", rows: np.ndarray | None = None):
        self._table = table
        self.fields = table.fields
        self.has_tokens = table.objects is None
        self._rows = np.arange(table.starts[-1], dtype=np.uint32) if rows is None else rows

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        fields: Mapping[str, str] | None = None,
        build: Callable[..., Example] | None = None,
    ) -> "Corpus[Example]":
        """Return a corpus in memory; a corpus is returned unchanged.

        Args:
            examples: the examples
            fields: the attributes that become columns, with the kind of each
            build: builds an example from these attributes; None to keep the examples as objects
        """
        if isinstance(examples, cls):
            return examples
        fields = fields or {}
        objects = None if build else list(examples)
        batches = list(_record_batches(examples if objects is None else objects, fields))
        return cls(_Table(None, batches, fields, build, objects))

    @property
    def lengths(self) -> np.ndarray:
        return self._table.lengths[self._rows]

    @property
    def digest(self) -> str:
        """A hash of the version of the file, the settings of the reader and the selection; empty if in memory."""
        rows = hashlib.blake2b(self._rows.tobytes(), digest_size=16).hexdigest()
        return "" if self._table.file is None else f"{self._table.file.digest} {rows}"

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> "Corpus[Example]": ...
    def __getitem__(self, index: int | slice | np.ndarray) -> "Example | Corpus[Example]":
        if isinstance(index, slice | np.ndarray):
            return Corpus(self._table, self._rows[index])
        return self._table.example(int(self._rows[index]))

    def cut(self, index: int, start: int, stop: int) -> Example:
        """Return an example with only the tokens from `start` to `stop` (exclusive) of an example with tokens."""
        return self._table.example(int(self._rows[index]), start, stop)

    def counts(self, field: str) -> Counter[Any]:
        """Return the counts of a field's symbols, and release the pages that were read."""
        symbols = self._table.columns[field].symbols
        totals = np.zeros(len(symbols), np.int64)
        for indices, _ in self._table.selected_indices(field, self._rows):
            totals += np.bincount(indices, minlength=len(symbols))
        return Counter({symbol: int(count) for symbol, count in zip(symbols, totals, strict=True) if count})

    def adjacent_pairs(self, field: str) -> set[tuple[Any, Any]]:
        """Return each pair of adjacent symbols, and the pair (None, symbol) for each first symbol of an example."""
        symbols = self._table.columns[field].symbols
        firsts, pairs = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for indices, lengths in self._table.selected_indices(field, self._rows):
            begins = np.cumsum(lengths) - lengths
            adjacent = indices[:-1].astype(np.int64) * len(symbols) + indices[1:]
            pairs = np.union1d(pairs, np.delete(adjacent, begins[1:] - 1))
            firsts = np.union1d(firsts, indices[begins])
        first_pairs = {(None, symbols[first]) for first in firsts}
        return first_pairs | {(symbols[pair // len(symbols)], symbols[pair % len(symbols)]) for pair in pairs}

    def has_unknown(self, field: str, is_known: Callable[[Any], bool]) -> bool:
        """Whether the file has symbols, other than None, for which `is_known` is false."""
        return any(symbol is not None and not is_known(symbol) for symbol in self._table.columns[field].symbols)

    def first_without(self, field: str) -> int | None:
        """Return the index of the first example in the file that lacks the field; None if no example lacks it."""
        is_none = np.array([symbol is None for symbol in self._table.columns[field].symbols], bool)
        read, rows = 0, np.sort(self._rows)
        for indices, lengths in self._table.selected_indices(field, self._rows) if is_none.any() else ():
            if (missing := is_none[indices]).any():
                row = rows[read + np.searchsorted(np.cumsum(lengths), missing.argmax(), side="right")]
                return int((self._rows == row).argmax())
            read += len(lengths)
        return None


class _RecordBatch(NamedTuple):
    """The columns of some examples.

    Attributes:
        num_rows: the number of examples
        values: the numbers of each column
        offsets: where the values of each example begin and end, in columns of several values per example
        symbols: the symbols of each column that earlier batches lack
    """

    num_rows: int
    values: Mapping[str, np.ndarray]
    offsets: Mapping[str, np.ndarray]
    symbols: Mapping[str, Sequence[Any]]


class _Table(Generic[Example]):
    """The columns of all examples, shared by all selections of them.

    Args:
        file: the file on disk; None if the columns are in memory
        batches: the columns
        fields: the attributes with a column, with the kind of each
        build: builds an example from its attributes
        objects: the examples, if they are kept as objects
    """

    def __init__(
        self,
        file: Arrow | None,
        batches: Iterable[_RecordBatch],
        fields: Mapping[str, str],
        build: Callable[..., Example] | None,
        objects: list[Example] | None = None,
    ):
        self.file, self.fields, self.build, self.objects = file, fields, build, objects
        parts = list(batches)
        self.batches = parts if file is None else []  # those on disk are read again, without the map
        self.offsets = {name: [part.offsets[name] for part in parts] for name, kind in fields.items() if kind in _LISTS}
        symbols = {name: [*chain.from_iterable(part.symbols.get(name, ()) for part in parts)] for name in fields}
        self.starts = [0, *accumulate(part.num_rows for part in parts)]
        self.columns = {name: Column(file, symbols[name], [part.values[name] for part in parts]) for name in fields}
        if objects is None:
            self.lengths = np.concatenate([np.diff(offsets) for offsets in self.offsets[next(iter(fields))]])
        if file is not None:
            file.release()

    def example(self, row: int, start: int = 0, stop: int | None = None) -> Example:
        if self.build is None:
            assert self.objects is not None
            return self.objects[row]
        batch = bisect_right(self.starts, row) - 1
        row -= self.starts[batch]
        fields: dict[str, Any] = {}
        for name, kind in self.fields.items():
            column = self.columns[name]
            if kind in _LISTS:
                first, end = self.offsets[name][batch][row : row + 2].tolist()
                end = end if stop is None else min(end, first + stop)
                first = min(first + start, end)
                tokens = Tokens(column, column.starts[batch] + first, column.starts[batch] + end)
                fields[name] = tokens if kind == SEQUENCE else tokens.indices(0, len(tokens))
            else:
                position = self.starts[batch] + row
                (value,) = column[position : position + 1].tolist()
                fields[name] = column.symbols[value] if kind == SYMBOL else value or None
        return self.build(**fields)

    def selected_indices(self, field: str, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield a field's symbol indices in the examples `rows`, and their number per example, by record batch."""
        rows = np.sort(rows)
        bounds = np.searchsorted(rows, np.array(self.starts, rows.dtype)).tolist()
        for number, batch in enumerate(self.batches if self.file is None else map(_converted, self.file.batches())):
            start, stop = self.starts[number : number + 2]
            is_selected = np.zeros(stop - start, bool)
            is_selected[rows[bounds[number] : bounds[number + 1]] - start] = True
            lengths = np.diff(batch.offsets[field]) if field in batch.offsets else np.ones(stop - start, np.int64)
            yield batch.values[field][np.repeat(is_selected, lengths)], lengths[is_selected]


class _Batch:
    """A growing record batch. Symbols are numbered in the order of their first occurrence in the corpus."""

    def __init__(self, fields: Mapping[str, str]):
        self.fields = fields
        self.index_of = {
            name: defaultdict[Any, int](count().__next__) for name, kind in fields.items() if kind in _SYMBOLS
        }
        self.written_symbols = dict.fromkeys(self.index_of, 0)  # the number of symbols in earlier batches
        self._clear()

    def _clear(self) -> None:
        self.num_rows = 0
        self.values = {name: array("I") for name in self.fields}
        self.offsets = {name: array("i", [0]) for name, kind in self.fields.items() if kind in _LISTS}

    @property
    def is_full(self) -> bool:
        return self.num_rows >= _MAX_EXAMPLES or any(len(self.values[name]) >= _MAX_TOKENS for name in self.offsets)

    @property
    def last_line(self) -> int:
        """The largest number of the last example."""
        last = [self.values[name][-1:] for name, kind in self.fields.items() if kind not in _SYMBOLS]
        return max(chain.from_iterable(last), default=0)

    def add(self, example: Any) -> None:
        self.num_rows += 1
        for name, kind in self.fields.items():
            value, values = getattr(example, name), self.values[name]
            if kind == SEQUENCE:
                values.extend(map(self.index_of[name].__getitem__, value))
            elif kind == NUMBERS:
                values.extend(value)
            else:
                values.append(self.index_of[name][value] if kind == SYMBOL else value or 0)
            if kind in _LISTS:
                self.offsets[name].append(len(values))

    def take(self) -> _RecordBatch:
        """Return the batch, and empty it."""
        new_symbols = {
            name: list(islice(symbols, self.written_symbols[name], None)) for name, symbols in self.index_of.items()
        }
        self.written_symbols = {name: len(symbols) for name, symbols in self.index_of.items()}
        values = {name: np.asarray(column) for name, column in self.values.items()}
        offsets = {name: np.asarray(column) for name, column in self.offsets.items()}
        batch = _RecordBatch(self.num_rows, values, offsets, new_symbols)
        self._clear()
        return batch


def _record_batches(
    examples: Iterable[Any], fields: Mapping[str, str], report: Callable[[int], None] = lambda line: None
) -> Iterator[_RecordBatch]:
    """Yield the columns of examples, at least one batch; pass the last line number of each to `report`."""
    batch = _Batch(fields)
    for example in examples:
        batch.add(example)
        if batch.is_full:
            report(batch.last_line)
            yield batch.take()
    yield batch.take()


def _write(
    sink: pa.NativeFile, examples: Iterable[Any], fields: Mapping[str, str], report: Callable[[int], None]
) -> None:
    types = {name: pa.list_(pa.uint32()) if kind in _LISTS else pa.uint32() for name, kind in fields.items()}
    schema = pa.schema(types)
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in _record_batches(examples, fields, report):
            columns = {name: pa.array(column) for name, column in batch.values.items()}
            columns |= {name: pa.ListArray.from_arrays(at, columns[name]) for name, at in batch.offsets.items()}
            metadata = {"symbols": json.dumps(batch.symbols)}
            writer.write_batch(pa.record_batch(columns, schema=schema), custom_metadata=metadata)


def _read(file: Arrow) -> Iterator[_RecordBatch]:
    for number in range(file.reader.num_record_batches):
        batch, metadata = file.reader.get_batch_with_custom_metadata(number)
        yield _converted(batch)._replace(symbols=json.loads(metadata[b"symbols"]))


def _converted(batch: pa.RecordBatch) -> _RecordBatch:
    """A batch of Arrow as NumPy arrays, which are views."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    lists = {name: column for name, column in columns.items() if pa.types.is_list(column.type)}
    offsets = {name: column.offsets.to_numpy() for name, column in lists.items()}
    values = {name: (column.values if name in lists else column).to_numpy() for name, column in columns.items()}
    return _RecordBatch(batch.num_rows, values, offsets, {})
