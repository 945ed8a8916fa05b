"""Reads pairs of sentences: a tab in each line, tables and JSON with two columns or keys, and two parallel files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.kinds import TEXT, TEXT_COLUMNS, WORD, Column, last_name
from glassgate.tasks.data.lines import read_lines, read_parallel
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.roles import TEXT_ROLE, Assignment, Found, Role, assign, assign_source
from glassgate.tasks.data.sniff import Source, sniff
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

Names = Sequence[str | None]
"""The columns of the two sides: names, or numbers from 1; None to find one."""


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


def read_pairs(
    path: str | Path,
    labelled: bool = True,
    reverse: bool = False,
    reading: Reading = NO_READING,
    columns: Names = (None, None),
) -> list[Pair]:
    """Read pairs.

    Args:
        path: a file with source, tab and target in each line, where further columns are ignored; an export of Tatoeba,
            with a number before each sentence; CSV, Excel, JSON or JSON lines with two columns or keys, also under the
            key "translation"; or two files, `A,B`
        labelled: whether a target is required; otherwise a line or a row may contain only a source, and tabs in
            standard input are blanks, unless there are several lines and each has a tab
        reverse: whether the second column, or the second file, contains the sources, if no columns are named
        reading: the reading of the training file, see `examine`
        columns: the columns or keys of the sources and the targets: names, or numbers from 1; None to find one
    """
    if are_two_files(path):
        files = str(path).split(FILE_SEPARATOR, 1)
        rows, file = _rows_of_two_files(*files), files[int(reverse)]
    else:
        reverse = reverse and not any(columns)
        rows, file = _rows(sniff(path), labelled, reverse, reading, columns), str(path)
    pairs = []
    for number, sides in rows:
        source, *target = reversed(sides) if reverse else sides
        pairs.append(Pair(source, target[0] if target else None, file, number))
    if not pairs:
        raise DataError(path, None, "the file has only empty lines; give one with at least one pair")
    return pairs


def examine(path: str | Path, columns: Names = (None, None)) -> Reading:
    """Return the reading of a file of pairs: the names of the columns or the keys of the two sides."""
    if are_two_files(path):
        return NO_READING
    source = sniff(path)
    indices, has_header = _sides(source, NO_READING, columns)
    names = [source.header[index] for index in indices if has_header and index < len(source.columns)]
    return Reading.of(**dict(zip((role.name for role in SIDES), names, strict=False)))


def are_two_files(path: str | Path) -> bool:
    """Whether a path is the names of two parallel files, `A,B`."""
    return str(path) != STDIN and FILE_SEPARATOR in str(path) and not Path(path).exists()


def _rows(source: Source, labelled: bool, reverse: bool, reading: Reading, requested: Names) -> Rows:
    if not labelled and (sources := _assign_sources(source, reverse, reading, requested)) is not None:
        return _rows_of_sources(sources)
    indices, has_header = _sides(source, reading, requested if labelled else (None, None))
    is_table = source.kind in (*records.KEYED_KINDS, "csv", "xlsx") or any(requested)
    if labelled and is_table:
        return _rows_of_table(source, indices, has_header, any(requested))
    return _rows_of_lines(source, indices, has_header, labelled, reverse)


def _sides(source: Source, reading: Reading, requested: Names) -> tuple[tuple[int, ...], bool]:
    """The indices of the columns of the two sides, and whether the first row names the columns.

    They are the requested columns, or those of the training file if the file has them, or are found by their content.
    """
    if any(requested):
        found = assign_source(source, dict(zip(SIDES, requested, strict=True)))
        return tuple(found.indices[role] for role in SIDES), found.has_header
    followed = [reading.get(role.name) for role in SIDES]
    names = followed if {column.name for column in source.columns}.issuperset(followed) else (None, None)
    lacks_quotes = (
        not source.is_keyed and source.separator != "\t" and len(source.columns) != len(source.dialect.header)
    )
    columns = () if lacks_quotes else source.columns  # lines with tabs may have further columns
    indices = side_columns(columns, names, source.path if source.has_header else None) or (0, 1)
    header = source.header if source.columns else []
    is_named = len(header) > max(indices) and all(is_side_name(header[index]) for index in indices)
    return indices, source.has_header or is_named


def _assign_sources(source: Source, reverse: bool, reading: Reading, requested: Names) -> Assignment | None:
    """The column of the sources in a table that may lack translations; None for a file whose lines are sentences."""
    side, names = int(reverse), [column.name for column in source.columns]
    name = requested[side] or reading.get(SIDES[side].name)
    has_names = bool(names) or {*map(str.lower, source.dialect.header)} <= {*TEXT_COLUMNS}
    has_rows = source.kind in (*records.KEYED_KINDS, "xlsx") or (source.kind == "csv" and has_names)
    if not has_rows and name not in names:
        return None
    role = replace(SIDES[side], usual_names=TEXT_COLUMNS, find=partial(_find_sources, side=side))
    return assign_source(source, {role: name if requested[side] or name in names else None})


def _find_sources(columns: list[Column], _: Found, side: int) -> list[Column]:
    """The columns of sources: one of two that name sides or contain texts, or all texts."""
    named = [column for column in columns if _names_side(column)]
    found = named if len(named) == 2 else TEXT_ROLE.find(columns, {})
    return found[side : side + 1] if len(found) == 2 else found


def _rows_of_sources(found: Assignment) -> Rows:
    (index,) = found.indices.values()
    for number, cells in found.source.rows(int(found.has_header)):
        if text := str(cells[index] or "").strip() if cells else "":
            yield number, [text]


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


def _rows_of_lines(source: Source, columns: Sequence[int], has_header: bool, labelled: bool, reverse: bool) -> Rows:
    """The sides in lines with tabs. Lines may have further columns; without translations, they need no tab."""
    tabs_are_blanks = str(source.path) == STDIN and not labelled and not _has_columns(source.path)
    has_columns = labelled and source.separator == "\t"
    skips_line = has_columns and has_header  # until the first row is read
    for number, line in read_lines(source.path):
        if not line.strip():
            continue
        if skips_line:
            skips_line = False
            continue
        cells = [line.replace("\t", " ")] if tabs_are_blanks else _BETWEEN_SIDES.split(line)
        if has_columns and len(cells) == len(source.columns):
            cells = [cells[index] for index in columns]
        elif len(cells) == 4 and cells[0].isdecimal() and cells[2].isdecimal():
            cells = cells[1::2]  # each sentence in an export of Tatoeba has a number
        if has_columns and source.dialect.has_quotes:
            cells = [cell.strip().removeprefix('"').removesuffix('"').replace('""', '"') for cell in cells]
        if len(cells) < 2 and labelled:
            raise DataError(
                source.path,
                number,
                "expected a sentence, a tab and its translation, got no tab; put one between the two, or give two "
                f"files with a comma between their names: A{FILE_SEPARATOR}B",
            )
        sides = [cell.strip() for cell in cells[:2]]
        if not all(sides if labelled else [sides[-1 if reverse else 0]]):
            side = "before" if not sides[0] else "after"
            raise DataError(source.path, number, f"the text {side} the tab is missing; add it, or remove the line")
        yield number, sides


def _has_columns(path: str | Path) -> bool:
    """Whether a file has several lines, and each has a tab."""
    have_tabs = ["\t" in line for _, line in read_lines(path) if line.strip()]
    return len(have_tabs) > 1 and all(have_tabs)


def _rows_of_table(source: Source, sides: Sequence[int], has_header: bool, are_requested: bool) -> Rows:
    """The sides in two columns of CSV or Excel, under two keys of JSON or Parquet, or in lists of two texts."""
    names = [column.name for column in source.columns]
    texts = [column.name for column in source.columns if column.kind in (WORD, TEXT)]
    are_named = all(is_side_name(last_name(names[index])) for index in sides) if names else True
    if source.is_keyed and not are_requested and (len(sides) < 2 or (len(texts) != 2 and not are_named)):
        got, options = ", ".join(map(repr, names)), " and ".join(role.option for role in SIDES)
        expected = f"expected two keys with texts, such as 'en' and 'de', got {got}; name yours with {options}"
        raise DataError(source.path, 1, expected)
    for number, cells in source.rows(int(has_header)):
        if cells:
            chosen = [cells[index] for index in sides if index < len(cells)] if names or are_requested else cells
            pair = [cell.strip() if isinstance(cell, str) else "" for cell in chosen]
            if len(pair) != 2 or not all(pair):
                got = f"expected two texts, got {list(chosen)!r}; add the text, or remove the row"
                raise DataError(source.path, number, got)
            yield number, pair


def is_side_name(name: str) -> bool:
    """Whether a name is that of a side of a pair: a language, its code, or words such as "source text".

    Example:
        >>> [is_side_name(name) for name in ("de", "English words/sentences", "target_text", "the dog is old")]
        [True, True, True, False]
    """
    words = re.split(r"[\W_]+", name.strip().lower())
    has_role = len(words) <= _MAX_NAME_WORDS and any(word in _ROLES for word in words)
    return has_role or bool(_LANGUAGE_CODE.fullmatch(name.strip().lower()))


def _find_side(columns: list[Column], others: Found, count: int, asks: bool) -> list[Column]:
    """The first of `count` columns of sides: those that name sides, or texts, or words, or any.

    Columns of numbers and labels are left out if enough others remain. If more than `count` columns are texts and do
    not name sides, all of them are returned if `asks` is true.
    """
    named = [column for column in columns if _names_side(column)]
    all_words = [
        column for column in columns if column.kind in (WORD, TEXT) and (column.distinct > 1 or len(column.values) < 2)
    ]
    texts = [column for column in all_words if column.kind == TEXT and not column.may_be_labels]
    words = [column for column in all_words if not column.may_be_labels]
    if len(named) == count and all(map(_names_side, others.values())):
        return named[:1]
    found = next((each for each in (texts, words, all_words) if len(each) >= count), columns)
    return found if asks and len(found) > count else found[:1]


def _names_side(column: Column) -> bool:
    return is_side_name(last_name(column.name)) and column.name.lower() != "id"


def _roles(asks: bool) -> tuple[Role, Role]:
    """The roles of the two sides."""
    return (
        Role("sources", "--source-column", (), partial(_find_side, count=2, asks=asks)),
        Role("translations", "--target-column", (), partial(_find_side, count=1, asks=asks)),
    )


SIDES = _roles(asks=True)
"""The roles of the two sides."""
_FIRST_SIDES = _roles(asks=False)


def side_columns(
    columns: Sequence[Column], names: Names = (None, None), path: str | Path | None = None
) -> tuple[int, ...]:
    """Return the indices of the two sides of pairs.

    Args:
        names: the names of the columns; None to find one by its name and its content
        path: the file, for the error if several columns can be a side; None takes the first of them
    """
    roles = SIDES if path else _FIRST_SIDES
    found = assign(path or "", columns, dict(zip(roles, names, strict=True)))
    return tuple(found[role] for role in roles if role in found)


def looks_like_pairs(source: Source) -> bool:
    """Whether a table contains pairs: a header that names two sides, or two columns of texts of similar lengths."""
    if not 2 <= len(source.columns) <= _MAX_COLUMNS:
        return False
    first, second = (source.columns[index] for index in side_columns(source.columns))
    if first.kind not in (WORD, TEXT) or second.kind not in (WORD, TEXT):
        return False
    if source.has_header and sum(map(_names_side, source.columns)) == 2 and _names_side(first) and _names_side(second):
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
