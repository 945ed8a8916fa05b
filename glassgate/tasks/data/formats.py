"""Detects the format of a file of labelled sequences from its name and its content."""

from collections.abc import Collection
from pathlib import Path

from glassgate.tasks.data.columns import Layout, conllu_layout, detect_layout, has_clear_columns, has_single_words
from glassgate.tasks.data.detect import SUFFIXES, detect_kind
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.labelled_lines import detect_line_style
from glassgate.tasks.data.sniff import TEXT, sniff
from glassgate.tasks.data.token_table import detect_token_table, has_sequence_rows, is_token_table
from glassgate.tasks.errors import DataError, OptionError

FORMATS = (
    *("auto", "conllu", "columns", "tsv", "csv", "xlsx", "jsonl", "json", "parquet", "text", "lines", "python"),
    "folder",
)
TOKEN_KINDS = ("word", "character")
LABEL_SUFFIX = ".labels"

FOLDER = ("seq.in", "seq.out", "label")
"""The files of a folder: tokens, labels and intents."""


def detect_format(
    path: str | Path,
    format: str = "auto",
    column: str | None = None,
    text_column: str | None = None,
    label_suffix: str | None = None,
    stdin_format: str = "text",
    labels: Collection[str] = (),
) -> tuple[str, Layout | None]:
    """Return the format of a file of labelled sequences and, if it has a token per row, the layout of its columns.

    Args:
        format: one of `FORMATS`; only "auto" detects the format
        column, text_column: the columns of labels and of tokens; detected if None
        label_suffix: the suffix of the label file of a text file; None if no labels are read
        stdin_format: the format of standard input if it cannot be detected from the content
        labels: the labels of the training data; a column of them in input without labels indicates columns

    Raises:
        DataError: see `read_lines`; the header of a table has no column of words or of labels
        OptionError: a column does not exist; or the suffix is unknown and the file has no columns
    """
    labelled = label_suffix is not None
    kind = detect_kind(path) if format == "auto" else format
    if labelled and format == "auto" and kind in ("", "text", "columns", "tsv") and detect_line_style(path):
        return "lines", None
    if labelled and kind in ("csv", "tsv", "xlsx") and has_sequence_rows(path, kind, column, text_column):
        return kind, None
    found = _detect(path, kind, format, column, text_column, label_suffix, stdin_format, labels)
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
    texts = [value for value in tokens.values if " " in value]
    if tokens.kind == TEXT and 2 * len(texts) > len(tokens.values) and labels.may_be_labels and not layout.scheme:
        raise DataError(
            path,
            None,
            f"expected a word per row, got texts of several words in column {tokens.name!r}, such as "
            f"{texts[0][:40]!r}; for a label per text: glassgate train classification; name another column with "
            "--text-column",
        )


def _detect(
    path: str | Path,
    kind: str,
    format: str,
    column: str | None,
    text_column: str | None,
    label_suffix: str | None,
    stdin_format: str,
    labels: Collection[str],
) -> tuple[str, Layout | None]:
    labelled = label_suffix is not None
    if kind == "conllu":
        return kind, conllu_layout(column, labelled)
    if kind in ("csv", "xlsx"):
        return kind, detect_token_table(path, column, text_column, labelled)
    if kind in ("columns", "tsv"):
        separator = "\t" if kind == "tsv" else None
        detected = detect_layout(path, column, text_column, labelled, separator) or Layout("columns", separator, 1)
        is_clear = labelled or has_single_words(path) or has_clear_columns(detected, path, labels)
        if str(path) == STDIN and not is_clear:
            return "text", None
        return ("conllu" if detected.kind == "conllu" else kind), detected
    has_label_file = str(path) != STDIN and label_suffix is not None and Path(path).with_suffix(label_suffix).exists()
    if format == "auto" and kind in ("", "text") and not has_label_file:
        if is_token_table(path, labelled):
            return "csv", detect_token_table(path, column, text_column, labelled)
        layout = detect_layout(path, column, text_column, labelled)
        if layout is not None and has_clear_columns(layout, path, labels):
            return layout.kind, layout
    if kind in FORMATS:
        return kind, None
    if str(path) == STDIN:
        if stdin_format == "text":
            return "text", None
        return detect_format(path, stdin_format, column, text_column, label_suffix, labels=labels)
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
