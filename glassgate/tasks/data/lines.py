"""The lines of a text file with their numbers; what cannot be read is reported by file and line."""

import codecs
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
        yield file


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
