"""Detects the format of a file of labelled sequences from its name and its content.

The format "lines" has a labelled sequence per line, in one of two styles:

| style | line |
|---|---|
| words, separator, labels | `show boston<tab>O B-city`, as in the ATIS corpus; or `###` or `|||` as separator |
| words with labels | `show/VB boston/NNP`, as in the Brown corpus; or `_` or `|` as mark |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from glassgate.tasks.data.columns import ANY_COLUMNS, Layout, Wanted, conllu_layout, detect_layout, detect_table
from glassgate.tasks.data.detect import SUFFIXES, detect_kind
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.kinds import TEXT, TOKEN_COLUMNS, is_text
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.records import KEYED_KINDS, as_sequences
from glassgate.tasks.data.roles import Role, assign, usual_columns
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.data.token_roles import SENTENCES, TAG_LISTS, TOKEN_LISTS
from glassgate.tasks.errors import DataError, OptionError

FORMATS = (
    *("auto", "conllu", "columns", "tsv", "csv", "xlsx", "jsonl", "json", "parquet", "text", "lines", "python"),
    "folder",
)
TOKEN_KINDS = ("word", "character")

FOLDER = ("seq.in", "seq.out", "label")
"""The files of a folder: tokens, labels and intents."""
_EXAMINED_ROWS = 200
_EXAMINED_LINES = 1000
_SEPARATORS = ("\t", " ### ", " ||| ")
_MARKS = ("/", "_", "|")
_BEGINNINGS = ("B-", "I-")  # of labels of entities
_MIN_TOKENS = 10  # with fewer tokens, marks within words are not taken for those of labels


def detect_format(
    path: str | Path, format: str = "auto", wanted: Wanted = ANY_COLUMNS, stdin_format: str = "text"
) -> tuple[str, Layout | None]:
    """Return the format of a file of labelled sequences and, if it has a token per row, the layout of its columns.

    Args:
        format: one of `FORMATS`; only "auto" detects the format
        stdin_format: the format of standard input if it cannot be detected from the content

    Raises:
        DataError: the header of a table has no column of words or of labels, or the words are whole texts
        OptionError: a column does not exist; or the suffix is unknown and the file has no columns
    """
    kind = detect_kind(path) if format == "auto" else format
    if wanted.labelled:
        if format == "auto" and kind in ("", "text", "columns", "tsv") and detect_line_style(path):
            return "lines", None
        if kind in ("csv", "tsv", "xlsx") and _has_sequence_rows(sniff(path, kind), wanted):
            return kind, None
    found = _detect(path, kind, format, wanted, stdin_format)
    if wanted.labelled and found[1] is not None:
        _check_single_words(sniff(path), found[1])
    return found


def _detect(path: str | Path, kind: str, format: str, wanted: Wanted, stdin_format: str) -> tuple[str, Layout | None]:
    if kind == "conllu":
        return kind, conllu_layout(wanted.label_column, wanted.labelled)
    if kind in ("csv", "xlsx") or (kind in KEYED_KINDS and _has_token_rows(sniff(path, kind), wanted.text_column)):
        return kind, detect_table(path, wanted)
    if kind in ("columns", "tsv"):
        separator = "\t" if kind == "tsv" else None
        detected = detect_layout(path, wanted, separator) or Layout("columns", separator, 1, is_clear=False)
        has_columns = wanted.labelled or detected.is_clear or str(path) != STDIN
        if not has_columns and any(len(line.split()) > 1 for _, line in read_lines(path)):
            return "text", None
        return ("conllu" if detected.kind == "conllu" else kind), detected
    has_label_file = wanted.label_suffix is not None and Path(path).with_suffix(wanted.label_suffix).exists()
    if format == "auto" and kind in ("", "text") and (str(path) == STDIN or not has_label_file):
        if (table := find_token_table(path, wanted)) is not None:
            return "csv", table
        layout = detect_layout(path, wanted)
        if layout is not None and layout.is_clear:
            return layout.kind, layout
    if kind in FORMATS:
        return kind, None
    if str(path) == STDIN:
        return ("text", None) if stdin_format == "text" else detect_format(path, stdin_format, wanted)
    known = ", ".join(suffix for suffix, kind in SUFFIXES.items() if kind in FORMATS)
    raise OptionError(
        f"{path}: it has no columns; cannot detect the format from the suffix {suffix_of(path)!r}; known are {known}; "
        f"name it with --format {'|'.join(FORMATS[1:-2])}"
    )


def _check_single_words(source: Source, layout: Layout) -> None:
    """Check that the column of tokens does not contain whole texts, as in data of other tasks.

    A token may have several words, such as "New York". Most whole texts have several, and their labels repeat.
    """
    if len(source.columns) != layout.width or layout.label_column is None:
        return
    tokens, labels = source.columns[layout.token_column], source.columns[layout.label_column]
    texts = [value for value in tokens.values if is_text(value)]
    if tokens.kind == TEXT and 2 * len(texts) > len(tokens.values) and labels.may_be_labels and not layout.scheme:
        got = f"texts of several words in column {tokens.name!r}, such as {texts[0][:40]!r}"
        remedy = "for a label per text: glassgate train classification; name another column with --text-column"
        raise DataError(source.path, None, f"expected a word per row, got {got}; {remedy}")


def sources_of(path: str | Path, format: str, label_suffix: str | None = None) -> list[Path]:
    """Return the files from which a file or folder of sequences is read, the file of the tokens first.

    Args:
        format: one of `FORMATS`
        label_suffix: the suffix of the label file of a text file; None if no labels are read
    """
    if format == "folder":
        path, *others = (Path(path) / name for name in FOLDER)
        return [path, *(file for file in others if label_suffix is not None and file.exists())]
    has_label_file = format == "text" and label_suffix is not None
    return [Path(path), *([Path(path).with_suffix(label_suffix or "")] if has_label_file else [])]


def find_token_table(path: str | Path, wanted: Wanted = ANY_COLUMNS) -> Layout | None:
    """Return the layout of a table with a token per row and sentences of several rows; None for other files.

    A column of sentence names is required, too, if no labels are read or the column of words is called "text", because
    such a table may contain whole texts.
    """
    try:
        layout = detect_table(path, wanted)
    except (DataError, OptionError):
        return None
    word = layout.names[layout.token_column].lower() if layout.names else ""
    is_usual = word in TOKEN_COLUMNS or wanted.text_column is not None
    has_words = wanted.labelled and word != "text"
    is_found = layout.is_clear and is_usual and (layout.sentence_column is not None or has_words)
    return layout if is_found else None


def _has_sequence_rows(source: Source, wanted: Wanted) -> bool:
    """Whether each row of a table contains a sequence: a cell of words or a list, and another with as many labels."""
    try:
        names, rows = source.header, [row for _, row in islice(source.rows(1), _EXAMINED_ROWS) if row]
    except DataError:
        return False

    def index_of(name: str | None, role: Role) -> int | None:
        usual = usual_columns(names, role.usual_names)
        return next(iter(usual), None) if name is None else names.index(name) if name in names else None

    tokens, labels = index_of(wanted.text_column, TOKEN_LISTS), index_of(wanted.label_column, TAG_LISTS)
    if not rows or tokens is None or labels is None or tokens == labels:
        return False
    found = [as_sequences(row[tokens], row[labels]) for row in rows]
    return all(found) and any(len(pair[0]) > 1 for pair in found if pair)


def _has_token_rows(source: Source, text_column: str | None) -> bool:
    """Whether rows with keys have a token each, and the key of its sentence.

    Raises:
        DataError: the rows have one token each and no sentence
    """
    found = assign(source.path, source.columns, {TOKEN_LISTS: text_column, SENTENCES: None}, spare=len(source.columns))
    words = source.columns[found[TOKEN_LISTS]].values if TOKEN_LISTS in found else ()
    has_lists = any(not column.values for column in source.columns)
    if has_lists or not words or any(" " in word.strip() or word.startswith("[") for word in words):
        return False
    if SENTENCES not in found:
        got = f"{', '.join(map(repr, source.header))}; write a list per row, see --text-column"
        key = "a key such as 'sentence_id'"
        raise DataError(
            source.path, 1, f"expected a list of words, or the sentence of each word under {key}, got {got}"
        )
    return True


@dataclass(frozen=True)
class LineStyle:
    """The style of the lines.

    Attributes:
        separator: the separator of the words and the labels; empty if each word ends with its label
        mark: the mark between a word and its label
    """

    separator: str = ""
    mark: str = ""

    def parse(self, line: str) -> tuple[list[str], list[str]]:
        """Return the words and the labels of a line. A word without a mark has an empty label."""
        if not self.mark:
            words, _, labels = line.partition(self.separator)
            return words.split(), labels.split()
        parts = [token.rpartition(self.mark) for token in line.split()]
        return [word or label for word, _, label in parts], [label if word else "" for word, _, label in parts]


def detect_line_style(path: str | Path) -> LineStyle | None:
    """Return the style of a file with a labelled sequence per line; None for other files.

    Every line has a label for each word, with one more label at most, for the intent. There are half as many distinct
    labels as words, or they mark entities, unlike the words of a translation. The labels after marks repeat within the
    file and are not numbers, unlike the ends of paths, names with underscores, and dates.
    """
    examined = islice(read_lines(path), _EXAMINED_LINES)
    lines = [text for _, line in examined if (text := line.strip("\ufeff \t"))]
    for separator in _SEPARATORS:
        style = LineStyle(separator)
        counts = [tuple(map(len, style.parse(line))) for line in lines]
        if any(words > 1 for words, _ in counts) and all(words and n - words in (0, 1) for words, n in counts):
            words, labels = ({each for line in lines for each in style.parse(line)[side]} for side in (0, 1))
            if 2 * len(labels) <= len(words) or any(label[:2] in _BEGINNINGS for label in labels):
                return style
    for mark in _MARKS:
        style = LineStyle(mark=mark)
        if all(mark in line for line in lines) and _are_labels([style.parse(line)[1] for line in lines]):
            return style
    return None


def _are_labels(rows: Sequence[Sequence[str]]) -> bool:
    labels = [label for row in rows for label in row]
    if not all(labels) or len(labels) < max(_MIN_TOKENS, 2 * len(rows)):
        return False
    return 2 * len({*labels}) <= len(labels) and not any(map(str.isdecimal, labels))
