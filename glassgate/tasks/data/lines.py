"""Reads text files line by line, and detects their encoding. Errors name the file and the line."""

import codecs
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from glassgate.tasks.data.encodings import rank_encodings
from glassgate.tasks.data.files import open_file, read_blocks, readable_file, suffix_of, version_of
from glassgate.tasks.errors import DataError

Item = TypeVar("Item")

_SHOWN_NAMES = {
    **{"gb18030": "GBK", "cp932": "Shift-JIS", "cp949": "EUC-KR", "big5hkscs": "Big5", "euc_jis_2004": "EUC-JP"},
    **{"big5": "Big5", "koi8_r": "KOI8-R", "euc_jp": "EUC-JP", "utf_16": "UTF-16"},
}
_UTF_8 = "utf_8"
_SAMPLE_SIZE = 2**16  # the encoding is guessed from at most this many bytes of lines that are not ASCII


def read_lines(path: str | Path, encoding: str = "") -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and its text without the line end.

    Args:
        path: a text file; "-" for standard input
        encoding: the encoding of the file; detected if empty, see `detect_encoding`

    Raises:
        DataError: the file is missing, empty, a folder, or in no known encoding
    """
    error = DataError(path, None, "the file is empty; give one with at least one line of data")
    with open_text(path, None, encoding) as file:
        lines = ((number, text.rstrip("\n")) for number, text in enumerate(file, start=1))
        # Programs that append files to each other leave byte order marks in lines of their own.
        yield from nonempty(((number, "" if text == "\ufeff" else text) for number, text in lines), error)


def nonempty(items: Iterable[Item], error: DataError) -> Iterator[Item]:
    """Yield the items; raise the error if there are none."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty:
        raise error


def read_parallel(first: str | Path, *others: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line, and the text of this line in each file; all files have equally many lines."""
    files = [read_lines(path) for path in (first, *others)]
    for number, lines in enumerate(zip_longest(*files), start=1):
        if None in lines:
            count, *counts = (sum(1 for _ in read_lines(path)) for path in (first, *others))
            path, other_count = next(pair for pair in zip(others, counts, strict=True) if pair[1] != count)
            got = f"{other_count}; the files must match line by line"
            raise DataError(path, None, f"expected {count} lines, as many as {first} has, got {got}")
        yield number, [text for _, text in lines]


class Declaration(NamedTuple):
    """A line such as `@attribute NAME TYPE`: its number, its tag in lower case, and the text after the tag."""

    line: int
    tag: str
    text: str


def read_declared(path: str | Path) -> tuple[list[Declaration], Iterator[tuple[int, str]]]:
    """Return the declarations of a .ts, .arff or .tsf file, and an iterator over the numbers and the lines of data.

    Blank lines and comments, which begin with # or %, are skipped.
    """
    lines = ((number, text) for number, line in read_lines(path) if (text := line.strip()) and text[0] not in "#%")
    declarations: list[Declaration] = []
    for number, text in lines:
        tag, *rest = text.split(maxsplit=1)
        if tag.lower() == "@data":
            return declarations, lines
        if not tag.startswith("@"):
            got = repr(text[:40])
            raise DataError(path, number, f"expected a tag such as @classLabel or @data, got {got}; check the format")
        declarations.append(Declaration(number, tag.lower(), "".join(rest).strip()))
    raise DataError(path, None, "expected a line @data and the series after it, got none; is the file cut short?")


@contextmanager
def open_text(path: str | Path, newline: str | None = "", encoding: str = "") -> Iterator[io.TextIOWrapper]:
    """Open a text file.

    Args:
        newline: as in `open`: the default keeps line ends, None converts them to line feeds
        encoding: the encoding; detected if empty
    """
    encoding = encoding or detect_encoding(path)
    with open_file(path) as file:
        yield io.TextIOWrapper(file, encoding="utf-8-sig" if encoding == _UTF_8 else encoding, newline=newline)


_REQUESTED_ENCODING: ContextVar[str] = ContextVar("requested encoding", default="")


@contextmanager
def decoded_as(encoding: str) -> Iterator[None]:
    """Read text files in an encoding inside the block, such as "cp1252"; detect it if empty."""
    token = _REQUESTED_ENCODING.set(encoding)
    try:
        yield
    finally:
        _REQUESTED_ENCODING.reset(token)


def requested_encoding() -> str:
    """Return the encoding of the current `decoded_as`; empty outside of it."""
    return _REQUESTED_ENCODING.get()


def decoding(read: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method of a task that reads a file: text files are decoded as the option `encoding` requests."""

    @wraps(read)
    def read_decoded(task: Any, *arguments: Any, **named: Any) -> Any:
        with decoded_as(task.options.encoding):
            return read(task, *arguments, **named)

    return read_decoded


def detect_encoding(path: str | Path) -> str:
    """Return the encoding of a text file, by its name in Python.

    A byte order mark determines the encoding. Without one, a file that decodes completely as UTF-8 is UTF-8. For any
    other file, `encodings.rank_encodings` selects one of the usual encodings of Chinese, Japanese, Korean, Cyrillic,
    Greek, Turkish, Hebrew, Arabic, Baltic, and Central and Western European text. Inside of `decoded_as`, the result is
    the requested encoding.

    Raises:
        DataError: the file cannot be read, is damaged UTF-8, is not in the requested encoding, or no encoding fits
    """
    readable_file(path)
    return _detect_encoding(str(path), requested_encoding(), version_of(path))


def encoding_note(path: str | Path) -> str:
    """Return the encoding of a file as the end of a note; empty for UTF-8."""
    encoding = detect_encoding(path)
    return "" if encoding == _UTF_8 else f", encoding {_SHOWN_NAMES.get(encoding, encoding)}"


@lru_cache(256)
def _detect_encoding(path: str, requested: str, _version: object) -> str:
    if requested:
        encoding = codecs.lookup(requested).name.replace("-", "_")
        if _can_decode(path, encoding):
            return encoding
        remedy = "name another one with --encoding, or leave it out to detect the encoding"
        got = f"bytes that are invalid in it; {remedy}"
        raise DataError(path, None, f"expected text in the encoding {requested}, got {got}")
    with open_file(path) as file:
        head = file.read(_SAMPLE_SIZE)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        if _can_decode(path, "utf_16"):
            return "utf_16"
        raise DataError(path, None, "expected UTF-16, because of its byte order mark, got invalid bytes; save it again")
    if b"\0" in head:
        remedy = "give a text file, or convert UTF-16: iconv -f UTF-16LE -t UTF-8"
        got = "bytes of value 0, as in binary files and in UTF-16 without a byte order mark"
        raise DataError(path, None, f"expected text, got {got}; {remedy}")
    return _UTF_8 if _can_decode(path, _UTF_8) else _guess_encoding(path)


def _guess_encoding(path: str) -> str:
    """The encoding of a file that is not UTF-8, guessed from the lines that are not ASCII."""
    sample = b""
    with open_file(path) as file:
        for line in file:
            sample += b"" if line.isascii() else line
            if len(sample) >= _SAMPLE_SIZE:
                break
    sample = sample[:_SAMPLE_SIZE]
    text = sample.decode("utf-8", "replace")
    invalid = text.count("\N{REPLACEMENT CHARACTER}")
    is_damaged = sum(ord(character) > 127 for character in text) - invalid > invalid  # most are valid in UTF-8
    for encoding in rank_encodings(sample) if not is_damaged else ():
        if _can_decode(path, encoding):
            return encoding
    raise _invalid_byte_error(path)


def _can_decode(path: str, encoding: str) -> bool:
    """Whether the complete file can be decoded."""
    with open_file(path) as file:
        try:
            deque(codecs.iterdecode(read_blocks(file), encoding), maxlen=0)
        except UnicodeDecodeError:
            return False
    return True


def _invalid_byte_error(path: str) -> DataError:
    """The error for the first byte that is not UTF-8."""
    for number, line in read_lines(path, "latin-1"):
        raw = line.encode("latin-1")
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            got = f"byte 0x{raw[error.start]:02x} in column {error.start + 1}"
            convert = f"iconv -f ENCODING -t UTF-8 {path} > utf8{suffix_of(path)}"
            remedy = f"correct the line, or convert the file: {convert}"
            return DataError(path, number, f"expected UTF-8 or another known encoding, got {got}; {remedy}")
    raise AssertionError("the file is UTF-8")
