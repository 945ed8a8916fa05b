"""Arrays of numbers: in memory, or in the cache folder, where they are written once and read through memory maps."""

import hashlib
import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassgate.storage import cache_folder, replaced_files
from glassgate.system import SYSTEM
from glassgate.tasks.data.files import identify_file, regular_file
from glassgate.tasks.data.lines import requested_encoding
from glassgate.tasks.errors import DataError

LARGE = 2**26
"""Files of at least this size, in bytes, are stored in the cache folder and memory-mapped."""

_FORMAT = 2  # the version of stored data, a part of the name of its folder
_CONTENT = "content.json"  # written after the arrays
_READS_PER_RELEASE = 2**11  # reads of a map until its pages are released; each read maps about 64 KB
_BLOCK = 2**22  # bytes that are kept in memory, and values that are copied at once


class Arrays:
    """Arrays of one axis that grow by parts: in memory, or in the files of a folder."""

    def __init__(self, folder: Path | None = None):
        self._folder = folder
        self._parts: dict[str, list[np.ndarray]] = {}  # those that are not in a file, after an empty one of its type
        self._pending = 0  # the bytes of these parts

    def add(self, name: str, part: np.ndarray) -> None:
        """Append values to an array."""
        self._parts.setdefault(name, []).append(part)
        self._pending += part.nbytes
        if self._folder is not None and self._pending >= _BLOCK:
            for each in self._parts:
                self._write(each)
            self._pending = 0

    def _write(self, name: str) -> None:
        """Write parts to a file. A file whose type cannot hold their values is written again."""
        stored, part, path = self._parts[name][0], np.concatenate(self._parts[name]), self._path(name)
        if path.exists() and stored.dtype != part.dtype:
            narrow, wider = np.memmap(path, stored.dtype, "r"), path.with_suffix(".wider")
            with wider.open("wb") as file:
                for start in range(0, len(narrow), _BLOCK):
                    file.write(narrow[start : start + _BLOCK].astype(part.dtype).data)
            del narrow
            SYSTEM.replace(wider, path)
        if len(part):
            with path.open("ab") as file:
                file.write(part.view(np.uint8).data)
        self._parts[name] = [np.zeros(0, part.dtype)]

    def __getitem__(self, name: str) -> np.ndarray:
        if self._folder is None:
            parts = self._parts[name]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._write(name)
        path, empty = self._path(name), self._parts[name][0]
        return np.memmap(path, empty.dtype, "r") if path.exists() else empty

    def in_memory(self, content: Any) -> "Store":
        """Return the arrays, which are in memory, with other content."""
        return Store({name: self[name] for name in self._parts}, content)

    def finish(self, digest: str, content: Any) -> None:
        """Write the digest of a folder, the types and the sizes of its arrays, and other content, as JSON values."""
        assert self._folder is not None
        arrays = [[name, self[name].dtype.str, len(self[name])] for name in self._parts]
        stored = {"digest": digest, "arrays": arrays, "content": content}
        (self._folder / _CONTENT).write_text(json.dumps(stored), "utf-8")

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / str([*self._parts].index(name))


class Store:
    """Arrays by name, in memory or in memory maps.

    Attributes:
        arrays: the arrays, of one axis each
        content: other content
        digest: a hash of the version of the source and the settings of its reader; empty in memory
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], content: Any, digest: str = "", maps: Sequence[mmap.mmap] = ()
    ):
        self.arrays, self.content, self.digest = arrays, content, digest
        self._maps = maps
        self._reads = 0

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder that `Arrays` has written, and that has the name of the digest.

        Raises:
            OSError, ValueError, LookupError, TypeError: the folder is missing, incomplete, damaged or renamed
        """
        stored = json.loads((folder / _CONTENT).read_text("utf-8"))
        if stored["digest"] != folder.name:
            raise ValueError(folder)
        arrays, maps = {}, []
        for number, (name, dtype, length) in enumerate(stored["arrays"]):
            arrays[name] = np.zeros(0, dtype)
            if length:
                with (folder / str(number)).open("rb") as file:
                    maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                arrays[name] = np.frombuffer(maps[-1], dtype, length)
        return cls(arrays, stored["content"], folder.name, maps)

    def count_read(self) -> None:
        """Count a read, and release the pages after every 2,048 reads: they count as memory of this process."""
        self._reads += 1
        if self._reads % _READS_PER_RELEASE == 0:
            self.release()

    def release(self) -> None:
        """Release the memory of the pages that this process has read."""
        for each in self._maps:
            SYSTEM.release_pages(each)


def open_cached(sources: Sequence[Path], settings: Sequence[object], write: Callable[[Arrays], Any]) -> Store:
    """Open the stored data of some files; write it first if it is missing or damaged, or the files have changed.

    Args:
        settings: the settings of the reader, as JSON values
        write: adds arrays, and returns other content as JSON values

    Raises:
        DataError: the disk is full
    """
    key: list[object] = [_FORMAT, *filter(None, [requested_encoding()])]
    key += [identify_file(source) for source in sources]
    digest = hashlib.blake2b(json.dumps([*key, *settings]).encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "data" / digest
    try:
        return Store.open(folder)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    try:
        with replaced_files(folder, create=True) as temporary:
            arrays = Arrays(temporary)
            arrays.finish(digest, write(arrays))
    except OSError as error:
        raise DataError(
            sources[0],
            None,
            f"could not be stored in {folder.parent} in the format for large data ({error}); free space there, or name "
            "another folder in the environment variable GLASSGATE_CACHE",
        ) from error
    return Store.open(folder)


def is_large(paths: Sequence[str | Path]) -> bool:
    """Whether files are together so large that they are stored in the cache folder and memory-mapped."""
    files = [regular_file(path) for path in paths]
    return all(file.is_file() for file in files) and sum(file.stat().st_size for file in files) >= LARGE


class ArrayRange:
    """A range of an array of a store, or of an array in memory; slicing reads the values."""

    def __init__(self, array: np.ndarray, store: Store | None = None, start: int = 0, stop: int | None = None):
        self._array, self._store = array, store
        self.start, self.stop = start, len(array) if stop is None else stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, span: slice) -> np.ndarray:
        if self._store is not None:
            self._store.count_read()
        start, stop, _ = span.indices(len(self))
        return self._array[self.start + start : self.start + max(start, stop)]

    def part(self, start: int, stop: int) -> "ArrayRange":
        """Return the range from `start` to `stop` within this one, without reading it."""
        start, stop = (min(self.start + position, self.stop) for position in (start, max(start, stop)))
        return ArrayRange(self._array, self._store, start, stop)

    @property
    def digest(self) -> str:
        """The digest of the store; empty in memory."""
        return "" if self._store is None else self._store.digest

    def release(self) -> None:
        """Release the pages that were read."""
        if self._store is not None:
            self._store.release()


class LazyArray:
    """An array `(L, ...)` whose values are read when it is sliced.

    Args:
        read: returns the values from `start` to `stop`
        length: L
        digest: bytes that identify the values

    Example:
        >>> squares = LazyArray(lambda start, stop: np.arange(start, stop) ** 2, 5, b"squares")
        >>> squares.shape, squares[3:].tolist()
        ((5,), [9, 16])
    """

    def __init__(self, read: Callable[[int, int], np.ndarray], length: int, digest: bytes):
        self._read, self._digest = read, digest
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
