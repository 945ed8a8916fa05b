"""Examples of a file in Arrow format, in memory or in the cache folder; indexing builds an example object."""

import hashlib
import json
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.files import count_lines, row_limit
from glassgate.tasks.data.store.arrow import Arrow, Column, StoredTokens, is_large, open_cached
from glassgate.tasks.progress import Progress

Example = TypeVar("Example")

SEQUENCE, SYMBOL, LINES, LINE = "sequence", "symbol", "lines", "line"
"""Kinds of fields, in this order: a symbol per token; one symbol or None; a number per token; one number."""

_LISTS = (SEQUENCE, LINES)
_SYMBOLS = (SEQUENCE, SYMBOL)
# A record batch is written when it has this many examples or tokens.
_MAX_EXAMPLES = 2**14
_MAX_TOKENS = 2**20


def store(
    examples: Iterable[Any],
    fields: Mapping[str, str],
    build: Callable[..., Example],
    sources: Sequence[str | Path],
    settings: Sequence[object],
    progress: Progress | None = None,
) -> "Stored[Example]":
    """Store the examples of files, or open those that an earlier call has stored on disk.

    Args:
        examples: the examples; not read if they are already stored
        fields: the attributes to store, with the kind of each; the first attribute contains the tokens
        build: builds an example from these attributes
        sources: the files; if they are large, the examples are stored on disk
        settings: the settings of the reader, as JSON values
        progress: receives the progress of a large file

    Raises:
        DataError: the files cannot be read, or the disk is full
    """
    callbacks = progress or Progress()

    def wrap(file: Arrow) -> Stored[Example]:
        return Stored(_Table(file, fields, build))

    if not is_large(sources):
        sink = pa.BufferOutputStream()
        _write(sink, examples, fields, lambda line: None)
        return wrap(Arrow(sink.getvalue()))
    paths = [Path(source) for source in sources]

    def write(sink: pa.NativeFile) -> None:
        callbacks.converting(str(sources[0]), 0.0)
        lines = max(1, count_lines(paths[0]))

        def report(line: int) -> None:
            callbacks.converting(str(sources[0]), min(1.0, line / lines))

        _write(sink, examples, fields, report)
        callbacks.converting(str(sources[0]), 1.0)

    limit = row_limit()
    return open_cached(paths, [*settings, *fields, *([limit.max_rows] if limit else [])], write, wrap)


class Stored(Sequence[Example]):
    """All examples of a file, or a selection of them in any order.

    Attributes:
        lengths: the number of tokens of each example, `(N,)`
        fields: the stored attributes, with the kind of each
    """

    def __init__(self, table: "_Table[Example]", rows: np.ndarray | None = None):
        self._table = table
        self.fields = table.fields
        self._rows = np.arange(table.starts[-1], dtype=np.uint32) if rows is None else rows

    @property
    def lengths(self) -> np.ndarray:
        return self._table.lengths[self._rows]

    @property
    def digest(self) -> str:
        """A hash of the version of the file, the settings of the reader and the selection; empty if in memory."""
        rows = hashlib.blake2b(self._rows.tobytes(), digest_size=16).hexdigest()
        return self._table.file.digest and f"{self._table.file.digest} {rows}"

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> "Stored[Example]": ...
    def __getitem__(self, index: int | slice | np.ndarray) -> "Example | Stored[Example]":
        if isinstance(index, slice | np.ndarray):
            return Stored(self._table, self._rows[index])
        return self._table.example(int(self._rows[index]))

    def cut(self, index: int, start: int, stop: int) -> Example:
        """Return an example that has only the tokens `start` to `stop` (exclusive) of a stored example."""
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


def counts(examples: Sequence[Example], field: str, symbols: Callable[[Example], Iterable[Any]]) -> Mapping[Any, int]:
    """Count the symbols of a field of examples.

    Args:
        examples: stored examples, or a sequence of example objects
        field: the name of the field; read only from stored examples
        symbols: returns the symbols of an example object
    """
    if isinstance(examples, Stored):
        return examples.counts(field)
    return Counter(chain.from_iterable(map(symbols, examples)))


class _Table(Generic[Example]):
    """The arrays of a file's record batches, shared by all selections of its examples."""

    def __init__(self, file: Arrow, fields: Mapping[str, str], build: Callable[..., Example]):
        self.file = file
        self.fields = fields
        self.build = build
        self.offsets: dict[str, list[np.ndarray]] = {name: [] for name, kind in fields.items() if kind in _LISTS}
        symbols: dict[str, list[Any]] = {name: [] for name in fields}
        values: dict[str, list[np.ndarray]] = {name: [] for name in fields}
        sizes = []
        for number in range(file.reader.num_record_batches):
            batch, metadata = file.reader.get_batch_with_custom_metadata(number)
            sizes.append(batch.num_rows)
            for name, new_symbols in json.loads(metadata[b"symbols"]).items():
                symbols[name] += new_symbols
            for name in fields:
                column = batch.column(name)
                if name in self.offsets:
                    self.offsets[name].append(column.offsets.to_numpy())
                    column = column.values
                values[name].append(column.to_numpy())
        self.starts = [0, *accumulate(sizes)]
        self.columns = {name: Column(file, symbols[name], values[name]) for name in fields}
        self.lengths = np.concatenate([np.diff(offsets) for offsets in self.offsets[next(iter(fields))]])
        file.release()

    def example(self, row: int, start: int = 0, stop: int | None = None) -> Example:
        batch = bisect_right(self.starts, row) - 1
        row -= self.starts[batch]
        fields: dict[str, Any] = {}
        for name, kind in self.fields.items():
            column = self.columns[name]
            if kind in _LISTS:
                first, end = self.offsets[name][batch][row : row + 2].tolist()
                end = end if stop is None else min(end, first + stop)
                tokens = StoredTokens(column, column.starts[batch] + first + start, column.starts[batch] + end)
                fields[name] = tokens if kind == SEQUENCE else tokens.indices(0, len(tokens))
            else:
                position = self.starts[batch] + row
                (value,) = column[position : position + 1].tolist()
                fields[name] = column.symbols[value] if kind == SYMBOL else value
        return self.build(**fields)

    def selected_indices(self, field: str, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield a field's symbol indices in the examples `rows`, and their number per example, by record batch."""
        rows = np.sort(rows)
        bounds = np.searchsorted(rows, np.array(self.starts, rows.dtype)).tolist()
        for number, batch in enumerate(self.file.batches()):
            start, stop = self.starts[number : number + 2]
            is_selected = np.zeros(stop - start, bool)
            is_selected[rows[bounds[number] : bounds[number + 1]] - start] = True
            column, lengths = batch.column(field), np.ones(stop - start, np.int64)
            if field in self.offsets:
                column, lengths = column.values, np.diff(column.offsets.to_numpy())
            yield column.to_numpy()[np.repeat(is_selected, lengths)], lengths[is_selected]


class _Batch:
    """A growing record batch. Symbols are numbered in the order of their first occurrence in the file."""

    def __init__(self, fields: Mapping[str, str]):
        self.fields = fields
        self.index_of = {
            name: defaultdict[Any, int](count().__next__) for name, kind in fields.items() if kind in _SYMBOLS
        }
        self.written_symbols = dict.fromkeys(self.index_of, 0)  # the number of symbols in earlier batches
        types = {name: pa.list_(pa.uint32()) if kind in _LISTS else pa.uint32() for name, kind in fields.items()}
        self.schema = pa.schema(types)
        self.token_field = next(iter(fields))
        self._clear()

    def _clear(self) -> None:
        self.values = {name: array("I") for name in self.fields}
        self.offsets = {name: array("i", [0]) for name, kind in self.fields.items() if kind in _LISTS}

    @property
    def is_full(self) -> bool:
        return len(self.offsets[self.token_field]) > _MAX_EXAMPLES or len(self.values[self.token_field]) >= _MAX_TOKENS

    def add(self, example: Any) -> None:
        for name, kind in self.fields.items():
            value, values = getattr(example, name), self.values[name]
            if kind == SEQUENCE:
                values.extend(map(self.index_of[name].__getitem__, value))
            elif kind == LINES:
                values.extend(value)
            else:
                values.append(self.index_of[name][value] if kind == SYMBOL else value)
            if kind in _LISTS:
                self.offsets[name].append(len(values))

    def write(self, writer: pa.RecordBatchFileWriter) -> int:
        """Write the batch, empty it, and return its last line number."""
        arrays = []
        for name in self.fields:
            column = pa.array(np.asarray(self.values[name]))
            if name in self.offsets:
                column = pa.ListArray.from_arrays(np.asarray(self.offsets[name]), column)
            arrays.append(column)
        new_symbols = {
            name: list(islice(symbols, self.written_symbols[name], None)) for name, symbols in self.index_of.items()
        }
        self.written_symbols = {name: len(symbols) for name, symbols in self.index_of.items()}
        batch = pa.record_batch(arrays, schema=self.schema)
        writer.write_batch(batch, custom_metadata={"symbols": json.dumps(new_symbols)})
        last_lines = [self.values[name][-1:] for name, kind in self.fields.items() if kind not in _SYMBOLS]
        self._clear()
        return max(chain.from_iterable(last_lines), default=0)


def _write(
    sink: pa.NativeFile, examples: Iterable[Any], fields: Mapping[str, str], report: Callable[[int], None]
) -> None:
    """Write examples, and pass the last line number of each record batch to `report`."""
    batch = _Batch(fields)
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for example in examples:
            batch.add(example)
            if batch.is_full:
                report(batch.write(writer))
        batch.write(writer)
