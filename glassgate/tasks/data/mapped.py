"""Text files too large for memory: numbered once, kept on disk as Arrow, and read through a memory map from then on."""

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa

from glassgate.storage import cache_folder
from glassgate.tasks.data.lines import not_utf8
from glassgate.tasks.errors import DataError

LARGE = 2**26
"""Bytes from which on a file is mapped."""

_FORMAT = 1
_BLOCK = 2**24  # bytes read at once; a line is never parted
_ROWS = 2**22  # units in a record batch


class Units(Sequence[str]):
    """Units of a file on disk, as a sequence of symbols of which none is in memory before it is asked for.

    Attributes:
        symbols: each once, at the place of its number
        digest: what file, as it was and was read, and which stretch of it
    """

    def __init__(self, file: "_File", start: int, stop: int):
        self._file = file
        self._start = start
        self._stop = stop
        self.symbols = file.symbols

    @property
    def digest(self) -> str:
        return f"{self._file.path.stem} {self._start} {self._stop}"

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
            return Units(self._file, self._start + start, self._start + max(start, stop))
        place = range(len(self))[place]
        return self.symbols[int(self.numbers(place, place + 1)[0])]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS):
            yield from map(self.symbols.__getitem__, self.numbers(start, min(start + _ROWS, len(self))).tolist())

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the symbols' numbers, `(stop - start,)`: the map itself, or a copy where two record batches meet."""
        return self._file.read(self._start + start, self._start + stop)

    def counts(self) -> Counter[str]:
        """Count the symbols; what is read for it leaves memory again."""
        totals = self._file.count(self._start, self._stop)
        return Counter({symbol: int(count) for symbol, count in zip(self.symbols, totals, strict=True) if count})


class Numbers:
    """What stands for an array `(L,)` of int64: each unit's number in a vocabulary, looked up where it is cut out.

    Args:
        units: the units
        table: the number of each of their symbols
        first: the number of what comes before the first unit, of all but the last one; None to begin with the first
    """

    ndim = 1

    def __init__(self, units: Units, table: np.ndarray, first: int | None = None):
        self.units = units
        self.table = table
        self.first = first

    def __len__(self) -> int:
        return len(self.units)

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, place: slice) -> np.ndarray:
        start, stop, _ = place.indices(len(self))
        if self.first is None:
            return self.table[self.units.numbers(start, stop)]
        found = self.table[self.units.numbers(max(0, start - 1), max(0, stop - 1))]
        return found if start or not stop else np.concatenate([[self.first], found])

    def tobytes(self) -> bytes:
        """Return what tells these numbers from others."""
        return f"{self.units.digest} {self.first}".encode() + self.table.tobytes()


def is_large(path: str | Path) -> bool:
    """Whether a file is to be mapped."""
    return Path(path).is_file() and Path(path).stat().st_size >= LARGE


def read_units(path: str | Path, unit: str, split: Callable[[str], Sequence[str]]) -> Units:
    """Return the units of a text file, numbered now or by an earlier call for the same file.

    Args:
        path: a UTF-8 file, of any bytes for the unit "byte"
        unit: what `split` makes
        split: parts a text that ends with a line into units

    Raises:
        DataError: the file is not UTF-8, or holds nothing but blanks
    """
    path = Path(path).resolve()
    stat = path.stat()
    key = json.dumps([_FORMAT, str(path), stat.st_size, stat.st_mtime_ns, unit])
    kept = cache_folder() / "data" / f"{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.arrow"
    file = _opened(kept)
    if file is None:
        _write(kept, path, unit, split)
        file = _opened(kept)
        assert file is not None
    return Units(file, 0, file.length)


class _File:
    """A memory map of numbers in record batches of `_ROWS`, and their symbols."""

    def __init__(self, path: Path):
        self.path = path
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self.symbols: list[str] = json.loads(reader.schema.metadata[b"symbols"])
        self.length = int(reader.schema.metadata[b"length"])
        self.batches = [reader.get_batch(k).column(0).to_numpy() for k in range(reader.num_record_batches)]

    def read(self, start: int, stop: int) -> np.ndarray:
        parts = []
        while start < stop:
            batch, place = divmod(start, _ROWS)
            parts.append(self.batches[batch][place : place + stop - start])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, self.batches[0][:0]])

    def count(self, start: int, stop: int) -> np.ndarray:
        totals = np.zeros(len(self.symbols), np.int64)
        reader = pa.ipc.open_file(pa.OSFile(str(self.path)))  # no map: its pages would stay
        for batch in range(start // _ROWS, -(-stop // _ROWS)):
            numbers = reader.get_batch(batch).column(0).to_numpy()
            numbers = numbers[max(0, start - batch * _ROWS) : stop - batch * _ROWS]
            totals += np.bincount(numbers, minlength=len(self.symbols))
        return totals


def _opened(path: Path) -> _File | None:
    """The file, if it is there and whole."""
    try:
        file = _File(path)
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None
    return file if sum(map(len, file.batches)) == file.length else None


def _write(kept: Path, path: Path, unit: str, split: Callable[[str], Sequence[str]]) -> None:
    """Number a file in two readings, one for the symbols and one for their places, and rename the result into place."""
    numbering: _Characters | _Strings = (_Characters if unit in ("character", "byte") else _Strings)()
    length, blank = 0, True
    for text in _blocks(path, unit):
        length += numbering.meet(split(text))
        blank = blank and not text.strip()
    if blank:
        raise DataError(path, None, "the file holds nothing but blanks; give one with text")
    symbols = numbering.symbols()
    kind = np.min_scalar_type(len(symbols) - 1)
    metadata = {"symbols": json.dumps(symbols), "length": str(length)}
    schema = pa.schema([("unit", pa.from_numpy_dtype(kind))], metadata)
    kept.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=kept.parent, suffix=".part")
    os.close(handle)
    try:
        with pa.OSFile(part, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            numbers = (numbering.numbers(split(text)).astype(kind) for text in _blocks(path, unit))
            for rows in _in_rows(numbers):
                writer.write_batch(pa.record_batch([pa.array(rows)], schema=schema))
        os.replace(part, kept)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _in_rows(parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Cut and join arrays to a length of `_ROWS`, the last to what is left."""
    rest: list[np.ndarray] = []
    for part in parts:
        joined = np.concatenate([*rest, part])
        whole = len(joined) // _ROWS * _ROWS
        yield from (joined[start : start + _ROWS] for start in range(0, whole, _ROWS))
        rest = [joined[whole:]]
    if rest and len(rest[0]):
        yield rest[0]


def _blocks(path: Path, unit: str) -> Iterator[str]:
    """The text in parts of whole lines, all ended by a line feed."""
    lines = 0
    with path.open("rb") as file:
        for number, block in enumerate(iter(lambda: file.readlines(_BLOCK), [])):
            raw = b"".join(block)
            if raw.find(b"\r") >= 0:
                raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            raw = raw if raw.endswith(b"\n") else raw + b"\n"
            if unit == "byte":
                yield raw.decode("latin-1")
                continue
            try:
                yield raw.decode("utf-8-sig" if number == 0 else "utf-8")
            except UnicodeDecodeError as error:
                before = raw[: error.start]
                column = error.start - before.rfind(b"\n")
                raise not_utf8(path, lines + before.count(b"\n") + 1, column, raw[error.start]) from None
            lines += raw.count(b"\n")


class _Characters:
    """Numbers for the characters of strings, by tables."""

    def __init__(self) -> None:
        self.counts = np.zeros(0x110000, np.int64)

    def meet(self, units: Sequence[str]) -> int:
        codes = _codes(units)
        counts = np.bincount(codes)
        self.counts[: len(counts)] += counts
        return len(codes)

    def symbols(self) -> list[str]:
        (met,) = self.counts.nonzero()
        self.table = np.zeros(0x110000, np.uint32)
        self.table[met] = np.arange(len(met))
        return [chr(code) for code in met]

    def numbers(self, units: Sequence[str]) -> np.ndarray:
        return self.table[_codes(units)]


def _codes(units: Sequence[str]) -> np.ndarray:
    assert isinstance(units, str)
    return np.frombuffer(units.encode("utf-32-le"), np.uint32)


class _Strings:
    """Numbers for strings, by a dictionary."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def meet(self, units: Sequence[str]) -> int:
        for unit in units:
            self.places.setdefault(unit, len(self.places))
        return len(units)

    def symbols(self) -> list[str]:
        return list(self.places)

    def numbers(self, units: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.places.__getitem__, units), np.int64, len(units))
