"""Tables with a token per row and columns for its labels and its sentence, as CSV or Excel."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import scheme_of
from glassgate.tasks.data.columns import Layout, column_number
from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.errors import DataError

_ROWS, _FEW = 20_000, 200  # rows that are examined
_SENTENCES = {"sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id", "sent", "sent_idx"}


def detect_token_table(
    path: str | Path, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> Layout:
    """Detect the columns of a table of tokens by the names in its header and by their values.

    Args:
        column, text_column: the columns of labels and of tokens, as names or numbers from 1; detected if None
        labelled: whether a column of labels is required

    Raises:
        DataError: see `read_lines`; the header has no column of words or of labels
        OptionError: the column does not exist
    """
    kind = "xlsx" if kind_of(path) == "xlsx" else "csv"
    dialect, _ = records.table_of(path, kind)
    names = dialect.header
    known = [name.strip().lower() for name in names]
    unit = column_number("--text-column", path, text_column, len(names), names)
    label = column_number("--label-column", path, column, len(names), names) if labelled else None
    if unit is None:
        unit = next((place for place, name in enumerate(known) if name in records.TOKENS), None)
    candidates = [place for place, name in enumerate(known) if name in records.TAGS and place != unit]
    if unit is None or (labelled and label is None and not candidates):
        what = "a column of words, such as 'word'," if unit is None else "a column of labels, such as 'tag',"
        raise DataError(
            path,
            dialect.before + 1,
            f"expected {what} in the first line, got {', '.join(map(repr, names[:8]))}; name yours with --text-column "
            "and --label-column",
        )
    sentence = next((place for place, name in enumerate(known) if name in _SENTENCES and place != unit), None)
    layout = Layout(kind, dialect.separator, len(names), unit, label, sentence=sentence, names=names)
    if not labelled:
        return layout
    sentences = _sentences(path, layout, _ROWS)
    schemes = {place: scheme_of([row[place] for row in rows] for rows in sentences) for place in range(len(names))}
    if label is None:
        label = next((place for place in reversed(candidates) if schemes[place]), candidates[-1])
    others = tuple(place for place in candidates if place != label and column is None)
    return replace(layout, label=label, scheme=schemes[label], others=others)


def is_token_table(path: str | Path, labelled: bool = True) -> bool:
    """Whether a file is a table with a column of words, and sentences of several rows.

    Args:
        labelled: whether a column of labels is required; otherwise a column of sentences is
    """
    try:
        layout = detect_token_table(path, labelled=labelled)
        several = any(len(rows) > 1 for rows in _sentences(path, layout, _FEW))
    except DataError:
        return False
    is_named = labelled and layout.names[layout.unit].strip().lower() != "text"
    return several and (layout.sentence is not None or is_named)


def _sentences(path: str | Path, layout: Layout, most: int) -> list[list[list[str]]]:
    """The rows of each sentence, from the first rows of the table."""
    groups = groupby((row for _, row in islice(table_rows(path, layout), most)), key=bool)
    return [[row for row in rows if row] for filled, rows in groups if filled]


def table_rows(path: str | Path, layout: Layout) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number of each row below the header and its cells, with None for the cells between sentences."""
    name = ""
    for number, row in islice(records.table_of(path, layout.kind)[1], 1, None):
        here = row[layout.sentence].strip() if row and layout.sentence is not None else ""
        if not row or (here and here != name):
            name = here
            yield number, None
        if row:
            yield number, row
