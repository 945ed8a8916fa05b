"""Reads pairs of sentences from rows with columns or keys: CSV, JSON lines and JSON."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.sniff import TEXT, WORD, Column, Source, sniff
from glassgate.tasks.errors import DataError

KINDS = ("csv", "xlsx", *records.KEYED_KINDS)
"""The kinds of files with rows of pairs."""

_LANGUAGES = ("english", "german", "french", "spanish", "italian", "portuguese", "russian", "chinese", "japanese")
_ROLES = ("source", "target", "src", "tgt", "trg", "input", "output", "sentence", "translation", *_LANGUAGES)
_MAX_NAME_WORDS = 4
_MAX_COLUMNS = 4  # of a table of pairs: the sides, and a number before each
_MIN_ROWS, _MIN_CORRELATION = 30, 0.2  # 0.42 in the first 1,000 pairs of Tatoeba, English and Chinese
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")


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


def read_pair_rows(path: str | Path, kind: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each row and its two sides, in the order of the columns or keys.

    Args:
        kind: one of `KINDS`

    Raises:
        DataError: a row has no two texts
    """
    if kind in records.TABLE_KINDS:
        columns = sniff(path).columns
        first, second = side_columns(columns)
        dialect, rows = records.read_table(path, kind)
        header = [dialect.header[index] for index in (first, second) if index < len(dialect.header)]
        for number, cells in islice(rows, int(all(map(is_side_name, header))), None):
            if cells:
                yield number, *_two(path, number, [cells[index] for index in (first, second) if index < len(cells)])
        return
    keys: tuple[str, ...] = ()
    for number, row, _ in records.read_rows(path, kind):
        pair = row.get("translation", row) if isinstance(row, dict) else row
        if isinstance(pair, dict):
            keys = keys or _keys(path, number, pair)
            pair = [pair.get(key) for key in keys]
        yield number, *_two(path, number, pair)


def _keys(path: str | Path, number: int, row: dict[str, Any]) -> tuple[str, ...]:
    """The keys of the two sides: those that name sides, or the only two keys of texts."""
    texts = [key for key, value in row.items() if isinstance(value, str)]
    keys = [key for key in texts if is_side_name(key) and key.lower() != "id"]
    keys = keys if len(keys) == 2 else texts
    if len(keys) != 2:
        got = ", ".join(map(repr, row)) or "none"
        raise DataError(path, number, f"expected two keys with texts, such as 'en' and 'de', got {got}")
    return tuple(keys)


def _two(path: str | Path, number: int, sides: Sequence[Any]) -> tuple[str, str]:
    texts = [side.strip() if isinstance(side, str) else "" for side in sides]
    if len(texts) != 2 or not all(texts):
        raise DataError(path, number, f"expected two texts, got {list(sides)!r}; add the text, or remove the row")
    return texts[0], texts[1]
