"""Opens data files, including standard input, pipes and compressed files. The module `lines` reads their text."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from glassgate.system import SYSTEM
from glassgate.tasks.errors import DataError, UserError
from glassgate.tasks.wording import shortened_list

STDIN = "-"
"""The path by which commands name standard input."""
_COMPRESSION_SUFFIXES = {
    b"\x1f\x8b": ".gz",
    b"\xfd7zXZ\0": ".xz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\3\4": ".zip",
}
"""The suffix of compressed files, by their first bytes."""

_BLOCK_SIZE = 2**20  # bytes; smaller files are read once and kept in memory
_SETTLED = 10**8  # nanoseconds since the last change; before that, a time stamp cannot show a change that follows


@dataclass
class RowLimit:
    """The number of rows that are read from a workbook, and whether a workbook had more."""

    max_rows: int
    is_exceeded: bool = False


_ROW_LIMIT: ContextVar[RowLimit | None] = ContextVar("row limit", default=None)


@contextmanager
def limited_rows(max_rows: int) -> Iterator[RowLimit]:
    """Read only the first rows of workbooks inside the block, because a workbook takes minutes per million rows."""
    limit = RowLimit(max_rows)
    token = _ROW_LIMIT.set(limit)
    try:
        yield limit
    finally:
        _ROW_LIMIT.reset(token)


def row_limit() -> RowLimit | None:
    """Return the limit of the current `limited_rows`; None outside of it."""
    return _ROW_LIMIT.get()


class Identity(NamedTuple):
    """Identifies a version of a file: its path, its size, and its time of change or, for piped data, a digest."""

    path: str
    size: int
    version: int | str


def identify_file(path: str | Path) -> Identity:
    """Identify the current version of a file, for caches on disk."""
    regular = regular_file(path)
    digest = next((digest for copy, digest in _COPIES.values() if copy == regular), None)
    try:
        status = regular.stat()
    except OSError:
        return Identity(str(regular), 0, 0)
    return Identity(STDIN if digest else str(regular.resolve()), status.st_size, digest or status.st_mtime_ns)


def version_of(path: str | Path) -> tuple[Identity, int]:
    """Identify the current version of a file, for caches in memory.

    A file that has just been changed has a new version in each call, so it is read again. So has one that was replaced
    by a file of equal size and time.
    """
    identity, now = identify_file(path), time.time_ns()
    is_settled = isinstance(identity.version, str) or now - identity.version >= _SETTLED
    try:
        replaced = regular_file(path).stat().st_ctime_ns
    except OSError:
        replaced = 0
    return identity, replaced if is_settled else now


_COPIES: dict[object, tuple[Path, str]] = {}
"""The path and the digest of the copy of each stream; copies are deleted at exit."""


def regular_file(path: str | Path) -> Path:
    """Return the path of a regular file: the given path or, for standard input and pipes, the path of a copy.

    Each stream is copied once per process, so its data can be read several times.
    """
    if str(path) == STDIN:
        if sys.stdin is None:
            raise DataError(path, None, "it is closed; give a file, or send text to the command")
        stream = sys.stdin.buffer
        _check_no_device(path, stream)
        return _copy_once(stream, nullcontext(stream))
    try:
        status = Path(path).stat()
    except OSError:
        return Path(path)  # opening it reports the reason
    if not stat.S_ISFIFO(status.st_mode):
        return Path(path)
    return _copy_once((status.st_dev, status.st_ino), _open_raw(Path(path), path))


def _copy_once(key: object, opened: AbstractContextManager[BinaryIO]) -> Path:
    """Return the path of the copy of a stream; copy it first if there is none."""
    if key not in _COPIES:
        digest = hashlib.blake2b(digest_size=16)
        try:
            path, file = SYSTEM.temporary_file()
            with opened as stream, file:
                for block in read_blocks(stream):
                    digest.update(block)
                    file.write(block)
        except OSError as error:
            remedy = "set TMPDIR to a folder with more space"
            raise DataError(STDIN, None, f"could not be copied to a temporary file ({error}); {remedy}") from None
        _COPIES[key] = path, digest.hexdigest()
    return _COPIES[key][0]


def readable_file(path: str | Path) -> Path:
    """Return a regular file as `regular_file` does, after checking that it can be opened."""
    regular = regular_file(path)
    with _open_raw(regular, path):
        return regular


@contextmanager
def loading(path: str | Path, content: str, remedy: str, reason: str = "") -> Iterator[None]:
    """Convert the errors of a library that loads a file to a DataError.

    Args:
        content: the expected content, for the message
        remedy: the end of the message
        reason: the reason in the message; the message of the library if empty
    """
    try:
        yield
    except (UserError, ImportError):
        raise
    except Exception as error:  # openpyxl, NumPy, SciPy, Arrow and zipfile raise almost any exception
        reason = reason or " ".join(str(error).split()) or type(error).__name__
        raise DataError(path, None, f"expected {content}, but it does not load ({reason}); {remedy}") from None


def count_lines(path: str | Path) -> int:
    """Return the number of line feeds in a file."""
    with open_file(path) as file:
        return sum(block.count(b"\n") for block in read_blocks(file))


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in blocks."""
    return iter(lambda: file.read(_BLOCK_SIZE), b"")


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file or standard input for reading bytes; compressed content is decompressed.

    Raises:
        DataError: the file is missing, a folder, a device or damaged, or cannot be opened
    """
    with _open_raw(regular_file(path), path) as file:
        head = file.peek(8)
        suffix = next((suffix for start, suffix in _COMPRESSION_SUFFIXES.items() if head.startswith(start)), None)
        if suffix is None:
            yield file
            return
        with loading(path, "compressed content", "download or create it again"):
            yield _decompress(path, file, suffix)


@contextmanager
def _open_raw(path: Path, shown_path: str | Path) -> Iterator[Any]:
    """Open a file without decompression; error messages name `shown_path`."""
    try:
        status = path.stat()
        is_small = stat.S_ISREG(status.st_mode) and status.st_size < _BLOCK_SIZE
        file = io.BufferedReader(io.BytesIO(_content(path, version_of(path)))) if is_small else path.open("rb")
    except OSError as error:
        raise _opening_error(path, shown_path, error) from None
    with file:
        _check_no_device(shown_path, file)
        yield file


def _opening_error(path: Path, shown_path: str | Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(shown_path, None, "no such file; check the path, or the folder you started from")
    if path.is_dir():  # a PermissionError on Windows
        return DataError(shown_path, None, "this is a folder; give a file")
    if isinstance(error, PermissionError):
        return DataError(shown_path, None, "no permission to read this file")
    return DataError(shown_path, None, f"this cannot be opened ({error.strerror}); check the path")


@lru_cache(8)
def _content(path: Path, _version: object) -> bytes:
    """The content of a small file, which the detection of formats and of columns reads repeatedly."""
    return path.read_bytes()


def _decompress(path: str | Path, file: BinaryIO, suffix: str) -> BinaryIO:
    if suffix == ".zst":
        import pyarrow as pa

        return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")))
    if suffix == ".zip":
        archive = zipfile.ZipFile(file)
        if len(names := _files_in(archive)) != 1:
            shown = shortened_list(names, 4)
            raise DataError(
                path, None, f"expected an archive of one file, got {len(names)}: {shown}; extract one of them"
            )
        return cast(BinaryIO, archive.open(names[0]))
    reader: Any = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[suffix]
    return cast(BinaryIO, reader(file))


def archive_members(path: str | Path) -> list[str]:
    """Return the names of the files in a ZIP archive; an empty list for any other file."""
    try:
        with _open_raw(regular_file(path), path) as file, loading(path, "", ""), zipfile.ZipFile(file) as archive:
            return _files_in(archive)
    except DataError:
        return []


def _files_in(archive: zipfile.ZipFile) -> list[str]:
    """The files of an archive, without the ones that macOS adds."""
    names = [member.filename for member in archive.infolist() if not member.is_dir()]
    return [name for name in names if not name.startswith("__MACOSX/") and Path(name).name != ".DS_Store"]


def suffix_of(path: str | Path) -> str:
    """Return the suffix of a file's name in lower case. A suffix such as .gz for compression is ignored.

    Example:
        >>> suffix_of("Train.CONLL.gz")
        '.conll'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _COMPRESSION_SUFFIXES.values():
        return suffix
    inner = Path(path.stem).suffix.lower()
    if not inner and suffix == ".zip" and len(names := archive_members(path)) == 1:
        return suffix_of(names[0])
    return inner


def _check_no_device(path: str | Path, file: BinaryIO) -> None:
    """Check that an open file is not a device such as /dev/zero. Terminals are allowed."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except io.UnsupportedOperation:  # a file without a descriptor
        return
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
        given = (
            "send text through a pipe, or give a file" if str(path) == STDIN else "give a file, or - for standard input"
        )
        raise DataError(path, None, f"this is a device, not a file; {given}")
