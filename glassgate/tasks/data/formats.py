"""Detects the format of a file of labelled sequences from its name and its content."""

from itertools import islice
from pathlib import Path

from glassgate.tasks.data import records
from glassgate.tasks.data.columns import (
    ANY_COLUMNS,
    Layout,
    Wanted,
    conllu_layout,
    detect_layout,
    detect_table,
    has_single_words,
)
from glassgate.tasks.data.detect import SUFFIXES, detect_kind
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.kinds import TEXT, is_text
from glassgate.tasks.data.labelled_lines import detect_line_style
from glassgate.tasks.data.roles import Role, assign
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


def detect_format(
    path: str | Path, format: str = "auto", wanted: Wanted = ANY_COLUMNS, stdin_format: str = "text"
) -> tuple[str, Layout | None]:
    """Return the format of a file of labelled sequences and, if it has a token per row, the layout of its columns.

    Args:
        format: one of `FORMATS`; only "auto" detects the format
        stdin_format: the format of standard input if it cannot be detected from the content

    Raises:
        DataError: see `read_lines`; the header of a table has no column of words or of labels
        OptionError: a column does not exist; or the suffix is unknown and the file has no columns
    """
    labelled = wanted.labelled
    kind = detect_kind(path) if format == "auto" else format
    if labelled and format == "auto" and kind in ("", "text", "columns", "tsv") and detect_line_style(path):
        return "lines", None
    if labelled and kind in ("csv", "tsv", "xlsx") and _has_sequence_rows(path, kind, wanted):
        return kind, None
    found = _detect(path, kind, format, wanted, stdin_format)
    if labelled and found[1] is not None:
        _check_single_words(path, found[1])
    return found


def _check_single_words(path: str | Path, layout: Layout) -> None:
    """Check that the column of tokens does not contain whole texts, as in data of other tasks.

    A token may have several words, such as "New York". Most whole texts have several, and their labels repeat.

    Raises:
        DataError: most cells have several words, and the labels repeat
    """
    source = sniff(path)
    if len(source.columns) != layout.width or layout.label_column is None:
        return
    tokens, labels = source.columns[layout.token_column], source.columns[layout.label_column]
    texts = [value for value in tokens.values if is_text(value)]
    if tokens.kind == TEXT and 2 * len(texts) > len(tokens.values) and labels.may_be_labels and not layout.scheme:
        raise DataError(
            path,
            None,
            f"expected a word per row, got texts of several words in column {tokens.name!r}, such as "
            f"{texts[0][:40]!r}; for a label per text: glassgate train classification; name another column with "
            "--text-column",
        )


def _detect(path: str | Path, kind: str, format: str, wanted: Wanted, stdin_format: str) -> tuple[str, Layout | None]:
    if kind == "conllu":
        return kind, conllu_layout(wanted.label_column, wanted.labelled)
    if kind in ("csv", "xlsx") or (
        kind in records.KEYED_KINDS and _has_token_rows(sniff(path, kind), wanted.text_column)
    ):
        return kind, detect_table(path, wanted)
    if kind in ("columns", "tsv"):
        separator = "\t" if kind == "tsv" else None
        detected = detect_layout(path, wanted, separator)
        detected = detected or Layout("columns", separator, 1, is_clear=False)
        if str(path) == STDIN and not (wanted.labelled or detected.is_clear or has_single_words(path)):
            return "text", None
        return ("conllu" if detected.kind == "conllu" else kind), detected
    suffix = wanted.label_suffix
    has_label_file = str(path) != STDIN and suffix is not None and Path(path).with_suffix(suffix).exists()
    if format == "auto" and kind in ("", "text") and not has_label_file:
        if (table := find_token_table(path, wanted)) is not None:
            return "csv", table
        layout = detect_layout(path, wanted)
        if layout is not None and layout.is_clear:
            return layout.kind, layout
    if kind in FORMATS:
        return kind, None
    if str(path) == STDIN:
        if stdin_format == "text":
            return "text", None
        return detect_format(path, stdin_format, wanted)
    known = ", ".join(suffix for suffix, kind in SUFFIXES.items() if kind in FORMATS)
    raise OptionError(
        f"{path}: it has no columns; cannot detect the format from the suffix {suffix_of(path)!r}; known are {known}; "
        f"name it with --format {'|'.join(FORMATS[1:-2])}"
    )


def sources_of(path: str | Path, format: str, label_suffix: str | None = None) -> list[Path]:
    """Return the files from which a file or folder of sequences is read, the file of the tokens first.

    Args:
        format: one of `FORMATS`
        label_suffix: the suffix of the label file of a text file; None if no labels are read
    """
    label_files: list[Path] = []
    if label_suffix is not None and format == "text":
        label_files = [Path(path).with_suffix(label_suffix)]
    if format == "folder":
        path, *others = (Path(path) / name for name in FOLDER)
        label_files = [file for file in others if label_suffix is not None and file.exists()]
    return [Path(path), *label_files]


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
    is_usual = word in records.TOKEN_COLUMNS or wanted.text_column is not None
    has_words = wanted.labelled and word != "text"
    is_found = layout.is_clear and is_usual and (layout.sentence_column is not None or has_words)
    return layout if is_found else None


def _has_sequence_rows(path: str | Path, kind: str, wanted: Wanted) -> bool:
    """Whether each row of a table contains a sequence: a cell of words or a list, and another with as many labels."""
    source = sniff(path, kind)
    try:
        names, rows = source.header, [row for _, row in islice(source.rows(1), _EXAMINED_ROWS) if row]
    except DataError:
        return False

    def index_of(name: str | None, role: Role) -> int | None:
        usual = role.usual_names if name is None else (name.lower(),)
        return next((k for each in usual for k, other in enumerate(names) if other.lower() == each), None)

    tokens, labels = index_of(wanted.text_column, TOKEN_LISTS), index_of(wanted.label_column, TAG_LISTS)
    if not rows or tokens is None or labels is None or tokens == labels:
        return False
    found = [records.as_sequences(row[tokens], row[labels]) for row in rows]
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
        raise DataError(
            source.path,
            1,
            f"expected a list of words, or the sentence of each word under a key such as 'sentence_id', got "
            f"{', '.join(map(repr, source.header))}; write a list per row, see --text-column",
        )
    return True
