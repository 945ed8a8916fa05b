"""Reads tables with a token per row and columns for its labels and its sentence, as CSV or Excel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import scheme_note, scheme_of, to_iob2
from glassgate.tasks.data.columns import LABEL_NAMES, WORD_NAMES, column_number
from glassgate.tasks.data.detect import SEPARATORS, kind_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

_ROWS, _FEW = 20_000, 200  # rows that are examined
_SENTENCES = {"sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id", "sent", "sent_idx"}

Row = tuple[int, list[str]]
"""The number of a line and its cells."""


@dataclass(frozen=True)
class TokenTable:
    """The meaning of the columns of a table of tokens, numbered from 0.

    Attributes:
        separator: the separator of the columns
        names: the header
        unit: the column of the tokens
        label: the column of the labels; None without labels
        sentence: the column that identifies the sentence, in each row or in the first row of a sentence; None if empty
            rows separate sentences
        scheme: the scheme of the labels, see `bio.scheme_of`
        others: other columns that may contain labels
    """

    separator: str
    names: tuple[str, ...]
    unit: int
    label: int | None
    sentence: int | None
    scheme: str = ""
    others: tuple[int, ...] = ()

    def description(self) -> str:
        """Describe the columns.

        Example:
            >>> TokenTable(",", ("Sentence #", "Word", "POS", "Tag"), 1, 3, 0, "IOB2", (2,)).description()
            "words in column 'Word', labels in 'Tag' (IOB2), sentences by 'Sentence #', separated by commas, and what \
may be labels in 'POS' too (--column takes them)"
        """
        parts = [f"words in column {self.names[self.unit]!r}"]
        if self.label is not None:
            parts.append(f"labels in {self.names[self.label]!r}{scheme_note(self.scheme)}")
        by = "empty rows" if self.sentence is None else repr(self.names[self.sentence])
        parts += [
            f"sentences by {by}",
            f"separated by {SEPARATORS[self.separator]}" if self.separator else "first sheet",
        ]
        if self.others:
            names = ", ".join(repr(self.names[each]) for each in self.others)
            parts.append(f"and what may be labels in {names} too (--column takes them)")
        return ", ".join(parts)


def detect_token_table(
    path: str | Path, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> TokenTable:
    """Detect the columns of a table of tokens by the names in its header and by their values.

    Args:
        column, text_column: the columns of labels and of tokens, as names or numbers from 1; detected if None
        labelled: whether a column of labels is required

    Raises:
        DataError: see `read_lines`; the header has no column of words or of labels
        OptionError: the column does not exist
    """
    dialect, _ = records.table_of(path, kind_of_table(path))
    names = dialect.header
    known = [name.strip().lower() for name in names]
    unit = column_number("--text-column", path, text_column, len(names), names)
    label = column_number("--column", path, column, len(names), names) if labelled else None
    if unit is None:
        unit = next((place for place, name in enumerate(known) if name in WORD_NAMES), None)
    candidates = [place for place, name in enumerate(known) if name in LABEL_NAMES and place != unit]
    if unit is None or (labelled and label is None and not candidates):
        what = "a column of words, such as 'word'," if unit is None else "a column of labels, such as 'tag',"
        raise DataError(
            path,
            dialect.before + 1,
            f"expected {what} in the first line, got {', '.join(map(repr, names[:8]))}; name yours with --text-column "
            "and --column",
        )
    sentence = next((place for place, name in enumerate(known) if name in _SENTENCES and place != unit), None)
    layout = TokenTable(dialect.separator, names, unit, label, sentence)
    if not labelled:
        return layout
    rows = [rows for _, rows in _sentences(path, layout, _ROWS)]
    kinds = [*candidates] if label is None else [*candidates, label]
    labels = {place: [[row[place] for _, row in each] for each in rows] for place in kinds}
    if label is None:
        marks = [place for place in candidates if scheme_of(labels[place])]
        label = (marks or candidates)[-1]
    others = tuple(place for place in candidates if place != label and column is None)
    return replace(layout, label=label, scheme=scheme_of(labels[label]), others=others)


def is_token_table(path: str | Path) -> bool:
    """Whether a table has columns of words and labels, and sentences of several rows."""
    try:
        layout = detect_token_table(path)
    except DataError:
        return False
    several = any(len(rows) > 1 for _, rows in _sentences(path, layout, _FEW))
    return several and (layout.sentence is not None or layout.names[layout.unit].strip().lower() != "text")


def read_tokens(path: str | Path, layout: TokenTable) -> Iterator[Tagged]:
    """Yield the sentences of a table of tokens.

    Raises:
        DataError: see `read_lines`; a row has more or fewer columns, or an empty token or label
    """

    def cells(rows: Sequence[Row], place: int, what: str) -> tuple[str, ...]:
        for number, row in rows:
            if not row[place].strip():
                raise DataError(path, number, f"the {what} is empty; remove the row, or fill it in")
        return tuple(row[place] for _, row in rows)

    for _, rows in _sentences(path, layout):
        labels = None if layout.label is None else cells(rows, layout.label, "label")
        if labels and layout.scheme not in ("", "IOB2"):
            labels = tuple(to_iob2(labels, layout.scheme))
        yield Tagged(cells(rows, layout.unit, "token"), labels, source=str(path), lines=tuple(n for n, _ in rows))


def _sentences(path: str | Path, layout: TokenTable, most: int | None = None) -> Iterator[tuple[int, list[Row]]]:
    """The number of each sentence and its rows, from at most `most` rows of the table."""

    def numbered() -> Iterator[tuple[int, Row]]:
        sentence, name = 0, ""
        for number, row in islice(_rows(path, layout), most):
            here = "" if layout.sentence is None or not row else row[layout.sentence].strip()
            if not row or (here and here != name):
                sentence, name = sentence + 1, here
            if row:
                yield sentence, (number, row)

    for sentence, rows in groupby(numbered(), key=lambda each: each[0]):
        yield sentence, [row for _, row in rows]


def _rows(path: str | Path, layout: TokenTable) -> Iterator[Row]:
    """The rows below the header; an empty row has no cells."""
    return islice(records.table_of(path, kind_of_table(path))[1], 1, None)


def kind_of_table(path: str | Path) -> str:
    """Return the kind of a table of tokens: "xlsx" or "csv"."""
    return "xlsx" if kind_of(path) == "xlsx" else "csv"
