"""Text that is too large for memory: converted once to indices in an Arrow file, and read through a memory map."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.files import opened, opened_text, regular_file
from glassgate.tasks.data.store.arrow import Arrow, Column, Units, cached
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_BLOCK = 2**24  # bytes read at once; lines are never split
_ROWS = 2**22  # tokens in a record batch


def read_units(
    path: str | Path, unit: str, split: Callable[[str], Sequence[str]], progress: Progress | None = None
) -> Units:
    """Return the tokens of a text file. The converted file is cached.

    Args:
        path: a text file; any file if the tokens are bytes
        unit: the kind of the tokens that `split` returns
        split: splits a text that ends with a line into tokens
        progress: receives the progress of the conversion

    Raises:
        DataError: the file cannot be decoded or has only blanks, or the cache folder is full
    """
    path = Path(path)

    def write(sink: pa.NativeFile) -> None:
        _write(sink, path, unit, split, progress or Progress())

    def opened(file: Arrow) -> Column:
        symbols = json.loads(file.reader.schema.metadata[b"symbols"])
        parts = [batch.column(0).to_numpy() for batch in file.batches()]
        return Column(file, 0, symbols, parts)

    column = cached([path], [unit], write, opened)
    return Units(column, 0, len(column))


def _write(
    sink: pa.NativeFile, path: Path, unit: str, split: Callable[[str], Sequence[str]], progress: Progress
) -> None:
    """Convert a file to indices. The file is read twice: for the list of its symbols, then for their indices."""
    numbering: _Characters | _Strings = (_Characters if unit in ("character", "byte") else _Strings)()
    readings, blank = 2 * regular_file(path).stat().st_size, True
    progress.converting(str(path), 0.0)
    for text, done in _blocks(path, unit):
        numbering.add(split(text))
        blank = blank and not text.strip()
        progress.converting(str(path), min(0.5, done / readings))  # more bytes than on disk if compressed
    if blank:
        raise DataError(path, None, "the file has only blanks; give one with text")
    symbols = numbering.symbols()
    kind = np.min_scalar_type(len(symbols) - 1)

    def numbers() -> Iterator[np.ndarray]:
        for text, done in _blocks(path, unit):
            yield numbering.numbers(split(text)).astype(kind)
            progress.converting(str(path), 0.5 + min(0.5, done / readings))

    schema = pa.schema([("unit", pa.from_numpy_dtype(kind))], {"symbols": json.dumps(symbols)})
    with pa.ipc.new_file(sink, schema) as writer:
        for rows in _in_rows(numbers()):
            writer.write_batch(pa.record_batch([pa.array(rows)], schema=schema))
    progress.converting(str(path), 1.0)


def _in_rows(parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Re-chunk arrays to a length of `_ROWS`; the last one may be shorter."""
    rest: list[np.ndarray] = []
    for part in parts:
        joined = np.concatenate([*rest, part])
        whole = len(joined) // _ROWS * _ROWS
        yield from (joined[start : start + _ROWS] for start in range(0, whole, _ROWS))
        rest = [joined[whole:]]
    if rest and len(rest[0]):
        yield rest[0]


def _blocks(path: Path, unit: str) -> Iterator[tuple[str, int]]:
    """The text in parts of whole lines that end with a line feed, each with the number of bytes read so far."""
    done = 0
    if unit == "byte":
        with opened(path) as file:
            for block in iter(lambda: file.readlines(_BLOCK), []):
                raw = b"".join(block)
                done += len(raw)
                raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                yield (raw if raw.endswith(b"\n") else raw + b"\n").decode("latin-1"), done
        return
    with opened_text(path, newline=None) as lines:
        for part in iter(lambda: lines.readlines(_BLOCK), []):
            text = "".join(part)
            done += len(text)
            yield (text if text.endswith("\n") else text + "\n"), done


class _Characters:
    """Assigns indices to characters, with an array indexed by code point."""

    def __init__(self) -> None:
        self.counts = np.zeros(0x110000, np.int64)

    def add(self, units: Sequence[str]) -> None:
        counts = np.bincount(_codes(units))
        self.counts[: len(counts)] += counts

    def symbols(self) -> list[str]:
        (codes,) = self.counts.nonzero()
        self.table = np.zeros(0x110000, np.uint32)
        self.table[codes] = np.arange(len(codes))
        return [chr(code) for code in codes]

    def numbers(self, units: Sequence[str]) -> np.ndarray:
        return self.table[_codes(units)]


def _codes(units: Sequence[str]) -> np.ndarray:
    assert isinstance(units, str)
    return np.frombuffer(units.encode("utf-32-le"), np.uint32)


class _Strings:
    """Assigns indices to strings, with a dictionary."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def add(self, units: Sequence[str]) -> None:
        for unit in units:
            self.places.setdefault(unit, len(self.places))

    def symbols(self) -> list[str]:
        return list(self.places)

    def numbers(self, units: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.places.__getitem__, units), np.int64, len(units))
