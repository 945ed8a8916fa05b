"""The layout of a file with a token per row, and its detection."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import describe_scheme, detect_scheme, entity_type
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.dialect import SEPARATORS
from glassgate.tasks.data.kinds import cell_text
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.roles import Role, assign
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
        return self.kind in ("csv", "xlsx", *records.KEYED_KINDS)

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
"""Columns without options."""


def conllu_layout(column: str | None = None, labelled: bool = True) -> Layout:
    """Return the layout of CoNLL-U.

    Args:
        column: the column of the labels; "upos" if None
        labelled: whether the layout has a column of labels

    Raises:
        OptionError: the column does not exist
    """
    column = column or "upos"
    if column not in CONLLU_COLUMNS:
        raise OptionError(f"--label-column: expected one of {', '.join(CONLLU_COLUMNS)} for CoNLL-U, got {column!r}")
    label = CONLLU_COLUMNS.index(column) if labelled else None
    return Layout("conllu", "\t", len(CONLLU_COLUMNS), CONLLU_COLUMNS.index("form"), label)


def is_comment(line: str, cell_count: int, width: int) -> bool:
    """Whether a line is a comment: it begins with # and either is CoNLL-U metadata or does not have `width` cells.

    Example:
        >>> is_comment("# sent_id = 3", 1, 3), is_comment("# O", 2, 2), is_comment("# made by me", 4, 2)
        (True, False, True)
    """
    return line.startswith("#") and (bool(_COMMENT_FIELD.match(line)) or cell_count != width)


def detect_layout(path: str | Path, wanted: Wanted = ANY_COLUMNS, separator: str | None = None) -> Layout | None:
    """Detect the layout of a file with a token per row, other than a table.

    Args:
        separator: the separator of the columns; detected if None

    Returns:
        the layout; None if the lines have no columns

    Raises:
        DataError: see `read_lines`; the tokens can be in two columns
        OptionError: the column does not exist
    """
    lines = [line for _, line in islice(read_lines(path), _EXAMINED_ROWS)]
    separator = separator or _detect_separator(lines)
    sequences = list(_split_sequences(lines, separator))
    width = next((width for width, _ in Counter(map(len, chain.from_iterable(sequences))).most_common(1)), 0)
    if width < (2 if wanted.labelled else 1):
        return None
    sequences = [*filter(None, ([r for r in rows if len(r) == width or r[0][:1] != "#"] for rows in sequences))]
    if separator == "\t" and width == len(CONLLU_COLUMNS) and all(_TOKEN_ID.fullmatch(row[0]) for row in sequences[0]):
        return conllu_layout(wanted.label_column, wanted.labelled)
    sequences = [rows for rows in sequences if all(len(row) == width for row in rows)] or sequences
    has_comments = _have_leading_comments(sequences)
    if has_comments:
        sequences = [*filter(None, (rows[1:] for rows in sequences))]
    names = find_header(sequences) if sequences else ()
    if names:
        sequences = [*filter(None, [sequences[0][1:], *sequences[1:]])]
    sequences = [rows for rows in sequences if all(len(row) == width for row in rows)]
    layout = Layout("columns", separator, width, names=names, has_leading_comments=has_comments)
    if not sequences:
        return replace(layout, label_column=width - 1 if wanted.labelled else None, is_clear=bool(names))
    layout = _assign(path, layout, sequences, wanted)
    rows = [split_cells(line, separator) for line in lines if line.strip()]
    return replace(layout, is_clear=_are_clear(layout, rows, {entity_type(label) for label in wanted.labels}))


def detect_table(path: str | Path, wanted: Wanted = ANY_COLUMNS) -> Layout:
    """Detect the layout of a table, CSV or Excel, with a token per row; see `detect_layout`.

    Raises:
        DataError: see `read_lines`; the columns have no usual names, and their content does not show their roles
        OptionError: a given column does not exist
    """
    kind = detect_kind(path)
    source = sniff(path, kind if kind in ("xlsx", *records.KEYED_KINDS) else "csv")
    rows = ((number, [*map(cell_text, row)] or None) for number, row in islice(source.rows(), _EXAMINED_ROWS))
    sequences = _sequences(rows)
    header = tuple(source.header)
    is_usual = not USUAL_NAMES.isdisjoint(map(str.lower, header)) or not {
        wanted.label_column,
        wanted.text_column,
    }.isdisjoint(header)
    names = header if is_usual or not sequences else find_header(sequences)
    if names and sequences and not source.is_keyed:
        sequences = [*filter(None, [sequences[0][1:], *sequences[1:]])]
    layout = Layout(source.kind, source.dialect.separator, len(header), names=names)
    lower_names = [name.lower() for name in names]
    expected: list[tuple[str, str, str | None, Sequence[str]]] = [
        ("words", "word", wanted.text_column, records.TOKEN_COLUMNS)
    ]
    expected += [("labels", "tag", wanted.label_column, records.TAG_COLUMNS)] if wanted.labelled else []
    unnamed = [each for each in expected if each[2] is None and {*lower_names}.isdisjoint(each[3])]
    if sequences:
        layout = _assign(path, layout, sequences, wanted)
        sequences = _sequences(((0, row) for each in sequences for row in [*each, None]), layout.sentence_column)
    is_clear = wanted.labelled and bool(layout.scheme) and sum(map(len, sequences)) >= MIN_ROWS and len(sequences) > 1
    if unnamed and not is_clear:
        content, name, *_ = unnamed[0]
        raise DataError(
            path,
            source.dialect.skipped_lines + 1,
            f"expected a column of {content}, such as {name!r}, in the first line, got "
            f"{', '.join(map(repr, header[:8]))}; name yours with --text-column and --label-column",
        )
    return replace(layout, is_clear=any(len(rows) > 1 for rows in sequences))


def _assign(path: str | Path, layout: Layout, sequences: list[list[list[str]]], wanted: Wanted) -> Layout:
    """Return the layout with the roles of the columns: requested ones, usual names or, failing these, their content."""
    width, labelled = layout.width, wanted.labelled
    names = layout.names if len(layout.names) == width else tuple(str(number + 1) for number in range(width))
    tokens = column_number("--text-column", path, wanted.text_column, width, layout.names)
    tags = column_number("--label-column", path, wanted.label_column, width, layout.names) if labelled else None
    columns = columns_of(names, sequences)
    found = assign(path, columns, {INDEX: None, SENTENCES: None}, spare=2 if labelled else 1)
    sentence_column = found.get(SENTENCES)
    columns = columns_of(names, _sequences(((0, row) for rows in sequences for row in [*rows, None]), sentence_column))
    follows = wanted.reading if wanted.reading.width == width and not layout.is_table else NO_READING
    requested: dict[Role, str | None] = {role: str(index + 1) for role, index in found.items()}
    token_role = TOKENS if labelled else FIRST_TOKENS
    requested[token_role] = follows.get("text_column") if tokens is None else str(tokens + 1)
    if labelled:
        requested[TAGS] = follows.get("label_column") if tags is None else str(tags + 1)
    found = assign(path, columns, requested, bool(layout.names))
    layout = replace(
        layout, token_column=found[token_role], index_column=found.get(INDEX), sentence_column=sentence_column
    )
    if not labelled:
        return layout
    label_column = found.get(TAGS, found[TOKENS])
    free = [column for index, column in enumerate(columns) if index not in found.values()]
    others = [columns.index(column) for column in other_tags(free)] if tags is None else []
    scheme = detect_scheme(map(list, columns[label_column].groups))
    return replace(layout, label_column=label_column, scheme=scheme, other_label_columns=tuple(others))


def with_breaks(rows: Iterable[tuple[int, Any]], sentence_column: int | None) -> Iterator[tuple[int, Any]]:
    """Yield numbered rows, and None before each row with the name of another sentence.

    A row without a name belongs to the sentence of the row before.
    """
    current = ""
    for number, row in rows:
        if sentence_column is not None and isinstance(row, list):
            name = row[sentence_column].strip()
            if name and name != current:
                current = name
                yield number, None
        yield number, row


def _sequences(rows: Iterable[tuple[int, Any]], sentence_column: int | None = None) -> list[list[list[str]]]:
    """The rows of each sequence; None separates sequences."""
    groups = groupby((row for _, row in with_breaks(rows, sentence_column)), key=bool)
    return [list(group) for filled, group in groups if filled]


def _have_leading_comments(sequences: Sequence[list[list[str]]]) -> bool:
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


def has_single_words(path: str | Path) -> bool:
    """Whether no line of a file has more than one word."""
    return all(len(line.split()) < 2 for _, line in read_lines(path))


def split_cells(line: str, separator: str | None) -> list[str]:
    """Split a line at a separator or, if it is None, at blanks and tabs; no-break spaces belong to words.

    Example:
        >>> split_cells(" 10\u00a0000  O ", None)
        ['10\xa0000', 'O']
    """
    return line.split(separator) if separator else [cell for cell in _BLANKS.split(line) if cell]


def column_number(option: str, path: str | Path, value: str | None, width: int, names: Sequence[str]) -> int | None:
    """Return the index, from 0, of the column that the value of an option names.

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
        raise OptionError(f"{option}: expected 1 to {width}, the columns of {path}, got {value}")
    return int(value) - 1


def _detect_separator(lines: Sequence[str]) -> str | None:
    """A tab if most lines, except comments, contain one; otherwise None, for white space."""
    rows = [line for line in lines if line.strip() and not _COMMENT_FIELD.match(line)]
    return "\t" if 2 * sum("\t" in line for line in rows) > len(rows) else None


def _split_sequences(lines: Sequence[str], separator: str | None) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    for line in (*lines, ""):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if rows:
                yield rows
            rows = []
        elif not _COMMENT_FIELD.match(line):
            rows.append(split_cells(line, separator))
