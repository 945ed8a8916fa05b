"""CSV and Excel tables. Each row has a token, its label, and usually the name of its sentence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import detect_scheme
from glassgate.tasks.data.columns import Layout, column_number
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.token_roles import choose_label_column
from glassgate.tasks.errors import DataError

_EXAMINED_ROWS = 20_000
_EXAMINED_ROWS_OF_UNKNOWN_FILES = 200  # the rows that `is_token_table` examines
SENTENCE_NAMES = {
    "sentence",
    "sentence #",
    "sentence_id",
    "sentence id",
    "sentence_idx",
    "sent_id",
    "sent",
    "sent_idx",
}
"""The usual names of columns or keys with the sentence of a token."""


def detect_token_table(
    path: str | Path, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> Layout:
    """Detect the columns of a table of tokens by the names in its header and by the values of the columns.

    Args:
        column, text_column: the columns of labels and of tokens, as names or numbers from 1; detected if None
        labelled: whether a column of labels is required

    Raises:
        DataError: see `read_lines`; the header has no column of words or of labels
        OptionError: a given column does not exist
    """
    kind = "xlsx" if detect_kind(path) == "xlsx" else "csv"
    dialect, _ = records.read_table(path, kind)
    names = dialect.header
    lower_names = [name.strip().lower() for name in names]
    token_column = column_number("--text-column", path, text_column, len(names), names)
    label_column = column_number("--label-column", path, column, len(names), names) if labelled else None
    if token_column is None:
        token_column = next((number for number, name in enumerate(lower_names) if name in records.TOKEN_COLUMNS), None)
    others = [(number, name) for number, name in enumerate(lower_names) if number != token_column]
    candidates = [number for number, name in others if name in records.TAG_COLUMNS]
    if token_column is None or (labelled and label_column is None and not candidates):
        expected = "words, such as 'word'," if token_column is None else "labels, such as 'tag',"
        raise DataError(
            path,
            dialect.skipped_lines + 1,
            f"expected a column of {expected} in the first line, got {', '.join(map(repr, names[:8]))}; name yours "
            "with --text-column and --label-column",
        )
    sentence_column = next((number for number, name in others if name in SENTENCE_NAMES), None)
    layout = Layout(kind, dialect.separator, len(names), token_column, label_column, None, sentence_column, names)
    if not labelled:
        return layout
    examined = _sentences(path, layout, _EXAMINED_ROWS)
    if label_column is None:
        label_column, _ = choose_label_column(examined, candidates, token_column)
    scheme = detect_scheme([row[label_column] for row in rows] for rows in examined)
    other_labels = tuple(number for number in candidates if number != label_column and column is None)
    return replace(layout, label_column=label_column, scheme=scheme, other_label_columns=other_labels)


def is_token_table(path: str | Path, labelled: bool = True) -> bool:
    """Whether a file is a table with a column of words, and sentences of several rows.

    A column of sentence names is required, too, if `labelled` is false or the column of words is called "text",
    because such a table may contain whole texts.

    Args:
        labelled: whether a column of labels is required
    """
    try:
        layout = detect_token_table(path, labelled=labelled)
        sentences = _sentences(path, layout, _EXAMINED_ROWS_OF_UNKNOWN_FILES)
        has_long_sentence = any(len(rows) > 1 for rows in sentences)
    except DataError:
        return False
    has_words = labelled and layout.names[layout.token_column].strip().lower() != "text"
    return has_long_sentence and (layout.sentence_column is not None or has_words)


def has_sequence_rows(path: str | Path, kind: str, column: str | None = None, text_column: str | None = None) -> bool:
    """Whether each row of a table contains a sequence: a cell of words or a list, and another with as many labels.

    Args:
        kind: one of `records.TABLE_KINDS`
        column, text_column: the names of the columns of labels and of tokens; usual names if None
    """
    try:
        rows = [row for _, row, _ in islice(records.read_rows(path, kind), _EXAMINED_ROWS_OF_UNKNOWN_FILES)]
    except DataError:
        return False
    names = {name.lower(): name for name in (rows[0] if rows else {})}
    tokens = text_column or _first_of(names, (*records.TOKEN_COLUMNS, *records.TEXT_COLUMNS))
    labels = column or _first_of(names, records.TAG_COLUMNS)
    if not rows or tokens not in rows[0] or labels not in rows[0] or tokens == labels:
        return False
    found = [records.as_sequences(row[tokens], row[labels]) for row in rows]
    return all(found) and any(len(pair[0]) > 1 for pair in found if pair)


def _first_of(names: Mapping[str, str], usual_names: Sequence[str]) -> str | None:
    return next((names[name] for name in usual_names if name in names), None)


def _sentences(path: str | Path, layout: Layout, max_rows: int) -> list[list[list[str]]]:
    """The rows of each sentence, from the first `max_rows` rows of the table."""
    groups = groupby((row for _, row in islice(table_rows(path, layout), max_rows)), key=bool)
    return [[row for row in rows if row] for filled, rows in groups if filled]


def table_rows(path: str | Path, layout: Layout) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number and the cells of each row below the header; None instead of cells separates two sentences."""
    current = ""
    for number, row in islice(records.read_table(path, layout.kind)[1], 1, None):
        name = row[layout.sentence_column].strip() if row and layout.sentence_column is not None else ""
        if not row or (name and name != current):
            current = name
            yield number, None
        if row:
            yield number, row
