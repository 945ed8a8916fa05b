"""The lines of a text file, compressed or not, with their numbers; what cannot be read is reported by file and line."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from glassgate.tasks.errors import DataError

STDIN = "-"


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and its text without the line end.

    Args:
        path: a UTF-8 file, or "-" for standard input

    Raises:
        DataError: the file is missing, empty, a folder, or not UTF-8
    """
    empty = True
    for number, raw in enumerate(raw_lines(path), start=1):
        empty = False
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error.start + 1, raw[error.start]) from None
        yield number, text.rstrip("\r\n")
    if empty:
        raise DataError(path, None, "the file is empty; give one with at least one line of data")


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file, or of standard input, as bytes with their ends.

    Raises:
        DataError: the file is missing, a folder or a device
    """
    with _standard_input() if str(path) == STDIN else opened(path) as file:
        for line in file:
            if b"\r" in line:
                yield from line.splitlines(keepends=True)
            else:
                yield line


def count_lines(path: str | Path) -> int:
    """Return how many line feeds a file has."""
    with opened(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**24), b""))


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading.

    Raises:
        DataError: the file is missing, a folder, a device, or cannot be opened for another reason
    """
    try:
        file = Path(path).open("rb")  # noqa: SIM115, faults of its reader are not faults of opening
    except FileNotFoundError:
        raise DataError(path, None, "no such file; check the path, or the folder you started from") from None
    except IsADirectoryError:
        raise DataError(path, None, "this is a folder; give a file") from None
    except PermissionError:
        raise DataError(path, None, "no permission to read this file") from None
    except OSError as error:
        raise DataError(path, None, f"this cannot be opened ({error.strerror}); check the path") from None
    with file:
        check_no_device(path, file)
        with _unpacked(path, file) as content:
            yield content


@contextmanager
def _unpacked(path: str | Path, file: BinaryIO) -> Iterator[BinaryIO]:
    """The content of a file that may be compressed, in UTF-8 where it is UTF-16."""
    try:
        packed = _how(file, _PACKED)
        with nullcontext(file) if packed is None else _OPENERS[packed](file) as plain:
            encoded = _how(plain, _UTF_16)
            yield plain if encoded is None else io.BufferedReader(_Recoded(plain))
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, None, f"its compressed content is damaged ({error}); download or make it again") from None
    except UnicodeDecodeError as error:
        if error.encoding.startswith("utf-16"):
            raise DataError(path, None, f"expected UTF-16, as its first bytes say, got {error.reason}") from None
        raise


def _how(file: BinaryIO, marks: Mapping[bytes, str]) -> str | None:
    """What the first bytes say; they stay to be read."""
    if not isinstance(file, io.BufferedReader):
        return None
    first = file.peek(8)[:8]
    return next((name for mark, name in marks.items() if first.startswith(mark)), None)


class _Recoded(io.RawIOBase):
    """UTF-16 read as UTF-8, without its mark."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.decoder = codecs.getincrementaldecoder("utf-16")()
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raw = b"-"
        while raw and not self.rest:
            raw = self.file.read(2**16)
            self.rest = self.decoder.decode(raw, final=not raw).encode()
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def _zstandard(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")))


_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    "gzip": lambda file: io.BufferedReader(gzip.GzipFile(fileobj=file)),
    "xz": lambda file: io.BufferedReader(lzma.LZMAFile(file)),  # noqa: SIM115, `_unpacked` closes it
    "bzip2": lambda file: io.BufferedReader(bz2.BZ2File(file)),
    "zstd": _zstandard,
}
PACKED_SUFFIXES = (".gz", ".xz", ".bz2", ".zst")


def suffix_of(path: str | Path) -> str:
    """Return the suffix of a file's name in lower case, without that of its compression.

    Example:
        >>> suffix_of("Train.CONLL.gz")
        '.conll'
    """
    path = Path(path)
    return (Path(path.stem) if path.suffix.lower() in PACKED_SUFFIXES else path).suffix.lower()


def check_no_device(path: str | Path, file: BinaryIO) -> None:
    """See that an open file has an end, which /dev/zero and its like have not; a terminal has one.

    Raises:
        DataError: it is a device
    """
    try:
        mode = os.fstat(file.fileno()).st_mode
    except io.UnsupportedOperation:  # no file of the system
        return
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
        raise DataError(path, None, "this is a device, not a file; give a file, or - for standard input")


@contextmanager
def _standard_input() -> Iterator[BinaryIO]:
    if sys.stdin is None:
        raise DataError("standard input", None, "it is closed; give a file, or send text to the command")
    check_no_device("standard input", sys.stdin.buffer)
    yield sys.stdin.buffer


def not_utf8(path: str | Path, line: int, column: int, byte: int) -> DataError:
    """Return what to raise for a byte that UTF-8 does not have there."""
    encoding = "UTF-16" if (line, column) == (1, 1) and byte in codecs.BOM_UTF16 else "ISO-8859-1"
    return DataError(
        path,
        line,
        f"expected UTF-8, got byte 0x{byte:02x} in column {column}; "
        f"convert the file, for instance: iconv -f {encoding} -t UTF-8 {path} > utf8{Path(path).suffix}",
    )
