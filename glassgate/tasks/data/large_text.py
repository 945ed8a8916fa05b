"""Text that is too large for memory: converted once to indices in an Arrow file, and read through a memory map."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from glassgate.tasks.data.arrow import Arrow, Column, Tokens, open_cached
from glassgate.tasks.data.files import regular_file
from glassgate.tasks.data.lines import open_text
from glassgate.tasks.errors import DataError
from glassgate.tasks.progress import Progress

_BLOCK = 2**22  # characters in a record batch, which then continues to the end of a line


def read_tokens(
    path: str | Path, token_kind: str, split: Callable[[str], Sequence[str]], progress: Progress | None = None
) -> Tokens:
    """Return the tokens of a text file. The converted file is cached.

    Args:
        path: a text file; any file if the tokens are bytes
        token_kind: the kind of the tokens that `split` returns
        split: splits complete lines of text into tokens
        progress: receives the progress of the conversion

    Raises:
        DataError: the file cannot be decoded or has only white space, or the cache folder is full
    """
    path = Path(path)

    def write(sink: pa.NativeFile) -> None:
        _write(sink, path, token_kind, split, progress or Progress())

    def open_column(file: Arrow) -> Column:
        batches = (file.reader.get_batch(k) for k in range(file.reader.num_record_batches))
        symbols = json.loads(file.reader.schema.metadata[b"symbols"])
        return Column(file, symbols, [batch.column(0).to_numpy() for batch in batches])

    column = open_cached([path], [token_kind], write, open_column)
    return Tokens(column, 0, len(column))


def _write(
    sink: pa.NativeFile, path: Path, token_kind: str, split: Callable[[str], Sequence[str]], progress: Progress
) -> None:
    """Convert a file to indices. The file is read twice: for the list of its symbols, then for their indices."""
    total = 2 * regular_file(path).stat().st_size
    is_blank = True
    found: set[str] = set()
    progress.converting(str(path), 0.0)
    for text, done in _blocks(path, token_kind):
        found.update(split(text))
        is_blank = is_blank and not text.strip()
        progress.converting(str(path), min(0.5, done / total))  # the text of a compressed file exceeds its size
    if is_blank:
        raise DataError(path, None, "the file has only white space; give one with text")
    symbols = sorted(found)
    encode = (_code_point_encoder if token_kind in ("character", "byte") else _symbol_encoder)(symbols)
    schema = pa.schema([("token", pa.from_numpy_dtype(_index_type(symbols)))], {"symbols": json.dumps(symbols)})
    with pa.ipc.new_file(sink, schema) as writer:
        for text, done in _blocks(path, token_kind):
            writer.write_batch(pa.record_batch([pa.array(encode(split(text)))], schema=schema))
            progress.converting(str(path), 0.5 + min(0.5, done / total))
    progress.converting(str(path), 1.0)


def _index_type(symbols: Sequence[str]) -> np.dtype:
    """The smallest type that can hold the index of each symbol."""
    return np.min_scalar_type(len(symbols) - 1)


def _code_point_encoder(symbols: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
    """Return a function that maps a text to the index of each character, with an array as the lookup table."""
    table = np.zeros(ord(symbols[-1]) + 1, _index_type(symbols))
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    return lambda text: table[np.frombuffer(cast(str, text).encode("utf-32-le"), np.uint32)]


def _symbol_encoder(symbols: Sequence[str]) -> Callable[[Sequence[str]], np.ndarray]:
    """Return a function that maps tokens to their indices, with a dictionary as the lookup table."""
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    return lambda tokens: np.fromiter(map(indices.__getitem__, tokens), _index_type(symbols), len(tokens))


def _blocks(path: Path, token_kind: str) -> Iterator[tuple[str, int]]:
    """Blocks of whole lines, each ending with a line feed, and the number of characters read so far."""
    done = 0
    with open_text(path, None, "latin-1" if token_kind == "byte" else "") as lines:
        for block in iter(lambda: lines.readlines(_BLOCK), []):
            text = "".join(block)
            done += len(text)
            yield (text if text.endswith("\n") else text + "\n"), done
