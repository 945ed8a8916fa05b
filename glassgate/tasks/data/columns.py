"""The layout of a file with a token per row, and its detection where no header names the columns."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from glassgate.tasks.data.bio import scheme_note, scheme_of
from glassgate.tasks.data.detect import SEPARATORS
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.records import TAGS, TOKENS
from glassgate.tasks.errors import OptionError

_LINES = 20_000  # lines that are examined
_FIELD = re.compile(r"#\s*[\w:.-]+(\[\w+\])?\s*=|#\s*(newdoc|newpar|begin|end)\b", re.IGNORECASE)
_ID = re.compile(r"\d+([-.]\d+)?")
_NAMES = {"id", "idx", "index", "no", "nr", "sentence", "lemma", *TOKENS, *TAGS}
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_MOST_LABELS = 100

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Layout:
    """The meaning of the columns of a file with a token per row, numbered from 0.

    Attributes:
        kind: "conllu"; "columns"; or "csv" or "xlsx", a table whose header names the columns
        separator: the separator of the columns; None for any run of blanks; empty for a sheet
        width: the number of columns
        unit: the column of the tokens
        label: the column of the labels; None without labels
        index: the column that numbers the tokens of each sequence; None if there is none
        sentence: the column that identifies the sentence, in each row or in the first row of a sentence; None if blank
            rows separate sentences
        names: the header; empty if there is none
        scheme: the scheme of the labels, see `bio.scheme_of`; empty if they do not mark entities
        others: other columns that may contain labels
    """

    kind: str
    separator: str | None
    width: int
    unit: int = 0
    label: int | None = None
    index: int | None = None
    sentence: int | None = None
    names: tuple[str, ...] = ()
    scheme: str = ""
    others: tuple[int, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether the header names the columns."""
        return self.kind in ("csv", "xlsx")

    def description(self) -> str:
        """Describe the columns, by their names in a table, and by numbers from 1 otherwise.

        Example:
            >>> Layout("columns", "\\t", 3, unit=1, label=2, index=0, scheme="IOB2").description()
            'index in column 1, words in 2, labels in 3 (IOB2)'
            >>> Layout("csv", ",", 3, 1, 2, sentence=0, names=("Sentence #", "Word", "Tag")).description()
            "words in column 'Word', labels in 'Tag', sentences by 'Sentence #', separated by commas"
        """
        if self.kind == "conllu":
            return "CoNLL-U"
        parts = [] if self.index is None else [f"index in column {self._name(self.index)}"]
        parts.append(f"words in {'' if parts else 'column '}{self._name(self.unit)}")
        if self.label is not None:
            parts.append(f"labels in {self._name(self.label)}{scheme_note(self.scheme)}")
        if self.is_table:
            parts.append(f"sentences by {'empty rows' if self.sentence is None else self._name(self.sentence)}")
            parts.append(f"separated by {SEPARATORS[self.separator]}" if self.separator else "first sheet")
        elif self.names:
            parts.append("a header in the first line")
        if self.others:
            others = ", ".join(map(self._name, self.others))
            parts.append(f"possibly labels in {others}, too (choose with --label-column)")
        return ", ".join(parts)

    def _name(self, column: int) -> str:
        return repr(self.names[column]) if self.is_table else str(column + 1)


def conllu_layout(column: str | None = None, labelled: bool = True) -> Layout:
    """Return the layout of CoNLL-U with one column, "upos" by default, as labels.

    Raises:
        OptionError: the column does not exist
    """
    column = column or "upos"
    if column not in CONLLU_COLUMNS:
        raise OptionError(f"--label-column: expected one of {', '.join(CONLLU_COLUMNS)} for CoNLL-U, got {column!r}")
    label = CONLLU_COLUMNS.index(column) if labelled else None
    return Layout("conllu", "\t", len(CONLLU_COLUMNS), CONLLU_COLUMNS.index("form"), label)


def is_comment(text: str, cells: int, width: int) -> bool:
    """Whether a line is a comment: # and a field, as in CoNLL-U, or # and another number of cells than `width`.

    Example:
        >>> is_comment("# sent_id = 3", 1, 3), is_comment("# O", 2, 2), is_comment("# made by me", 4, 2)
        (True, False, True)
    """
    return text.startswith("#") and (bool(_FIELD.match(text)) or cells != width)


def detect_layout(
    path: str | Path,
    column: str | None = None,
    text_column: str | None = None,
    labelled: bool = True,
    separator: str | None = None,
) -> Layout | None:
    """Detect the layout of a file.

    Args:
        column, text_column: the columns of labels and of tokens, as numbers from 1 or names of the header; detected if
            None
        labelled: whether a column of labels is required
        separator: the separator of the columns; detected if None

    Returns:
        the layout; None if the lines have no columns

    Raises:
        DataError: see `read_lines`
        OptionError: the column does not exist
    """
    lines = [text for _, text in islice(read_lines(path), _LINES)]
    separator = separator or _separator(lines)
    sequences = list(_sequences(lines, separator))
    width = next((width for width, _ in Counter(map(len, chain.from_iterable(sequences))).most_common(1)), 0)
    needed = 2 if labelled else 1
    if width < needed:
        return None
    sequences = _without_empty([row for row in rows if len(row) == width or row[0][:1] != "#"] for rows in sequences)
    if separator == "\t" and width == len(CONLLU_COLUMNS) and all(_ID.fullmatch(row[0]) for row in sequences[0]):
        return conllu_layout(column, labelled)
    names = _header(sequences)
    if names:
        sequences = _without_empty([sequences[0][1:], *sequences[1:]])
    sequences = [rows for rows in sequences if all(len(row) == width for row in rows)]
    layout = Layout("columns", separator, width, names=names)
    if not sequences:
        return replace(layout, label=width - 1 if labelled else None)
    index = _index(sequences, width) if width > needed else None
    left = [each for each in range(width) if each != index]
    unit = column_number("--text-column", path, text_column, width, names)
    if unit is None:
        unit = next((each for each in left[: len(left) - needed + 1] if not _is_name(sequences, each)), left[0])
    layout = replace(layout, unit=unit, index=index)
    if not labelled:
        return layout
    label = column_number("--label-column", path, column, width, names)
    others: list[int] = []
    if label is None:
        label, others = _label(sequences, [each for each in left if each != unit] or [unit])
    scheme = scheme_of([row[label] for row in rows] for rows in sequences)
    return replace(layout, label=label, scheme=scheme, others=tuple(others))


def _without_empty(sequences: Iterable[list[list[str]]]) -> list[list[list[str]]]:
    return [rows for rows in sequences if rows]


def has_clear_columns(layout: Layout, path: str | Path) -> bool:
    """Whether a file of unknown suffix has columns, rather than text with equally many words per line.

    Evidence for columns is a header, an index, labels that mark entities, or few distinct labels, with tabs or not.
    """
    if layout.kind == "conllu" or layout.index is not None or layout.scheme or layout.names:
        return True
    rows = [text.split(layout.separator) for _, text in islice(read_lines(path), _LINES) if text.strip()]
    if any(len(row) != layout.width for row in rows):
        return False
    labels = len({row[-1] for row in rows})
    return (len(rows) >= 20 and labels * 5 <= len(rows)) or (
        layout.separator == "\t" and labels < max(20, len(rows) / 2)
    )


def column_number(option: str, path: str | Path, value: str | None, width: int, names: Sequence[str]) -> int | None:
    """Return the number, from 0, of the column that an option names.

    Raises:
        OptionError: the column does not exist
    """
    if value is None:
        return None
    if value in names:
        return names.index(value)
    if not value.isdecimal() or int(value) < 1:
        known = f", or one of {', '.join(names)}," if names else ""
        raise OptionError(f"{option}: expected a number from 1{known} for this format, got {value!r}")
    if int(value) > width:
        raise OptionError(f"{option}: expected 1 to {width}, as {path} has so many columns, got {value}")
    return int(value) - 1


def _separator(lines: Sequence[str]) -> str | None:
    """A tab if most lines, except comments, contain one; otherwise None, for blanks."""
    rows = [text for text in lines if text.strip() and not _FIELD.match(text)]
    return "\t" if 2 * sum("\t" in text for text in rows) > len(rows) else None


def _sequences(lines: Sequence[str], separator: str | None) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    for text in (*lines, ""):
        if not text.strip() or text.startswith("-DOCSTART-"):
            if rows:
                yield rows
            rows = []
        elif not _FIELD.match(text):
            rows.append(text.split(separator))


def _header(sequences: Sequence[Rows]) -> tuple[str, ...]:
    """The first row if all its cells are usual column names and other rows follow; otherwise empty."""
    first = sequences[0][0]
    several = len(first) > 1 and (len(sequences) > 1 or len(sequences[0]) > 1)
    return tuple(first) if several and all(cell.strip(" #").lower() in _NAMES for cell in first) else ()


def _index(sequences: Sequence[Rows], width: int) -> int | None:
    """The first column that counts the rows of each sequence, from 0 or from 1."""

    def counts(column: int) -> bool:
        return any(
            all(row[column] == str(number) for rows in sequences for number, row in enumerate(rows, start=start))
            for start in (0, 1)
        )

    several = sum(map(len, sequences)) > 1
    return next((column for column in range(width) if several and counts(column)), None)


def _is_name(sequences: Sequence[Rows], column: int) -> bool:
    """Whether a column has the same value in all rows of each sequence, such as the name of a document."""
    long = [rows for rows in sequences if len(rows) > 1]
    return len(long) > 1 and all(len({row[column] for row in rows}) == 1 for rows in long)


def _label(sequences: Sequence[Rows], candidates: Sequence[int]) -> tuple[int, list[int]]:
    """The last column that marks entities, or else the last with different values, and other possible ones."""
    values = {each: Counter(row[each] for rows in sequences for row in rows) for each in candidates}
    rows = sum(map(len, sequences))
    differ = [each for each in candidates if len(values[each]) > 1]
    entities = [each for each in differ if scheme_of([list(values[each])], in_order=False)]
    chosen = (entities or differ or list(candidates))[-1]
    few = [each for each in differ if each != chosen and len(values[each]) <= min(_MOST_LABELS, rows // 5)]
    return chosen, few
