"""Detects the format of a file of labelled sequences from its name and its content."""

from pathlib import Path

from glassgate.tasks.data.columns import Layout, detect_layout, has_clear_columns
from glassgate.tasks.data.detect import SUFFIXES, kind_of
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.errors import OptionError

FORMATS = ("auto", "conllu", "columns", "tsv", "csv", "xlsx", "jsonl", "json", "parquet", "text", "python", "folder")
UNITS = ("word", "character")
LABEL_SUFFIX = ".labels"

FOLDER = ("seq.in", "seq.out", "label")


def format_of(path: str | Path, format: str = "auto") -> str:
    """Return the format of a file: the named one or, for "auto", that of its suffix.

    Raises:
        OptionError: the format is "auto" and the suffix is unknown

    Example:
        >>> format_of("train.conllu")
        'conllu'
    """
    if format != "auto":
        return format
    if str(path) == STDIN:
        return kind_of(path) or "text"
    if Path(path).is_dir():
        return "folder"
    kind = kind_of(path)
    if kind not in FORMATS:
        known = ", ".join(suffix for suffix, each in SUFFIXES.items() if each in FORMATS)
        raise OptionError(
            f"{path}: it has no columns; cannot detect the format from the suffix {suffix_of(path)!r}; known are "
            f"{known}; "
            f"name it with --format {'|'.join(FORMATS[1:-2])}"
        )
    return kind


def detect_format(
    path: str | Path,
    format: str = "auto",
    column: str | None = None,
    text_column: str | None = None,
    label_suffix: str | None = None,
) -> tuple[str, Layout | None]:
    """Return the format of a file and, if it has columns, their layout.

    Args:
        format: one of `FORMATS`; only "auto" detects the format
        column, text_column: the columns of labels and of tokens; None to detect them
        label_suffix: the suffix of the label file of a text file; None if no labels are read

    Raises:
        DataError: see `read_lines`
        OptionError: see `format_of`; no such column
    """
    labelled, named, readable = label_suffix is not None, format, False
    if format == "auto":
        named = kind_of(path)
        readable = named != "folder"
    if named in ("columns", "tsv"):
        separator = "\t" if named == "tsv" else None
        columns = detect_layout(path, column, text_column, labelled, separator) or Layout(separator, width=1)
        return ("conllu" if columns.conllu else named), columns
    has_label_file = str(path) != STDIN and label_suffix is not None and Path(path).with_suffix(label_suffix).exists()
    if readable and named in ("", "text") and not has_label_file:
        layout = detect_layout(path, column, text_column, labelled)
        if layout is not None and has_clear_columns(layout, path):
            return ("conllu" if layout.conllu else "columns"), layout
    return named or format_of(path), None


def sources_of(path: str | Path, format: str, label_suffix: str | None = None) -> list[Path]:
    """Return the files that contain the sequences of a file or folder; the file of the tokens is the first.

    Args:
        format: one of `FORMATS`
        label_suffix: the suffix of the label file of a text file; None if no labels are read
    """
    label_files: list[Path] = []
    if label_suffix is not None and format == "text":
        label_files = [Path(path).with_suffix(label_suffix)]
    if format == "folder":
        path, *others = (Path(path) / name for name in FOLDER)
        label_files = [each for each in others if label_suffix is not None and each.exists()]
    return [Path(path), *label_files]
