"""The layout of a file with a token per row, and its detection."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from glassgate.tasks.data.bio import describe_scheme, detect_scheme, entity_type
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.dialect import SEPARATORS
from glassgate.tasks.data.kinds import TAG_COLUMNS, TOKEN_COLUMNS, cell_text
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.records import KEYED_KINDS
from glassgate.tasks.data.roles import Role, assign, lacking_roles, missing_column
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.data.token_roles import (
    FIRST_TOKENS,
    INDEX,
    MIN_ROWS,
    SENTENCES,
    TAGS,
    TOKENS,
    USUAL_NAMES,
    columns_of,
    find_header,
    other_tags,
)
from glassgate.tasks.errors import DataError, OptionError

LABEL_SUFFIX = ".labels"
"""The usual suffix of the label file of plain text."""
_EXAMINED_ROWS = 20_000
_COMMENT_FIELD = re.compile(r"#\s*[\w:.-]+(\[\w+\])?\s*=|#\s*(newdoc|newpar|begin|end)\b", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t]+")
_TOKEN_ID = re.compile(r"\d+([-.]\d+)?")
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


Rows = list[Sequence[str]]
"""The rows of a sequence, with the cells of a token each."""


@dataclass(frozen=True)
class Layout:
    """The meaning of the columns of a file with a token per row, numbered from 0.

    Attributes:
        kind: "conllu"; "columns"; or the kind of a table whose header or whose keys name the columns
        separator: the separator of the columns; None for any white space; empty for a sheet of Excel
        width: the number of columns
        token_column: the column of the tokens
        label_column: the column of the labels; None without labels
        index_column: the column that numbers the tokens of each sequence; None if there is none
        sentence_column: the column that identifies the sentence, in each row or in the first row of a sentence; None if
            blank rows separate sentences
        names: the names of the columns in the header; empty without a header
        scheme: the scheme of the labels, see `bio.detect_scheme`; empty if they do not mark entities
        other_label_columns: other columns that may contain labels
        has_leading_comments: whether the first row of each sequence is a comment that begins with #
        is_clear: whether these are columns, and not a text whose lines have equally many words
    """

    kind: str
    separator: str | None
    width: int
    token_column: int = 0
    label_column: int | None = None
    index_column: int | None = None
    sentence_column: int | None = None
    names: tuple[str, ...] = ()
    scheme: str = ""
    other_label_columns: tuple[int, ...] = ()
    has_leading_comments: bool = False
    is_clear: bool = True

    @property
    def is_table(self) -> bool:
        """Whether the file is CSV, a sheet of Excel, or rows with keys."""
        return self.kind in ("csv", "xlsx", *KEYED_KINDS)

    def description(self) -> str:
        """Describe the columns: by name in a table, by number from 1 in other files.

        Example:
            >>> Layout("columns", "\\t", 3, token_column=1, label_column=2, index_column=0, scheme="IOB2").description()
            'index in column 1, words in 2, labels in 3 (IOB2)'
            >>> Layout("csv", ",", 3, 1, 2, sentence_column=0, names=("Sentence #", "Word", "Tag")).description()
            "words in column 'Word', labels in 'Tag', sentences by 'Sentence #', separated by commas"
        """
        if self.kind == "conllu":
            return "CoNLL-U"
        parts = [] if self.index_column is None else [f"index in column {self._name(self.index_column)}"]
        parts.append(f"words in {'' if parts else 'column '}{self._name(self.token_column)}")
        if self.label_column is not None:
            parts.append(f"labels in {self._name(self.label_column)}{describe_scheme(self.scheme)}")
        if self.is_table:
            by = "empty rows" if self.sentence_column is None else self._name(self.sentence_column)
            parts.append(f"sentences by {by}")
            parts += [f"separated by {SEPARATORS[self.separator]}"] if self.separator else []
            parts += ["first sheet"] if self.kind == "xlsx" else []
        else:
            parts += [] if self.sentence_column is None else [f"sentences by column {self._name(self.sentence_column)}"]
            parts += ["a header in the first line"] if self.names else []
        if self.other_label_columns:
            others = ", ".join(map(self._name, self.other_label_columns))
            parts.append(f"possibly labels in {others}, too (choose with --label-column)")
        return ", ".join(parts)

    @property
    def unread_columns(self) -> list[int]:
        """The columns whose content no sequence contains."""
        read = {self.token_column, self.label_column, self.index_column, self.sentence_column}
        return [column for column in range(self.width) if column not in read]

    def _name(self, column: int) -> str:
        return repr(self.names[column]) if self.is_table and self.names else str(column + 1)


@dataclass(frozen=True)
class Wanted:
    """The columns that a task reads from a file with a token per row.

    Attributes:
        label_column, text_column: the columns of labels and of tokens, as numbers from 1 or names in the header;
            detected if None
        label_suffix: the suffix of the label file of plain text; None if no labels are read
        labels: the labels of the training data; a column of them indicates columns
        reading: the columns of the training file, which files of the same width follow
    """

    label_column: str | None = None
    text_column: str | None = None
    label_suffix: str | None = LABEL_SUFFIX
    labels: Collection[str] = ()
    reading: Reading = NO_READING

    @property
    def labelled(self) -> bool:
        """Whether labels are required."""
        return self.label_suffix is not None


ANY_COLUMNS = Wanted()


def conllu_layout(column: str | None = None, labelled: bool = True) -> Layout:
    """Return the layout of CoNLL-U with a column of labels, "upos" if None; or without labels."""
    column = column or "upos"
    if column not in CONLLU_COLUMNS:
        raise OptionError(f"--label-column: expected one of {', '.join(CONLLU_COLUMNS)} for CoNLL-U, got {column!r}")
    label = CONLLU_COLUMNS.index(column) if labelled else None
    return Layout("conllu", "\t", len(CONLLU_COLUMNS), CONLLU_COLUMNS.index("form"), label)


def is_break(line: str) -> bool:
    """Whether a line separates sequences."""
    return not line.strip() or line.startswith("-DOCSTART-")


def split_cells(line: str, separator: str | None) -> list[str]:
    """Split a line at a separator or, if it is None, at blanks and tabs; no-break spaces belong to words."""
    # A cell has no blanks at its ends, unless it is a blank itself.
    return (
        [cell.strip(" ") or cell for cell in line.split(separator)]
        if separator
        else [cell for cell in _BLANKS.split(line) if cell]
    )


def is_comment(line: str, cell_count: int, width: int) -> bool:
    """Whether a line is a comment: it begins with # and either is CoNLL-U metadata or does not have `width` cells.

    Example:
        >>> is_comment("# sent_id = 3", 1, 3), is_comment("# O", 2, 2), is_comment("# made by me", 4, 2)
        (True, False, True)
    """
    return line.startswith("#") and (bool(_COMMENT_FIELD.match(line)) or cell_count != width)


def with_breaks(rows: Iterable[tuple[int, Any]], sentence_column: int | None) -> Iterator[tuple[int, Any]]:
    """Yield numbered rows, and None before each row with the name of another sentence.

    A row without a name belongs to the sentence of the row before.
    """
    current = ""
    for number, row in rows:
        if sentence_column is not None and isinstance(row, list) and row:
            name = row[sentence_column].strip()
            if name and name != current:
                current = name
                yield number, None
        yield number, row


def _sequences(rows: Iterable[Sequence[str]], sentence_column: int | None = None) -> list[Rows]:
    """The rows of each sequence, between rows without cells and, if a column has them, names of other sentences."""
    groups = groupby((row for _, row in with_breaks(enumerate(rows), sentence_column)), key=bool)
    return [list(group) for filled, group in groups if filled]


def _split_by_names(sequences: Sequence[Rows], sentence_column: int | None) -> list[Rows]:
    return _sequences(chain.from_iterable([*rows, []] for rows in sequences), sentence_column)


def _of_width(sequences: Sequence[Rows], width: int) -> list[Rows]:
    """The sequences all of whose rows have this number of cells."""
    return [rows for rows in sequences if all(len(row) == width for row in rows)]


def _without_first_row(sequences: Sequence[Rows]) -> list[Rows]:
    return [rows for rows in (sequences[0][1:], *sequences[1:]) if rows]


def detect_layout(path: str | Path, wanted: Wanted = ANY_COLUMNS, separator: str | None = None) -> Layout | None:
    """Detect the layout of a file with a token per row, other than a table; None if the lines have no columns.

    Args:
        separator: the separator of the columns; if None, a tab or white space is detected

    Raises:
        DataError: the tokens can be in two columns
        OptionError: the column does not exist
    """
    lines = [line for _, line in islice(read_lines(path), _EXAMINED_ROWS)]
    content = [line for line in lines if not _COMMENT_FIELD.match(line)]
    filled = [line for line in content if line.strip()]
    has_tabs = 2 * sum("\t" in line for line in filled) > len(filled)
    separator = separator or ("\t" if has_tabs else None)
    sequences = _sequences([] if is_break(line) else split_cells(line, separator) for line in content)
    ((width, _),) = Counter(map(len, chain.from_iterable(sequences))).most_common(1) or ((0, 0),)
    if width < (2 if wanted.labelled else 1):
        return None
    sequences = [*filter(None, ([r for r in rows if len(r) == width or r[0][:1] != "#"] for rows in sequences))]
    if separator == "\t" and width == len(CONLLU_COLUMNS) and all(_TOKEN_ID.fullmatch(row[0]) for row in sequences[0]):
        return conllu_layout(wanted.label_column, wanted.labelled)
    sequences = _of_width(sequences, width) or sequences
    has_comments = _have_leading_comments(sequences)
    if has_comments:
        sequences = [rows[1:] for rows in sequences if rows[1:]]
    names = find_header(sequences)
    sequences = _of_width(_without_first_row(sequences) if names else sequences, width)
    layout = Layout("columns", separator, width, names=names, has_leading_comments=has_comments)
    if not sequences:
        return replace(layout, label_column=width - 1 if wanted.labelled else None, is_clear=bool(names))
    layout = _with_roles(path, layout, sequences, wanted)
    rows = [split_cells(line, separator) for line in lines if line.strip()]
    return replace(layout, is_clear=_are_clear(layout, rows, {entity_type(label) for label in wanted.labels}))


def detect_table(path: str | Path, wanted: Wanted = ANY_COLUMNS) -> Layout:
    """Detect the layout of a table with a token per row: CSV, Excel, or rows with keys; see `detect_layout`.

    Raises:
        DataError: the columns have no usual names, and their content does not show their roles
        OptionError: a given column does not exist
    """
    kind = detect_kind(path)
    source = sniff(path, kind if kind in ("xlsx", *KEYED_KINDS) else "csv")
    sequences = _sequences([*map(cell_text, row)] for _, row in islice(source.rows(), _EXAMINED_ROWS))
    header = tuple(source.header)
    is_usual = any(name.lower() in USUAL_NAMES or name in (wanted.label_column, wanted.text_column) for name in header)
    names = header if is_usual or not sequences else find_header(sequences)
    if names and sequences and not source.is_keyed:
        sequences = _without_first_row(sequences)
    layout = Layout(source.kind, source.dialect.separator, len(header), names=names)
    if sequences:
        layout = _with_roles(path, layout, sequences, wanted)
        sequences = _split_by_names(sequences, layout.sentence_column)
    has_labels = wanted.labelled and bool(layout.scheme)
    if not (has_labels and sum(map(len, sequences)) >= MIN_ROWS and len(sequences) > 1):
        _check_names(path, source.dialect.skipped_lines + 1, names, header, wanted)
    return replace(layout, is_clear=any(len(rows) > 1 for rows in sequences))


def _check_names(path: str | Path, line: int, names: Sequence[str], header: Sequence[str], wanted: Wanted) -> None:
    """Check that names in a header show the columns of words and labels that no option names."""
    expected: list[tuple[str, str, Sequence[str]]] = []
    expected += [("words", "word", TOKEN_COLUMNS)] if wanted.text_column is None else []
    expected += [("labels", "tag", TAG_COLUMNS)] if wanted.labelled and wanted.label_column is None else []
    for content, name, usual_names in expected:
        if {*map(str.lower, names)}.isdisjoint(usual_names):
            got = f"{', '.join(map(repr, header[:8]))}; name yours with --text-column and --label-column"
            raise DataError(
                path, line, f"expected a column of {content}, such as {name!r}, in the first line, got {got}"
            )


def _with_roles(path: str | Path, layout: Layout, sequences: Sequence[Rows], wanted: Wanted) -> Layout:
    """Return the layout with the roles of the columns: requested ones, usual names or, failing these, their content."""
    width, labelled = layout.width, wanted.labelled
    names = layout.names if len(layout.names) == width else tuple(str(number + 1) for number in range(width))
    found = assign(path, columns_of(names, sequences), {INDEX: None, SENTENCES: None}, spare=2 if labelled else 1)
    sentence_column = found.get(SENTENCES)
    columns = columns_of(names, _split_by_names(sequences, sentence_column))
    follows = wanted.reading if wanted.reading.width == width and not layout.is_table else NO_READING
    token_role = TOKENS if labelled else FIRST_TOKENS
    requested: dict[Role, str | None] = {token_role: wanted.text_column or follows.get("text_column")}
    if labelled:
        requested[TAGS] = wanted.label_column or follows.get("label_column")
    for role in lacking_roles(names, requested):
        raise missing_column(path, None, role, requested, names)
    known = {role: str(index + 1) for role, index in found.items()}
    found = assign(path, columns, known | requested, bool(layout.names))
    layout = replace(
        layout, token_column=found[token_role], index_column=found.get(INDEX), sentence_column=sentence_column
    )
    if not labelled:
        return layout
    label_column = found.get(TAGS, found[TOKENS])
    free = [column for index, column in enumerate(columns) if index not in found.values()]
    others = [columns.index(column) for column in other_tags(free)] if wanted.label_column is None else []
    scheme = detect_scheme(columns[label_column].groups)
    return replace(layout, label_column=label_column, scheme=scheme, other_label_columns=tuple(others))


def _have_leading_comments(sequences: Sequence[Rows]) -> bool:
    """Whether each sequence begins with a row that begins with # and does not end like the other rows."""
    if len(sequences) < 2 or any(rows[0][0] != "#" for rows in sequences):
        return False
    last_cells = {row[-1] for rows in sequences for row in rows[1:]}
    return not any(rows[0][-1] in last_cells for rows in sequences)


def _are_clear(layout: Layout, rows: Sequence[Sequence[str]], types: set[str]) -> bool:
    """Whether rows have columns, rather than being text with equally many words per line.

    Evidence for columns is a header, an index, labels that mark entities, a column of known labels, or few distinct
    values in the last column. If tabs separate the columns of labelled data, more distinct values are allowed.

    Args:
        types: the types of entities, and the other labels, of the training data
    """
    if layout.index_column is not None or layout.scheme or layout.names:
        return True
    if any(len(row) != layout.width for row in rows):
        return False
    if any({entity_type(row[column]) for row in rows} <= types for column in layout.unread_columns):
        return True
    distinct = len({row[-1] for row in rows})
    return (len(rows) >= 20 and distinct * 5 <= len(rows)) or (
        layout.label_column is not None and layout.separator == "\t" and distinct < max(20, len(rows) / 2)
    )
