"""Reads text files line by line, in the encoding that their content has. Errors name the file and the line."""

import codecs
import io
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from glassgate.tasks.data.files import Identity, blocks, identity, opened, readable, suffix_of
from glassgate.tasks.errors import DataError

Item = TypeVar("Item")

# The encodings to try for a file that is not UTF-8. Of two that fit equally well, the first is used.
_ENCODINGS = (
    *("cp1252", "gb18030", "big5", "cp932", "euc_jp", "cp949", "cp1251", "koi8_r", "cp1250", "cp1253", "cp1254"),
    *("cp1255", "cp1256", "cp1257", "big5hkscs", "euc_jis_2004"),
)
_NAMES = {"gb18030": "GBK", "cp932": "Shift-JIS", "cp949": "EUC-KR", "big5hkscs": "Big5", "euc_jis_2004": "EUC-JP"}
_NAMES |= {"big5": "Big5", "koi8_r": "KOI8-R", "euc_jp": "EUC-JP", "utf_16": "UTF-16"}
_UTF_8 = "utf_8"
_SAMPLE = 2**16  # bytes of lines with characters beyond ASCII, from which the encoding is detected


def read_lines(path: str | Path, encoding: str = "") -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and its text without the line end.

    Args:
        path: a text file; "-" for standard input
        encoding: the encoding of the file; detected if empty, see `encoding_of`

    Raises:
        DataError: the file is missing, empty, a folder, or in no known encoding
    """
    error = DataError(path, None, "the file is empty; give one with at least one line of data")
    with opened_text(path, None, encoding) as file:
        yield from nonempty(((number, text.rstrip("\n")) for number, text in enumerate(file, start=1)), error)


def nonempty(items: Iterable[Item], error: DataError) -> Iterator[Item]:
    """Yield the items; raise the error if there are none."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        raise error


def read_parallel(first: str | Path, *others: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line, and that line of all files.

    Raises:
        DataError: see `read_lines`; a file has more or fewer lines than the first
    """
    files = [read_lines(path) for path in (first, *others)]
    for number, lines in enumerate(zip_longest(*files), start=1):
        if None in lines:
            count, *counts = (sum(1 for _ in read_lines(path)) for path in (first, *others))
            path, got = next((path, got) for path, got in zip(others, counts, strict=True) if got != count)
            raise DataError(
                path, None, f"expected {count} lines, as many as {first} has, got {got}; write one for each"
            )
        yield number, [text for _, text in lines]


@contextmanager
def opened_text(path: str | Path, newline: str | None = "", encoding: str = "") -> Iterator[io.TextIOWrapper]:
    """Open a text file in its encoding; line ends are kept unless `newline` is None, as in `open`."""
    encoding = encoding or encoding_of(path)
    with opened(path) as file:
        yield io.TextIOWrapper(file, encoding="utf-8-sig" if encoding == _UTF_8 else encoding, newline=newline)


_ENCODING_OF: dict[Identity, str] = {}
"""The encodings of the files that this process has read."""


def encoding_of(path: str | Path) -> str:
    """Return the encoding of a text file, by its name in Python.

    A byte order mark determines the encoding. Otherwise a file that decodes as UTF-8 completely is UTF-8. For any other
    file, charset-normalizer compares the usual encodings of Chinese, Japanese, Korean, Cyrillic and European text.

    Raises:
        DataError: the file cannot be read, is damaged UTF-8, or no encoding fits
    """
    key = identity(readable(path))
    if key not in _ENCODING_OF:
        _ENCODING_OF[key] = _detected(path)
    return _ENCODING_OF[key]


def encoding_note(path: str | Path) -> str:
    """Return a note about the encoding of a file; empty for UTF-8 and UTF-16."""
    encoding = encoding_of(path)
    return "" if encoding in (_UTF_8, "utf_16") else f", encoding {_NAMES.get(encoding, encoding)}"


def _detected(path: str | Path) -> str:
    with opened(path) as file:
        head = file.read(_SAMPLE)
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in head and not marked:
        raise DataError(
            path,
            None,
            "expected text, got bytes of value 0, as in binary files and in UTF-16 without a byte order mark; give a "
            "text file, or convert UTF-16: iconv -f UTF-16LE -t UTF-8",
        )
    expected = "utf_16" if marked else _UTF_8
    if _decodes(path, expected):
        return expected
    if marked:
        raise DataError(path, None, "expected UTF-16, because of its byte order mark, got invalid bytes; save it again")
    sample = b""
    with opened(path) as file:
        for line in file:
            sample += b"" if line.isascii() else line
            if len(sample) >= _SAMPLE:
                break
    return _guessed(path, sample[:_SAMPLE])


def _guessed(path: str | Path, sample: bytes) -> str:
    """The encoding of a file that is not UTF-8, guessed from a sample."""
    from charset_normalizer import from_bytes

    text = sample.decode("utf-8", "replace")
    invalid = text.count("\N{REPLACEMENT CHARACTER}")
    if sum(ord(character) > 127 for character in text) - invalid > invalid:
        raise _damaged(path)  # most characters are valid UTF-8, so this is UTF-8 with damaged bytes
    candidates = [
        (round(each.chaos, 2), -round(each.coherence, 1), place, encoding)
        for each in from_bytes(sample, cp_isolation=list(_ENCODINGS))
        for place, encoding in enumerate(_ENCODINGS)
        if encoding in (each.encoding, *each.could_be_from_charset)
    ]
    for *_, encoding in sorted(candidates):
        if _decodes(path, encoding):
            return encoding
    raise _damaged(path)


def _decodes(path: str | Path, encoding: str) -> bool:
    """Whether the complete file can be decoded."""
    with opened(path) as file:
        try:
            deque(codecs.iterdecode(blocks(file), encoding), maxlen=0)
        except UnicodeDecodeError:
            return False
    return True


def _damaged(path: str | Path) -> DataError:
    """The error for the first byte that is not UTF-8."""
    for number, line in read_lines(path, "latin-1"):
        raw = line.encode("latin-1")
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return DataError(
                path,
                number,
                f"expected UTF-8, or one other encoding, got byte 0x{raw[error.start]:02x} in column "
                f"{error.start + 1}; correct the line, or convert the file: "
                f"iconv -f ENCODING -t UTF-8 {path} > utf8{suffix_of(path)}",
            )
    raise AssertionError("a file that is not UTF-8 has a line that is not")
