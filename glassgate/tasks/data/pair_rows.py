"""Reads pairs of sentences from rows with columns or keys: CSV, JSON lines and JSON."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from glassgate.tasks.data import records
from glassgate.tasks.data.sniff import TEXT, Source
from glassgate.tasks.errors import DataError

KINDS = ("csv", *records.KEYED_KINDS)
"""The kinds of files with rows of pairs."""

_LANGUAGES = ("english", "german", "french", "spanish", "italian", "portuguese", "russian", "chinese", "japanese")
_ROLES = ("source", "target", "src", "tgt", "trg", "input", "output", "sentence", "translation", *_LANGUAGES)
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")


def is_side_name(name: str) -> bool:
    """Whether a name is that of a side of a pair: a language, its code, or a word such as "source"."""
    name = name.strip().lower()
    return name in _ROLES or bool(_LANGUAGE_CODE.fullmatch(name))


def looks_like_pairs(source: Source) -> bool:
    """Whether a table contains pairs: two columns of mostly distinct texts, or a header that names two sides."""
    names = [column.name for column in source.columns]
    texts = [column for column in source.columns if column.kind == TEXT and not column.may_be_labels]
    named = source.has_header and len(names) == 2 and all(map(is_side_name, names))
    return len(names) in (2, 3) and (named or (len(texts) == 2 and source.columns[0] is texts[0]))


def read_pair_rows(path: str | Path, kind: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each row and its two sides, in the order of the columns or keys.

    Args:
        kind: one of `KINDS`

    Raises:
        DataError: a row has no two texts
    """
    if kind == "csv":
        dialect, rows = records.read_table(path, kind)
        has_header = all(map(is_side_name, dialect.header[:2]))
        for number, cells in islice(rows, int(has_header), None):
            if cells:
                yield number, *_two(path, number, cells[:2])
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
    keys = [key for key in texts if is_side_name(key)]
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
