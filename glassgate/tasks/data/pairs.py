"""Reads pairs of sentences: a tab in each line, tables and JSON with two columns or keys, and two parallel files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.lines import read_lines, read_parallel
from glassgate.tasks.data.sniff import TEXT, WORD, Column, Source, sniff
from glassgate.tasks.errors import DataError

FILE_SEPARATOR = ","
"""The separator of the names of two parallel files."""

_LANGUAGES = ("english", "german", "french", "spanish", "italian", "portuguese", "russian", "chinese", "japanese")
_ROLES = ("source", "target", "src", "tgt", "trg", "input", "output", "sentence", "translation", *_LANGUAGES)
_MAX_NAME_WORDS = 4
_MAX_COLUMNS = 4  # of a table of pairs: the sides, and a number before each
_MIN_ROWS, _MIN_CORRELATION = 30, 0.2  # 0.42 in the first 1,000 pairs of Tatoeba, English and Chinese
_BETWEEN_SIDES = re.compile(r"\t| \|\|\| ")
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")

Rows = Iterator[tuple[int, list[str]]]
"""The number of each row, and its two sides; one side in input without translations."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation.

    Attributes:
        source: the sentence to translate
        target: the translation; None if unknown
        file, line: the origin of the pair, for messages
    """

    source: str
    target: str | None = None
    file: str = "given examples"
    line: int | None = None


def read_pairs(path: str | Path, labelled: bool = True, reverse: bool = False) -> list[Pair]:
    """Read pairs.

    Args:
        path: a file with source, tab and target in each line, where further columns are ignored; an export of Tatoeba,
            with a number before each sentence; CSV, Excel, JSON or JSON lines with two columns or keys, also under the
            key "translation"; or two files, `A,B`
        labelled: whether a target is required; otherwise a line may contain only a source. Tabs in standard input then
            are blanks, unless there are several lines and each has a tab
        reverse: whether the second column, or the second file, contains the sources

    Raises:
        DataError: a file cannot be read, a line has no tab, a side is empty, or two files have different line counts
    """
    if str(path) != STDIN and FILE_SEPARATOR in str(path) and not Path(path).exists():
        files = str(path).split(FILE_SEPARATOR, 1)
        rows, file = _rows_of_two_files(*files), files[int(reverse)]
    else:
        rows, file = _rows(path, labelled, reverse), str(path)
    pairs = []
    for number, sides in rows:
        source, *target = reversed(sides) if reverse else sides
        pairs.append(Pair(source, target[0] if target else None, file, number))
    if not pairs:
        raise DataError(path, None, "the file has only empty lines; give one with at least one pair")
    return pairs


def _rows(path: str | Path, labelled: bool, reverse: bool) -> Rows:
    kind = detect_kind(path) if labelled else ""
    if kind in records.KEYED_KINDS:
        return _rows_of_keys(path, kind)
    return _rows_of_table(path, kind) if kind in ("csv", "xlsx") else _rows_of_lines(path, kind, labelled, reverse)


def _rows_of_two_files(first: str, second: str) -> Rows:
    for number, lines in read_parallel(first, second):
        sides = [line.strip() for line in lines]
        if all(sides):
            yield number, sides
        elif any(sides):
            empty, full = (first, second) if not sides[0] else (second, first)
            raise DataError(
                empty,
                number,
                f"the line is empty, and that of {full} is not; remove both lines, or fill in the empty one",
            )


def _rows_of_lines(path: str | Path, kind: str, labelled: bool, reverse: bool) -> Rows:
    """The sides in lines with tabs. Lines may have further columns; without translations, they need no tab."""
    tabs_are_blanks = str(path) == STDIN and not labelled and not _has_columns(path)
    source = sniff(path) if labelled and kind in ("", "text", "tsv") else Source("")
    has_header = has_columns = source.separator == "\t"  # has_header: until the first row is read
    first, second = side_columns(source.columns) if has_columns else (0, 1)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        columns = [line.replace("\t", " ")] if tabs_are_blanks else _BETWEEN_SIDES.split(line)
        if has_columns and len(columns) == len(source.columns):
            columns = [columns[first], columns[second]]
        elif len(columns) == 4 and columns[0].isdecimal() and columns[2].isdecimal():
            columns = columns[1::2]  # each sentence in an export of Tatoeba has a number
        is_header = has_header and (source.has_header or all(map(is_side_name, columns[:2])))
        has_header = False
        if is_header:
            continue
        if source.has_quotes:
            columns = [column.strip().removeprefix('"').removesuffix('"').replace('""', '"') for column in columns]
        if len(columns) < 2 and labelled:
            raise DataError(
                path,
                number,
                "expected a sentence, a tab and its translation, got no tab; put one between the two, or give two "
                f"files with a comma between their names: A{FILE_SEPARATOR}B",
            )
        sides = [column.strip() for column in columns[:2]]
        if not all(sides if labelled else [sides[-1 if reverse else 0]]):
            side = "before" if not sides[0] else "after"
            raise DataError(path, number, f"the text {side} the tab is missing; add it, or remove the line")
        yield number, sides


def _has_columns(path: str | Path) -> bool:
    """Whether a file has several lines, and each has a tab."""
    have_tabs = ["\t" in line for _, line in read_lines(path) if line.strip()]
    return len(have_tabs) > 1 and all(have_tabs)


def _rows_of_table(path: str | Path, kind: str) -> Rows:
    """The sides in two columns of CSV or of a sheet of Excel."""
    source = sniff(path)
    indices = side_columns(source.columns)
    dialect, rows = records.read_table(path, kind)
    header = [dialect.header[index] for index in indices if index < len(dialect.header)]
    for number, cells in islice(rows, int(source.has_header or all(map(is_side_name, header))), None):
        if cells:
            yield number, _two(path, number, [cells[index] for index in indices if index < len(cells)])


def _rows_of_keys(path: str | Path, kind: str) -> Rows:
    """The sides in rows of JSON or Parquet: lists of two texts, or two keys that are the same in all rows."""
    keys: list[str] = []
    for number, row, _ in records.read_rows(path, kind):
        pair = row.get("translation", row) if isinstance(row, dict) else row
        if isinstance(pair, dict):
            keys = keys or _keys(path, number, pair)
            pair = [pair.get(key) for key in keys]
        yield number, _two(path, number, pair)


def _keys(path: str | Path, number: int, row: dict[str, Any]) -> list[str]:
    """The keys of the two sides: those that name sides, or the only two keys of texts."""
    texts = [key for key, value in row.items() if isinstance(value, str)]
    keys = [key for key in texts if is_side_name(key) and key.lower() != "id"]
    keys = keys if len(keys) == 2 else texts
    if len(keys) != 2:
        got = ", ".join(map(repr, row)) or "none"
        raise DataError(path, number, f"expected two keys with texts, such as 'en' and 'de', got {got}")
    return keys


def _two(path: str | Path, number: int, sides: Sequence[Any]) -> list[str]:
    texts = [side.strip() if isinstance(side, str) else "" for side in sides]
    if len(texts) != 2 or not all(texts):
        raise DataError(path, number, f"expected two texts, got {list(sides)!r}; add the text, or remove the row")
    return texts


def is_side_name(name: str) -> bool:
    """Whether a name is that of a side of a pair: a language, its code, or words such as "source text".

    Example:
        >>> [is_side_name(name) for name in ("de", "English words/sentences", "target_text", "the dog is old")]
        [True, True, True, False]
    """
    words = re.split(r"[\W_]+", name.strip().lower())
    has_role = len(words) <= _MAX_NAME_WORDS and any(word in _ROLES for word in words)
    return has_role or bool(_LANGUAGE_CODE.fullmatch(name.strip().lower()))


def side_columns(columns: Sequence[Column]) -> tuple[int, int]:
    """Return the indices of the two sides of pairs: two columns that name sides, or the first two of texts.

    Columns of numbers and labels are left out if two others remain.
    """
    named = [index for index, column in enumerate(columns) if is_side_name(column.name) and column.name.lower() != "id"]
    texts = [index for index, column in enumerate(columns) if column.kind == TEXT and not column.may_be_labels]
    words = [index for index, column in enumerate(columns) if column.kind in (WORD, TEXT) and not column.may_be_labels]
    for found in (named if len(named) == 2 else [], texts, words):
        if len(columns) > 2 and len(found) >= 2:
            return found[0], found[1]
    return 0, 1


def looks_like_pairs(source: Source) -> bool:
    """Whether a table contains pairs: a header that names two sides, or two columns of texts of similar lengths."""
    names = [column.name for column in source.columns if column.name.lower() != "id"]
    if not 2 <= len(source.columns) <= _MAX_COLUMNS:
        return False
    first, second = (source.columns[index] for index in side_columns(source.columns))
    if first.kind not in (WORD, TEXT) or second.kind not in (WORD, TEXT):
        return False
    if source.has_header and sum(map(is_side_name, names)) == 2 and all(map(is_side_name, (first.name, second.name))):
        return True
    are_texts = all(each.kind == TEXT and not each.may_be_labels for each in (first, second))
    others = [column for column in source.columns if column is not first and column is not second]
    has_labels = any(column.may_be_labels and column.kind != TEXT for column in others)
    return are_texts and not has_labels and lengths_agree(source)


def lengths_agree(source: Source) -> bool:
    """Whether two columns can be the sides of translations: long texts have long translations.

    The columns contain mostly distinct words or texts, and the logarithms of their lengths are correlated: by at least
    0.2, and by 2.5 times the standard error of independent lengths. With few rows, the lengths are not compared.
    """
    if len(source.columns) < 2:
        return False
    sides = [source.columns[index] for index in side_columns(source.columns)]
    if any(side.kind not in (WORD, TEXT) or side.may_be_labels for side in sides):
        return False
    if len(sides[0].values) < _MIN_ROWS:
        return True
    lengths = np.log1p([[len(value) for value in side.values] for side in sides])
    least = max(_MIN_CORRELATION, 2.5 / lengths.shape[1] ** 0.5)
    return bool((lengths.std(1) > 0).all() and np.corrcoef(lengths)[0, 1] >= least)
