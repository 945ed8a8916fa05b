"""The roles of the columns of a file with a token per row."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise

from glassgate.tasks.data.bio import detect_scheme, entity_type
from glassgate.tasks.data.kinds import (
    SENTENCE_COLUMNS,
    SPAN_COLUMNS,
    TAG_COLUMNS,
    TEXT_COLUMNS,
    TOKEN_COLUMNS,
    Column,
    is_number,
)
from glassgate.tasks.data.roles import Found, Role

USUAL_NAMES = {*SENTENCE_COLUMNS, *TOKEN_COLUMNS, *TAG_COLUMNS}
"""The usual names of columns of sentences, of tokens and of their labels."""
_NAMES_IN_HEADERS = {"id", "idx", "index", "no", "nr", "lemma", *USUAL_NAMES}
_MAX_LABELS = 100
MIN_ROWS = 20
"""The number of rows from which the numbers of distinct values are compared."""
_CLEARLY = 3  # a column of words has at least this many times the distinct values of a column of labels

Rows = Sequence[Sequence[str]]


def find_header(sequences: Sequence[Rows]) -> tuple[str, ...]:
    """Return the first row if it names the columns; otherwise nothing.

    It names them if all its cells are usual names. It also names them under two conditions. Each cell is a word that is
    in its column only once. And labels of entities are only in other rows, or a cell is longer than each label below.
    """
    first, *rest = [*chain(*sequences)] or [()]
    if not rest or len(first) < 2:
        return ()
    if all(cell.strip(" #").lower() in _NAMES_IN_HEADERS for cell in first):
        return tuple(first)
    columns = [{row[column] for row in rest if len(row) == len(first)} for column in range(len(first))]
    if any(cell in values for cell, values in zip(first, columns, strict=True)) or not sum(map(len, columns)):
        return ()
    marks = any(detect_scheme([list(values)], in_order=False) for values in columns) and not any(
        detect_scheme([[cell]], in_order=False) for cell in first
    )
    are_names = all(cell.replace("_", "").isalpha() and len(cell) > 1 for cell in first)
    is_longer = any(
        len(rest) >= MIN_ROWS and len(values) * 2 <= len(rest) and len(cell) > max(map(len, values))
        for cell, values in zip(first, columns, strict=True)
    )
    return tuple(first) if are_names and (marks or is_longer) else ()


def columns_of(names: Sequence[str], sequences: Sequence[Rows]) -> list[Column]:
    """Return the columns of sequences of rows with a token each."""
    groups = [tuple(tuple(row[index] for row in rows) for rows in sequences) for index in range(len(names))]
    return [Column(name, tuple(chain(*each)), each) for name, each in zip(names, groups, strict=True)]


def _counts_tokens(column: Column) -> bool:
    """Whether a column counts the rows of each sequence from 0 or from 1, or the rows of the file."""
    if len(column.values) < 2:
        return False
    if any(all(cell == str(k) for each in column.groups for k, cell in enumerate(each, start)) for start in (0, 1)):
        return True
    first = int(column.values[0]) if column.values[0].isdecimal() else -1
    return first >= 0 and all(cell == str(k) for k, cell in enumerate(column.values, first))


def _numbers_runs(column: Column) -> bool:
    """Whether whole numbers grow by one from run to run of equal cells, within sequences."""
    if not all(map(str.isdecimal, column.values)) or _is_constant(column):
        return False
    runs = [int(cell) for cell, _ in groupby(column.values)]
    return 2 * len(runs) <= len(column.values) and all(after == before + 1 for before, after in pairwise(runs))


def _is_constant(column: Column) -> bool:
    """Whether a column has the same value in all rows of each sequence, such as the name of a document."""
    long = [cells for cells in column.groups if len(cells) > 1]
    return len(long) > 1 and all(len({*cells}) == 1 for cells in long)


def _marks_entities(column: Column) -> bool:
    return bool(detect_scheme([list({*column.values})], in_order=False))


def _tokens(columns: Sequence[Column], _: Found) -> list[Column]:
    """The first column that varies, is not of numbers and does not mark entities.

    Or a later one with several times as many distinct values; of two columns, both if it has more of them.
    """
    varying = [column for column in columns if not _is_constant(column)] or [*columns]
    words = [column for column in varying if not all(map(is_number, {*column.values}))] or varying
    plain = [column for column in words if not _marks_entities(column)] or words
    first, richest = plain[0], max(plain, key=lambda column: column.distinct)
    has_short_cells = sum(map(len, {*first.values})) < 2 * first.distinct  # characters have fewer values than labels
    if richest is first or has_short_cells or len(first.values) < MIN_ROWS or 2 * first.distinct > len(first.values):
        return [first]
    if _CLEARLY * first.distinct <= richest.distinct:
        return [richest]
    return [first, richest] if len(columns) == 2 else [first]


def _tags(columns: Sequence[Column], found: Found) -> list[Column]:
    """The last column that marks entities or, failing that, the last one that is not constant.

    Columns with a usual name are preferred. Columns with more than half as many values as there are distinct tokens,
    such as lemmas, come last.
    """
    usual = [column for column in columns if column.name.strip().lower() in TAG_COLUMNS]
    candidates = usual or columns
    varying = [column for column in candidates if column.distinct > 1]
    marking = [column for column in varying if _marks_entities(column)]
    tokens = found[TOKENS]
    max_values = tokens.distinct / 2 if tokens.distinct >= MIN_ROWS else len(tokens.values)
    repeating = [column for column in varying if column.distinct <= max_values]
    chosen = [*(marking or repeating or varying or candidates)][-1:]
    if len(marking) > 1:  # nested entities: the outer ones are more frequent, and include all types of the inner ones
        types = [{*map(entity_type, column.values)} for column in marking]
        outer = [column for column, each in zip(marking, types, strict=True) if each >= types[-1]]
        chosen = [max(reversed(outer), key=lambda column: sum(cell != "O" for cell in column.values))]
    return chosen


def other_tags(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that may contain labels, too: those with a usual name or, failing that, with few values."""
    usual = [column for column in columns if column.name.strip().lower() in TAG_COLUMNS]
    return usual or [column for column in columns if 1 < column.distinct <= min(_MAX_LABELS, len(column.values) // 5)]


TOKEN_LISTS = Role("words", "--text-column", (*TOKEN_COLUMNS, *TEXT_COLUMNS), lambda *_: [])
TAG_LISTS = Role("labels", "--label-column", (*TAG_COLUMNS, *SPAN_COLUMNS), lambda *_: [], True)
"""The roles of columns with a list in each row."""
INDEX = Role("numbers of tokens", "", (), lambda columns, _: [*filter(_counts_tokens, columns)][:1])
SENTENCES = Role("sentences", "", SENTENCE_COLUMNS, lambda columns, _: [*filter(_numbers_runs, columns)][:1])
TOKENS = Role("words", "--text-column", TOKEN_COLUMNS, _tokens)
FIRST_TOKENS = replace(TOKENS, find=lambda columns, found: _tokens(columns, found)[:1])
"""The tokens of a file without labels, in which the first of two columns of words contains them."""
TAGS = Role("labels", "--label-column", (), _tags)
