"""Text that is too large for memory: converted once to indices in an Arrow file, and read through a memory map."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.files import regular_file
from glassgate.tasks.data.lines import opened_text
from glassgate.tasks.data.store.arrow import Arrow, Column, Units, cached
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_BLOCK = 2**22  # characters in a record batch, and more to the end of a line


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
        batches = (file.reader.get_batch(k) for k in range(file.reader.num_record_batches))
        symbols = json.loads(file.reader.schema.metadata[b"symbols"])
        return Column(file, symbols, [batch.column(0).to_numpy() for batch in batches])

    column = cached([path], [unit], write, opened)
    return Units(column, 0, len(column))


def _write(
    sink: pa.NativeFile, path: Path, unit: str, split: Callable[[str], Sequence[str]], progress: Progress
) -> None:
    """Convert a file to indices. The file is read twice: for the list of its symbols, then for their indices."""
    readings, blank = 2 * regular_file(path).stat().st_size, True
    found: set[str] = set()
    progress.converting(str(path), 0.0)
    for text, done in _blocks(path, unit):
        found.update(split(text))
        blank = blank and not text.strip()
        progress.converting(str(path), min(0.5, done / readings))  # more bytes than on disk if compressed
    if blank:
        raise DataError(path, None, "the file has only blanks; give one with text")
    symbols = sorted(found)
    numbers = (_by_code_point if unit in ("character", "byte") else _by_symbol)(symbols)
    kind = pa.from_numpy_dtype(_smallest(symbols))
    schema = pa.schema([("unit", kind)], {"symbols": json.dumps(symbols)})
    with pa.ipc.new_file(sink, schema) as writer:
        for text, done in _blocks(path, unit):
            writer.write_batch(pa.record_batch([pa.array(numbers(split(text)))], schema=schema))
            progress.converting(str(path), 0.5 + min(0.5, done / readings))
    progress.converting(str(path), 1.0)


def _smallest(symbols: Sequence[str]) -> np.dtype:
    """The smallest type of indices."""
    return np.min_scalar_type(len(symbols) - 1)


def _by_code_point(symbols: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
    """A function of a text that returns the index of each character: an array lookup."""
    table = np.zeros(ord(symbols[-1]) + 1, _smallest(symbols))
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    return lambda text: table[np.frombuffer(cast(str, text).encode("utf-32-le"), np.uint32)]


def _by_symbol(symbols: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
    """A function of tokens that returns the index of each."""
    places = {symbol: place for place, symbol in enumerate(symbols)}
    return lambda units: np.fromiter(map(places.__getitem__, units), _smallest(symbols), len(units))


def _blocks(path: Path, unit: str) -> Iterator[tuple[str, int]]:
    """The text in parts of whole lines that end with a line feed, each with the number of characters read so far."""
    done = 0
    with opened_text(path, None, "latin-1" if unit == "byte" else "") as lines:
        for part in iter(lambda: lines.readlines(_BLOCK), []):
            text = "".join(part)
            done += len(text)
            yield (text if text.endswith("\n") else text + "\n"), done
