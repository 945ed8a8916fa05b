"""Tables of tokens, CSV as Kaggle and Excel have it: a token a row, its sentence and labels in other columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import scheme_of, to_iob2
from glassgate.tasks.data.columns import LABEL_NAMES, WORD_NAMES, column_number
from glassgate.tasks.data.detect import SEPARATORS, kind_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

_ROWS, _FEW = 20_000, 200  # rows that are examined
_SENTENCES = {"sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id", "sent", "sent_idx"}

Row = tuple[int, list[str]]
"""A line's number and its cells."""


@dataclass(frozen=True)
class TokenTable:
    """The meaning of the columns of a table of tokens, numbered from 0.

    Attributes:
        separator: between columns
        names: the header
        unit: the column of the tokens
        label: the one of the labels; None without labels
        sentence: the one that names or numbers the sentence, in each row or in its first; None: empty rows part them
        scheme: in which labels mark entities, see `columns.Layout`
        others: more columns that may hold labels
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
        found = [f"words in column {self.names[self.unit]!r}"]
        if self.label is not None:
            how = {"": "", "IOB2": " (IOB2)"}.get(self.scheme, f" ({self.scheme}, converted to IOB2)")
            found.append(f"labels in {self.names[self.label]!r}{how}")
        by = "empty rows" if self.sentence is None else repr(self.names[self.sentence])
        found += [
            f"sentences by {by}",
            f"separated by {SEPARATORS[self.separator]}" if self.separator else "first sheet",
        ]
        if self.others:
            names = ", ".join(repr(self.names[each]) for each in self.others)
            found.append(f"and what may be labels in {names} too (--column takes them)")
        return ", ".join(found)


def look_at_tokens(
    path: str | Path, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> TokenTable:
    """Recognise the columns of a table of tokens by the names in its first line and their values.

    Args:
        column, text_column: names of columns, or their numbers from 1, that override the recognised ones
        labelled: whether one of them must hold labels

    Raises:
        DataError: see `read_lines`; the first line names no column of words, or none of labels
        OptionError: no such column
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
    """Whether a table has the columns of one: words, labels, and sentences by name or by empty rows."""
    try:
        layout = look_at_tokens(path)
    except DataError:
        return False
    several = any(len(rows) > 1 for _, rows in _sentences(path, layout, _FEW))
    return several and (layout.sentence is not None or layout.names[layout.unit].strip().lower() != "text")


def read_tokens(path: str | Path, layout: TokenTable) -> Iterator[Tagged]:
    """Yield the sentences of a table of tokens.

    Raises:
        DataError: see `read_lines`; a row of more or fewer columns, a token or a label that is empty
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
    """The rows of each sentence, of so many rows at most, and the sentence's number."""

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
    """The rows below the header; one whose cells are all empty has none."""
    return islice(records.table_of(path, kind_of_table(path))[1], 1, None)


def kind_of_table(path: str | Path) -> str:
    """The kind of a table of tokens."""
    return "xlsx" if kind_of(path) == "xlsx" else "csv"
