"""Arrow files in the cache folder: written once, shared by all processes, and read through a memory map."""

import hashlib
import json
import mmap
import os
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numpy as np
import pyarrow as pa

from glassgate.storage import cache_folder
from glassgate.tasks.data.files import identity, regular_file
from glassgate.tasks.errors import DataError

LARGE = 2**26
"""Files of at least this size, in bytes, are stored in the cache folder and memory-mapped."""

_FORMAT = 1
_READS = 2**11  # reads between two releases of pages; each read maps about 64 KB
_CHUNK = 2**16  # tokens that are looked up at once; longer sequences are lazy
_COUNTED = 2**22  # tokens that are counted at once

Read = TypeVar("Read")


class Arrow:
    """An Arrow file: on disk behind a memory map, or in memory.

    Attributes:
        reader: the reader of the file
        digest: a hash of the version of the source and the settings of the reader; empty in memory
    """

    def __init__(self, where: Path | pa.Buffer):
        self._path = where if isinstance(where, Path) else None
        self._map: mmap.mmap | None = None
        self._reads = 0
        if isinstance(where, Path):
            with where.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.reader = pa.ipc.open_file(where if self._map is None else pa.py_buffer(self._map))
        self.digest = "" if self._path is None else self._path.stem

    def read(self) -> None:
        """Count a read of the map, and release its pages after every 2,048 reads.

        The operating system counts mapped pages as memory of this process.
        """
        self._reads += 1
        if self._reads % _READS == 0:
            self.release()

    def release(self) -> None:
        """Release the pages of the map that this process has read."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the map: their memory is released after use."""
        reader = self.reader if self._path is None else pa.ipc.open_file(pa.OSFile(str(self._path)))
        return (reader.get_batch(k) for k in range(reader.num_record_batches))


def cached(
    sources: Sequence[Path],
    settings: Sequence[object],
    write: Callable[[pa.NativeFile], None],
    opened: Callable[[Arrow], Read],
) -> Read:
    """Open the cached Arrow file of some files; write it first if it is missing or the files have changed.

    Args:
        sources: the files
        settings: the settings of the reader, as JSON values
        write: writes the Arrow file
        opened: wraps the opened file

    Raises:
        DataError: the disk is full
    """
    key: list[object] = [_FORMAT]
    key += [identity(source) for source in sources]
    digest = hashlib.blake2b(json.dumps([*key, *settings]).encode(), digest_size=16).hexdigest()
    path = cache_folder() / "data" / f"{digest}.arrow"
    try:
        return opened(Arrow(path))
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):  # missing or damaged
        pass
    try:
        _replaced(path, write)
    except OSError as error:
        raise DataError(
            sources[0],
            None,
            f"could not be stored in {path.parent} in the format for large data ({error}); free space there, or name "
            "another folder in the environment variable GLASSGATE_CACHE",
        ) from error
    return opened(Arrow(path))


def _replaced(path: Path, write: Callable[[pa.NativeFile], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    try:
        with pa.OSFile(part, "wb") as sink:
            write(sink)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


class Column:
    """A column of an Arrow file: indices or numbers in record batches.

    Attributes:
        symbols: the symbol of each index
    """

    def __init__(self, file: Arrow, symbols: list[Any], parts: Sequence[np.ndarray]):
        self.file = file
        self.symbols = symbols
        self._parts = parts
        self.starts = np.cumsum([0, *map(len, parts)]).tolist()
        self._derived: dict[object, Any] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, place: slice) -> np.ndarray:
        """Return the values of a range: a view of the map, or a copy if the range spans record batches."""
        start, stop, _ = place.indices(len(self))
        pieces = []
        self.file.read()
        while start < stop:
            batch = bisect_right(self.starts, start) - 1
            first = self.starts[batch]
            pieces.append(self._parts[batch][start - first : stop - first])
            start += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self._parts[0][:0]])

    def derived(self, key: object, make: Callable[[Sequence[str]], Read]) -> Read:
        """Return a value derived from the symbols, computed once for each key."""
        if key not in self._derived:
            self._derived[key] = make(self.symbols)
        value: Read = self._derived[key]
        return value


class Units(Sequence[str]):
    """Tokens of a file as a lazy sequence of symbols.

    Attributes:
        symbols: the symbol of each index
        digest: a hash of the version of the file, the settings of the reader and the range
    """

    def __init__(self, column: Column, start: int, stop: int):
        self.column = column
        self._start = start
        self._stop = stop
        self.symbols: list[str] = column.symbols

    @property
    def digest(self) -> str:
        return f"{self.column.file.digest} {self._start} {self._stop}"

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "Units": ...
    def __getitem__(self, place: int | slice) -> "str | Units":
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            assert step == 1
            return Units(self.column, self._start + start, self._start + max(start, stop))
        place = range(len(self))[place]
        return self.symbols[int(self.numbers(place, place + 1)[0])]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from map(self.symbols.__getitem__, self.numbers(start, min(start + _CHUNK, len(self))).tolist())

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the indices of the symbols, `(stop - start,)`; see `Column`."""
        return self.column[self._start + start : self._start + stop]

    def counts(self) -> Counter[str]:
        """Return the counts of the symbols; the pages read are released."""
        totals = np.zeros(len(self.symbols), np.int64)
        for start in range(0, len(self), _COUNTED):
            numbers = self.numbers(start, min(start + _COUNTED, len(self)))
            totals += np.bincount(numbers, minlength=len(self.symbols))
            self.column.file.release()
        return Counter({symbol: int(count) for symbol, count in zip(self.symbols, totals, strict=True) if count})


class LazyArray:
    """An array `(L, ...)` whose values are read when a slice is read.

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

    def __getitem__(self, place: slice) -> np.ndarray:
        start, stop, _ = place.indices(len(self))
        return self._read(start, max(start, stop))

    def tobytes(self) -> bytes:
        """Return bytes that identify the values, so that a hash of the data does not read them from disk."""
        return self._digest


def look_up(units: Units, table: np.ndarray) -> np.ndarray:
    """Return the table's value for each token, `(L,)`; a `LazyArray` for many tokens on disk."""

    def read(start: int, stop: int) -> np.ndarray:
        values: np.ndarray = table[units.numbers(start, stop)]
        return values

    if len(units) > _CHUNK and units.column.file.digest:
        return cast(np.ndarray, LazyArray(read, len(units), units.digest.encode() + table.tobytes()))
    return read(0, len(units))


def is_large(paths: Sequence[str | Path]) -> bool:
    """Whether files are together so large that they are stored in the cache folder and memory-mapped."""
    existing = [each for path in paths if (each := regular_file(path)).is_file()]
    return len(existing) == len(paths) and sum(path.stat().st_size for path in existing) >= LARGE
