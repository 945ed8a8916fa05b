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
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from glassgate.system import SYSTEM
from glassgate.tasks.errors import DataError, UserError

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

_BLOCK_SIZE = 2**20  # bytes
_MAX_KEPT = 8  # files
_SETTLED = (
    10**8
)  # nanoseconds since the last change of a file; its time stamp cannot show a change that follows at once


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


def regular_file(path: str | Path) -> Path:
    """Return the path of a regular file: the given path or, for standard input and pipes, the path of a copy.

    Each stream is copied once per process, so its data can be read several times.

    Raises:
        DataError: standard input is closed, the file is a device, or the disk is full
    """
    if str(path) == STDIN:
        if sys.stdin is None:
            raise DataError(path, None, "it is closed; give a file, or send text to the command")
        check_no_device(path, sys.stdin.buffer)
        return _copy_once(sys.stdin.buffer, sys.stdin.buffer)
    try:
        status = Path(path).stat()
    except OSError:
        return Path(path)  # opening it reports the reason
    if not stat.S_ISFIFO(status.st_mode):
        return Path(path)
    key = (status.st_dev, status.st_ino)
    if key in _COPIES:
        return _COPIES[key].path
    with _open_raw(path) as file:
        return _copy_once(key, file)


def readable_file(path: str | Path) -> Path:
    """Return a regular file as `regular_file` does, after checking that it can be opened.

    Raises:
        DataError: see `open_file`
    """
    regular = regular_file(path)
    with _open_raw(regular, path):
        return regular


class _Copy(NamedTuple):
    path: Path
    digest: str


_COPIES: dict[object, _Copy] = {}
"""Copies of streams, by stream; they are deleted at exit."""


def _copy_once(key: object, stream: BinaryIO) -> Path:
    """Return the path of the copy of a stream; copy it first if there is none."""
    if key not in _COPIES:
        digest = hashlib.blake2b(digest_size=16)
        try:
            path, file = SYSTEM.temporary_file()
            with file:
                for block in read_blocks(stream):
                    digest.update(block)
                    file.write(block)
        except OSError as error:
            raise DataError(
                STDIN,
                None,
                f"could not be copied to a temporary file ({error}); set TMPDIR to a folder with more space",
            ) from None
        _COPIES[key] = _Copy(path, digest.hexdigest())
    return _COPIES[key].path


def identify_file(path: str | Path) -> Identity:
    """Identify the current version of a file, for caches."""
    regular = regular_file(path)
    digest = next((copy.digest for copy in _COPIES.values() if copy.path == regular), None)
    status = regular.stat()
    return Identity(STDIN if digest else str(regular.resolve()), status.st_size, digest or status.st_mtime_ns)


@contextmanager
def loading(path: str | Path, content: str, remedy: str, reason: str = "") -> Iterator[None]:
    """Convert the errors of a library that loads a file to a DataError.

    Args:
        content: the expected content, for the message
        remedy: the end of the message
        reason: the reason in the message; the message of the library if empty

    Raises:
        DataError: the block raised an exception
    """
    try:
        yield
    except (UserError, ImportError):
        raise
    except (
        Exception
    ) as error:  # for damaged files, openpyxl, NumPy, SciPy, Arrow and zipfile raise almost any exception
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
    with _open_raw(regular_file(path), path) as file, _decompress_if_needed(path, file) as content:
        yield content


@contextmanager
def _open_raw(path: str | Path, shown_path: str | Path | None = None) -> Iterator[BinaryIO]:
    """Open a regular file without decompression; error messages name `shown_path`, or `path` if it is None."""
    shown_path = path if shown_path is None else shown_path
    try:
        file = _open_kept(Path(path))
    except FileNotFoundError:
        raise DataError(shown_path, None, "no such file; check the path, or the folder you started from") from None
    except IsADirectoryError:
        raise DataError(shown_path, None, "this is a folder; give a file") from None
    except PermissionError:
        if Path(path).is_dir():  # on Windows
            raise DataError(shown_path, None, "this is a folder; give a file") from None
        raise DataError(shown_path, None, "no permission to read this file") from None
    except OSError as error:
        raise DataError(shown_path, None, f"this cannot be opened ({error.strerror}); check the path") from None
    with file:
        check_no_device(shown_path, file)
        yield file


_BEGINNINGS: dict[tuple[Any, ...], bytes] = {}
"""The first block of the files that were opened last, by path and version."""


def version_of(path: Path) -> tuple[Any, ...] | None:
    """Return the version of a regular file, for caches; None if it does not exist or has just been changed."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or time.time_ns() - status.st_mtime_ns < _SETTLED:
        return None
    return path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _open_kept(path: Path) -> BinaryIO:
    """Open a file. Its first block is read once, because the detection of formats and of columns reads it again."""
    version = version_of(path)
    if version is None:
        return path.open("rb")
    if version not in _BEGINNINGS:
        with path.open("rb") as file:
            _BEGINNINGS[version] = file.read(_BLOCK_SIZE)
        for oldest in list(_BEGINNINGS)[:-_MAX_KEPT]:
            del _BEGINNINGS[oldest]
    return io.BufferedReader(_KeptFile(path, _BEGINNINGS[version], path.stat().st_size), _BLOCK_SIZE)


class _KeptFile(io.RawIOBase):
    """A file whose first block is in memory. It is opened when another block is read."""

    def __init__(self, path: Path, beginning: bytes, size: int):
        self._path, self._beginning, self._size = path, beginning, size
        self._position = 0
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, as in `io.IOBase`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, and return the number of bytes; 0 at the end."""
        if self._position >= self._size:
            return 0
        block = self._beginning[self._position : self._position + len(buffer)]
        if not block:
            if self._file is None:
                self._file = self._path.open("rb")
            self._file.seek(self._position)
            block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


@contextmanager
def _decompress_if_needed(path: str | Path, file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the content of a file that may be compressed."""
    head = file.peek(8)[:8] if isinstance(file, io.BufferedReader) else b""
    suffix = next((suffix for start, suffix in _COMPRESSION_SUFFIXES.items() if head.startswith(start)), None)
    with file if suffix is None else io.BufferedReader(_Decompressed(path, file, suffix), _BLOCK_SIZE) as content:
        yield content


class _Decompressed(io.RawIOBase):
    """The content of a compressed file. Reading raises a DataError if it is damaged."""

    def __init__(self, path: str | Path, file: BinaryIO, suffix: str):
        self._path = path
        with self._loading():
            self._content = _decompress(path, file, suffix)

    def _loading(self) -> AbstractContextManager[None]:
        return loading(self._path, "compressed content", "download or create it again")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, and return the number of bytes; 0 at the end."""
        with self._loading():
            block = self._content.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        """Close the file inside the archive, too."""
        if hasattr(self, "_content"):
            self._content.close()
        super().close()


def _decompress(path: str | Path, file: BinaryIO, suffix: str) -> BinaryIO:
    if suffix == ".zst":
        import pyarrow as pa

        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
    if suffix == ".zip":
        archive = zipfile.ZipFile(file)
        if len(names := _files_in(archive)) != 1:
            shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            raise DataError(
                path, None, f"expected an archive of one file, got {len(names)}: {shown}; extract one of them"
            )
        return cast(BinaryIO, archive.open(names[0]))
    reader: Any = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[suffix]
    return cast(BinaryIO, reader(file))


def archive_members(path: str | Path) -> list[str]:
    """Return the names of the files in a ZIP archive; an empty list for any other file."""
    file = regular_file(path)
    if not file.is_file():
        return []
    try:
        with (
            _open_raw(file, path) as content,
            loading(path, "a ZIP archive", "create it again"),
            zipfile.ZipFile(content) as archive,
        ):
            return _files_in(archive)
    except DataError:
        return []


def _files_in(archive: zipfile.ZipFile) -> list[str]:
    """The files of an archive, without the ones that macOS adds."""
    return [
        member.filename
        for member in archive.infolist()
        if not (member.is_dir() or member.filename.startswith("__MACOSX/") or Path(member.filename).name == ".DS_Store")
    ]


def suffix_of(path: str | Path) -> str:
    """Return the suffix of a file's name in lower case. A suffix such as .gz for compression is ignored.

    Example:
        >>> suffix_of("Train.CONLL.gz")
        '.conll'
    """
    path = Path(path)
    if path.suffix.lower() not in _COMPRESSION_SUFFIXES.values():
        return path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    if not inner and path.suffix.lower() == ".zip" and len(names := archive_members(path)) == 1:
        return suffix_of(names[0])
    return inner


def check_no_device(path: str | Path, file: BinaryIO) -> None:
    """Check that an open file is not a device such as /dev/zero. Terminals are allowed.

    Raises:
        DataError: the file is a device
    """
    try:
        mode = os.fstat(file.fileno()).st_mode
    except io.UnsupportedOperation:  # a file without a descriptor
        return
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
        remedy = (
            "send text through a pipe, or give a file" if str(path) == STDIN else "give a file, or - for standard input"
        )
        raise DataError(path, None, f"this is a device, not a file; {remedy}")
