"""Arrow files in the cache folder: written once, shared by all processes, and read through a memory map."""

import hashlib
import json
import mmap
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numpy as np
import pyarrow as pa

from glassgate.storage import cache_folder, replaced_file
from glassgate.system import SYSTEM
from glassgate.tasks.data.files import identify_file, regular_file
from glassgate.tasks.data.lines import requested_encoding
from glassgate.tasks.errors import DataError

LARGE = 2**26
"""Files of at least this size, in bytes, are stored in the cache folder and memory-mapped."""

_FORMAT = 2  # the version of the layout of cached files
_READS_PER_RELEASE = 2**11  # reads of a map until its pages are released; each read maps about 64 KB
_CHUNK = 2**16  # tokens that are looked up at once; longer sequences are lazy
_COUNT_CHUNK = 2**22  # tokens that are counted at once

Result = TypeVar("Result")


class Arrow:
    """An Arrow file: on disk behind a memory map, or in memory.

    A file on disk ends with its name without the suffix, so that a renamed file is noticed.

    Raises:
        ValueError: the file on disk is damaged or renamed

    Attributes:
        reader: the reader of the file
        digest: a hash of the version of the source and the settings of the reader; empty for a file in memory
    """

    def __init__(self, source: Path | pa.Buffer):
        self._path = source if isinstance(source, Path) else None
        self._map: mmap.mmap | None = None
        self._reads = 0
        self.digest = "" if self._path is None else self._path.stem
        if isinstance(source, Path):
            with source.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._size = len(self._map) - len(self.digest)
            if self._map[self._size :] != self.digest.encode():
                raise ValueError(f"{source} is damaged or renamed")
            self.reader = pa.ipc.open_file(pa.py_buffer(self._map), self._size)
        else:
            self.reader = pa.ipc.open_file(source)

    def count_read(self) -> None:
        """Count a read of the map, and release its pages after every 2,048 reads.

        The operating system counts mapped pages as memory of this process.
        """
        self._reads += 1
        if self._reads % _READS_PER_RELEASE == 0:
            self.release()

    def release(self) -> None:
        """Release the memory of the pages of the map that this process has read."""
        if self._map is not None:
            SYSTEM.release_pages(self._map)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches, read from the file without the map. The memory of each is released after its use."""
        reader = self.reader if self._path is None else pa.ipc.open_file(pa.OSFile(str(self._path)), self._size)
        return (reader.get_batch(k) for k in range(reader.num_record_batches))


def open_cached(
    sources: Sequence[Path],
    settings: Sequence[object],
    write: Callable[[pa.NativeFile], None],
    wrap: Callable[[Arrow], Result],
) -> Result:
    """Open the cached Arrow file of some source files; write it first if it is missing or the sources have changed.

    Args:
        sources: the source files
        settings: the settings of the reader, as JSON values
        write: writes the Arrow file
        wrap: returns the result for the opened Arrow file

    Raises:
        DataError: the disk is full
    """
    key: list[object] = [_FORMAT, *filter(None, [requested_encoding()])]
    key += [identify_file(source) for source in sources]
    digest = hashlib.blake2b(json.dumps([*key, *settings]).encode(), digest_size=16).hexdigest()
    path = cache_folder() / "data" / f"{digest}.arrow"
    try:
        return wrap(Arrow(path))
    except (OSError, pa.ArrowException, LookupError, TypeError, ValueError):  # missing, damaged or renamed
        pass
    try:
        _write_file(path, write)
    except OSError as error:
        raise DataError(
            sources[0],
            None,
            f"could not be stored in {path.parent} in the format for large data ({error}); free space there, or name "
            "another folder in the environment variable GLASSGATE_CACHE",
        ) from error
    return wrap(Arrow(path))


def _write_file(path: Path, write: Callable[[pa.NativeFile], None]) -> None:
    """Write a temporary file, and rename it when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        write(sink)
        sink.write(path.stem.encode())


class Column:
    """A column: one array of numbers, such as indices of symbols, for each record batch.

    Args:
        file: the file on disk whose memory map the arrays are in; None for arrays in memory

    Attributes:
        symbols: the symbol of each index
        starts: the position of the first value of each record batch, followed by the total number of values
    """

    def __init__(self, file: Arrow | None, symbols: list[Any], arrays: Sequence[np.ndarray]):
        self._file = file
        self.symbols = symbols
        self._arrays = arrays
        self.starts = [0, *accumulate(map(len, arrays))]
        self._derived: dict[object, Any] = {}

    @property
    def digest(self) -> str:
        """The digest of the file; empty for a column in memory."""
        return "" if self._file is None else self._file.digest

    def release(self) -> None:
        """Release the pages of the map that were read."""
        if self._file is not None:
            self._file.release()

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, span: slice) -> np.ndarray:
        """Return the values of a range: a view of the map, or a copy if the range spans several record batches."""
        start, stop, _ = span.indices(len(self))
        pieces = []
        if self._file is not None:
            self._file.count_read()
        while start < stop:
            batch = bisect_right(self.starts, start) - 1
            first = self.starts[batch]
            pieces.append(self._arrays[batch][start - first : stop - first])
            start += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self._arrays[0][:0]])

    def derived(self, key: object, make: Callable[[Sequence[str]], Result]) -> Result:
        """Return a value derived from the symbols, computed once for each key."""
        if key not in self._derived:
            self._derived[key] = make(self.symbols)
        value: Result = self._derived[key]
        return value


class Tokens(Sequence[str]):
    """A range of the tokens of a column, in memory or on disk; those on disk are read when they are indexed.

    Attributes:
        symbols: the symbol of each index
        digest: a hash of the version of the file, the settings of the reader and the range

    Example:
        >>> tokens = Tokens.of("to be or not to be".split())
        >>> tokens.symbols, tokens.indices(1, 6).tolist()
        (['to', 'be', 'or', 'not'], [1, 2, 3, 0, 1])
    """

    def __init__(self, column: Column, start: int, stop: int):
        self.column = column
        self._start = start
        self._stop = stop
        self.symbols: list[str] = column.symbols

    @classmethod
    def of(cls, tokens: Sequence[str]) -> "Tokens":
        """Return tokens in memory as a column; a `Tokens` is returned unchanged."""
        if isinstance(tokens, cls):
            return tokens
        index_of = defaultdict[str, int](count().__next__)
        indices = np.fromiter(map(index_of.__getitem__, tokens), np.uint32, len(tokens))
        return cls(Column(None, list(index_of), [indices]), 0, len(indices))

    @property
    def digest(self) -> str:
        return f"{self.column.digest} {self._start} {self._stop}"

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Tokens": ...
    def __getitem__(self, index: int | slice) -> "str | Tokens":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1
            return Tokens(self.column, self._start + start, self._start + max(start, stop))
        position = range(len(self))[index]
        return self.symbols[int(self.indices(position, position + 1)[0])]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from map(self.symbols.__getitem__, self.indices(start, min(start + _CHUNK, len(self))).tolist())

    def indices(self, start: int, stop: int) -> np.ndarray:
        """Return the indices of the symbols, `(stop - start,)`: a view or a copy, see `Column`."""
        return self.column[self._start + start : self._start + stop]

    def counts(self) -> Counter[str]:
        """Return the count of each symbol, and release the pages that were read."""
        totals = np.zeros(len(self.symbols), np.int64)
        for start in range(0, len(self), _COUNT_CHUNK):
            indices = self.indices(start, min(start + _COUNT_CHUNK, len(self)))
            totals += np.bincount(indices, minlength=len(self.symbols))
            self.column.release()
        return Counter({symbol: int(count) for symbol, count in zip(self.symbols, totals, strict=True) if count})


class LazyArray:
    """An array `(L, ...)` whose values are read when it is sliced.

    Args:
        read: returns the values from `start` to `stop`
        length: the length of the first axis
        digest: bytes that identify the values

    Example:
        >>> squares = LazyArray(lambda start, stop: np.arange(start, stop) ** 2, 5, b"squares")
        >>> squares.shape, squares[3:].tolist()
        ((5,), [9, 16])
    """

    def __init__(self, read: Callable[[int, int], np.ndarray], length: int, digest: bytes):
        self._read = read
        self._digest = digest
        self.shape = (length, *read(0, 0).shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, _ = span.indices(len(self))
        return self._read(start, max(start, stop))

    def tobytes(self) -> bytes:
        """Return bytes that identify the values, so that a hash of the data does not read them from disk."""
        return self._digest


def look_up(tokens: Tokens, table: np.ndarray) -> np.ndarray:
    """Return a value for each token, `(L,)`; for many tokens on disk, a `LazyArray`.

    Args:
        tokens: L tokens
        table: the value of each symbol
    """

    def read(start: int, stop: int) -> np.ndarray:
        values: np.ndarray = table[tokens.indices(start, stop)]
        return values

    if len(tokens) > _CHUNK and tokens.column.digest:
        return cast(np.ndarray, LazyArray(read, len(tokens), tokens.digest.encode() + table.tobytes()))
    return read(0, len(tokens))


def is_large(paths: Sequence[str | Path]) -> bool:
    """Whether files are together so large that they are stored in the cache folder and memory-mapped."""
    files = [regular_file(path) for path in paths]
    return all(file.is_file() for file in files) and sum(file.stat().st_size for file in files) >= LARGE
