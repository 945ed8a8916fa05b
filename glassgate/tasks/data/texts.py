"""Plain text as sequences of characters, bytes, words or tokens: one sequence per file or per line."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.lines import encoding_note, nonempty, read_lines
from glassgate.tasks.data.store import arrow as mapped
from glassgate.tasks.data.store.examples import LINE, SEQUENCE, Stored, counts, store
from glassgate.tasks.data.store.units import read_units
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, changed, option
from glassgate.tasks.progress import Progress

_WORDS = re.compile(r"\n|<\w+>|\w+(?:['\u2019]\w+)*|[^\w\s]")
_TOKENS = re.compile(r"\n|\S+")
_CLOSING = frozenset(".,;:!?…)]}»”%")
_OPENING = frozenset("([{«“")

_SPLITTERS: dict[str, Callable[[str], Sequence[str]]] = {
    "character": str,
    "byte": lambda text: text.encode().decode("latin-1"),
    "word": _WORDS.findall,
    "token": _TOKENS.findall,
}
UNITS = tuple(_SPLITTERS)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """The options of tasks on plain text."""

    data: str | None = changed("data", None, unset="Python's documentation")
    tokens: str = option(
        "character",
        "kind of tokens; the kind token is text between spaces",
        group="data",
        choices=UNITS,
        former="unit",
    )
    sequence: str = option(
        "file", "text of one sequence: the whole file, or a line", group="data", choices=("file", "line")
    )
    text_column: str | None = option(None, "key of the texts in JSON lines and Parquet", group="data", unset="detected")
    held_out: float = changed("held_out", 0.05)
    least_count: int = option(1, "minimum occurrences in training; rarer tokens are unknown", least=1)
    dropout: float = changed("dropout", 0.2)
    learning_rate: float = changed("learning_rate", 8e-3)


@dataclass(frozen=True, slots=True)
class Text:
    """A sequence of tokens. A byte is represented by the character with its code point.

    Attributes:
        units: the tokens; those of a line include the line end
        source: the file that contains the sequence
        line: the line where it begins
    """

    units: Sequence[str]
    source: str = ""
    line: int = 1

    def __len__(self) -> int:
        return len(self.units)

    def part(self, start: int, stop: int) -> "Text":
        """Return the tokens from `start` to `stop`."""
        return replace(self, units=self.units[start:stop])


def split(text: str, unit: str) -> Sequence[str]:
    """Split a text into tokens.

    Args:
        unit: one of `UNITS`

    Example:
        >>> split("Don't panic!", "word")
        ["Don't", 'panic', '!']
    """
    return _SPLITTERS[unit](text)


def join(units: Sequence[str], unit: str) -> str:
    """Join tokens to a text.

    Example:
        >>> join(["Don't", "panic", "!"], "word")
        "Don't panic!"
    """
    if unit == "byte":
        return "".join(units).encode("latin-1").decode(errors="replace")
    gaps = (gap(before, after, unit) for before, after in zip(["\n", *units], units, strict=False))
    return "".join(each for pair in zip(gaps, units, strict=True) for each in pair)


def starts(units: Sequence[str], unit: str) -> list[int]:
    """Return the offset of each token in the text that `join` returns; for bytes, offsets count bytes.

    Example:
        >>> starts(["Don't", "panic", "!"], "word")
        [0, 6, 11]
    """
    offsets, end, before = [], 0, "\n"
    for each in units:
        offsets.append(end + len(gap(before, each, unit)))
        end, before = offsets[-1] + len(each), each
    return offsets


def gap(before: str, after: str, unit: str) -> str:
    """Return the separator between two adjacent tokens: a space or an empty string."""
    if unit not in ("word", "token") or "\n" in (before, after):
        return ""
    return "" if unit == "word" and (after in _CLOSING or before in _OPENING) else " "


def read_text(
    path: str | Path, unit: str, sequence: str, progress: Progress | None = None, column: str | None = None
) -> "list[Text] | Stored[Text]":
    """Read a text file, or standard input, as one sequence or one sequence per line; a large one stays on disk.

    In JSON lines and Parquet a row corresponds to a line of a text file.

    Args:
        progress: receives the progress of a large file, and the detected format of rows
        column: the key of the texts in rows; detected if None

    Raises:
        DataError: see `read_lines` and `records.read`; all lines are blank; the key is missing
    """
    kind = kind_of(path)
    keyed = kind in records.KEYED
    raw = unit == "byte" and not keyed
    if progress and unit != "byte" and kind != "parquet" and (encoding := encoding_note(path)):
        progress.note(f"{path}: text{encoding}")
    if progress and keyed:
        progress.note(_rows_note(path, kind, column))
    lines = text_lines(path, column, "latin-1" if raw else "")
    cut = str if raw else _SPLITTERS[unit]
    if sequence == "line":
        fields, build = {"units": SEQUENCE, "line": LINE}, partial(Text, source=str(path))
        return store(_lines(path, lines, cut), fields, build, [path], ["lines", unit, column], progress)
    if not keyed and mapped.is_large([path]):
        return [Text(read_units(path, unit, cut, progress), str(path))]
    text = "".join(f"{line}\n" for _, line in lines)
    if not text.strip():
        raise _blank(path)
    return [Text(cut(text), str(path))]


def text_lines(path: str | Path, column: str | None = None, encoding: str = "") -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, or of each row of JSON and Parquet.

    Args:
        column: the key of the texts in rows; detected if None
        encoding: the encoding of lines; detected if empty
    """
    kind = kind_of(path)
    return _texts(path, records.read(path, kind), column) if kind in records.KEYED else read_lines(path, encoding)


def from_rows(rows: Iterator[tuple[int, Any, records.Names]], options: TextOptions) -> list[Text]:
    """Convert rows to texts: one text of all rows, or one per row, by the option `sequence`.

    Raises:
        DataError: the key is missing, or its value is not a string
    """
    lines = [f"{text}\n" for _, text in _texts("given rows", rows, options.text_column)]
    if lines and options.sequence == "file":
        lines = ["".join(lines)]
    return [Text(split(text, options.tokens), "given rows") for text in lines]


def _texts(
    source: str | Path, rows: Iterator[tuple[int, Any, records.Names]], column: str | None
) -> Iterator[tuple[int, str]]:
    for number, row, _ in rows:
        text = row[records.key_of(source, number, row, column, records.TEXTS, "--text-column")]
        if not isinstance(text, str):
            raise DataError(source, number, f"expected a string of text, got {type(text).__name__}; see --text-column")
        yield number, text


def _rows_note(path: str | Path, kind: str, column: str | None) -> str:
    """Describe the format of rows."""
    number, first, _ = next(records.read(path), (1, {column or "text": ""}, {}))
    key = records.key_of(path, number, first, column, records.TEXTS, "--text-column")
    return f"{path}: rows of {'Parquet' if kind == 'parquet' else 'JSON'}, texts under {key!r}"


def _lines(path: str | Path, read: Iterator[tuple[int, str]], cut: Callable[[str], Sequence[str]]) -> Iterator[Text]:
    texts = (Text(cut(f"{text}\n"), str(path), number) for number, text in read if text.strip())
    return nonempty(texts, _blank(path))


def documentation(unit: str, sequence: str) -> list[Text]:
    """Return the language reference that Python's `help` prints: half a million characters of English and some code.

    Raises:
        OptionError: this Python was installed without it
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise OptionError("this Python came without its documentation (pydoc_data); give a text with --data") from None
    text = "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"
    if sequence == "file":
        return [Text(split(text, unit), "pydoc_data.topics")]
    return [Text(split(f"{line}\n", unit), "pydoc_data.topics") for line in text.splitlines() if line.strip()]


def vocabulary(texts: Sequence[Text], unit: str, least_count: int) -> Vocabulary:
    """Return the vocabulary of texts: tokens with at least `least_count` occurrences, or all bytes."""
    if unit == "byte":
        return Vocabulary([chr(number) for number in range(256)])
    if len(texts) == 1 and isinstance(texts[0].units, mapped.Units):
        return Vocabulary.of(texts[0].units.counts(), least_count)
    return Vocabulary.of(counts(texts, "units", lambda each: each.units), least_count)


def shifted(numbers: np.ndarray, first: int) -> np.ndarray:
    """Shift indices by one position: the result begins with `first` and lacks the last index."""

    def read(start: int, stop: int) -> np.ndarray:
        return np.concatenate([np.array([first])[start:stop], numbers[max(0, start - 1) : max(0, stop - 1)]])

    if isinstance(numbers, mapped.LazyArray):
        return cast(np.ndarray, mapped.LazyArray(read, len(numbers), f"{first} ".encode() + numbers.tobytes()))
    return read(0, len(numbers))


def _blank(path: str | Path) -> DataError:
    return DataError(path, None, "the file has only blanks; give one with text")
