"""The roles of the columns of a file with a token per row, as pure functions of its sequences of rows."""

from collections.abc import Collection, Sequence
from itertools import groupby, pairwise

from glassgate.tasks.data.bio import detect_scheme, entity_type
from glassgate.tasks.data.detect import is_number
from glassgate.tasks.data.records import TAG_COLUMNS, TOKEN_COLUMNS

SENTENCE_NAMES = ("sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id", "sent", "sent_idx")
"""The usual names of columns or keys with the sentence of a token."""
USUAL_NAMES = {*SENTENCE_NAMES, *TOKEN_COLUMNS, *TAG_COLUMNS}
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
    first, *rest = (row for rows in sequences for row in rows)
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


def find_index_column(sequences: Sequence[Rows], width: int) -> int | None:
    """Return the first column that counts the rows of each sequence from 0 or from 1, or the rows of the file."""
    rows = [row for sequence in sequences for row in sequence]
    if len(rows) < 2:
        return None

    def counts_rows(column: int) -> bool:
        cells = [[row[column] for row in sequence] for sequence in sequences]
        if any(all(cell == str(k) for each in cells for k, cell in enumerate(each, start)) for start in (0, 1)):
            return True
        every = [row[column] for row in rows]
        first = int(every[0]) if every[0].isdecimal() else -1
        return first >= 0 and all(cell == str(k) for k, cell in enumerate(every, first))

    return next((column for column in range(width) if counts_rows(column)), None)


def find_sentence_column(sequences: Sequence[Rows], columns: Sequence[int]) -> int | None:
    """Return the first column whose whole numbers grow by one from run to run of equal cells, within sequences."""

    def numbers_runs(column: int) -> bool:
        cells = [row[column] for rows in sequences for row in rows]
        if not all(map(str.isdecimal, cells)) or is_constant(sequences, column):
            return False
        runs = [int(cell) for cell, _ in groupby(cells)]
        return 2 * len(runs) <= len(cells) and all(after == before + 1 for before, after in pairwise(runs))

    return next((column for column in columns if numbers_runs(column)), None)


def is_constant(sequences: Sequence[Rows], column: int) -> bool:
    """Whether a column has the same value in all rows of each sequence, such as the name of a document."""
    long = [rows for rows in sequences if len(rows) > 1]
    return len(long) > 1 and all(len({row[column] for row in rows}) == 1 for rows in long)


def choose_token_column(sequences: Sequence[Rows], columns: Sequence[int]) -> tuple[int, int | None]:
    """Return the column of the tokens, and another column that is about as likely; None if there is none.

    It is the first column that varies, is not of numbers and does not mark entities, or a later one with several times
    as many distinct values.

    Args:
        columns: the columns to choose from
    """
    rows = [row for each in sequences for row in each]
    values = {column: {row[column] for row in rows} for column in columns}
    candidates = [column for column in columns if not is_constant(sequences, column)] or list(columns)
    words = [column for column in candidates if not all(map(is_number, values[column]))] or candidates
    plain = [column for column in words if not detect_scheme([list(values[column])], in_order=False)] or words
    first = plain[0]
    richest = max(plain, key=lambda column: (len(values[column]), -column))
    has_short_cells = sum(map(len, values[first])) < 2 * len(values[first])  # characters have fewer values than labels
    if richest == first or has_short_cells or len(rows) < MIN_ROWS or 2 * len(values[first]) > len(rows):
        return first, None
    if _CLEARLY * len(values[first]) <= len(values[richest]):
        return richest, None
    return first, richest if len(columns) == 2 else None


def choose_label_column(sequences: Sequence[Rows], candidates: Sequence[int], tokens: int) -> tuple[int, list[int]]:
    """Return the column of the labels, and other columns that may contain labels.

    The last column that marks entities is chosen or, failing that, the last one that is not constant. Columns with
    more than half as many values as there are distinct tokens, such as lemmas, come last.

    Args:
        tokens: the column of the tokens
    """
    rows = [row for each in sequences for row in each]
    values = {column: {row[column] for row in rows} for column in [*candidates, tokens]}
    varying = [column for column in candidates if len(values[column]) > 1]
    marking = [column for column in varying if detect_scheme([list(values[column])], in_order=False)]
    max_values = len(values[tokens]) / 2 if len(values[tokens]) >= MIN_ROWS else len(rows)
    repeating = [column for column in varying if len(values[column]) <= max_values]
    chosen = (marking or repeating or varying or list(candidates))[-1]
    if len(marking) > 1:  # nested entities: the outer ones are more frequent, and include all types of the inner ones
        types: dict[int, Collection[str]] = {
            column: {entity_type(label) for label in values[column]} for column in marking
        }
        outer = [column for column in marking if {*types[column]} >= {*types[chosen]}]
        chosen = max(outer, key=lambda column: (sum(row[column] != "O" for row in rows), column))
    max_labels = min(_MAX_LABELS, len(rows) // 5)
    return chosen, [column for column in varying if column != chosen and len(values[column]) <= max_labels]
