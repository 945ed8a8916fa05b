"""Reads texts and series of numbers, each with one label.

Texts are read from tables, JSON, Parquet, fastText's `__label__` files, plain text, and a folder of files per class.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassgate.tasks.data import records, roles
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.dialect import SEPARATORS
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.labelled_series import READERS as SERIES
from glassgate.tasks.data.labelled_series import find_targets, handle_missing, is_series_table
from glassgate.tasks.data.lines import nonempty, read_lines
from glassgate.tasks.data.records import PART_NAMES
from glassgate.tasks.data.sniff import sniff, source_of
from glassgate.tasks.data.texts import TOKEN_KINDS
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, option, override

FORMATS = ("auto", "csv", "tsv", "xlsx", "jsonl", "json", "parquet", "fasttext", "text", "folder", *SERIES)
MISSING = ("error", "drop", "interpolate")

MANY_TEXTS = 10_000
"""With more training texts than this, a token must occur twice to be in the vocabulary."""

_LABEL_PREFIX = "__label__"
_LIST_OF_LABELS = re.compile(r"\[('.*'|\".*\")\]")
_EXAMINED_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(Options):
    """The options of tasks on labelled texts and series."""

    common: ClassVar = (*Options.common, "text_column", "label_column")
    file_options: ClassVar = (*Options.file_options, "format", "text_column", "label_column", "missing")

    format: str = option("auto", "format of the files; auto detects it", group="data", choices=FORMATS)
    text_column: str = option("text", "text column: a name, or a number from 1", group="data")
    label_column: str = option("label", "label column: a name, or a number from 1", group="data")
    tokens: str = option("word", "kind of tokens that a text is split into", group="data", choices=TOKEN_KINDS)
    missing: str = option("error", "treatment of missing values", group="data", choices=MISSING)
    least_count: int = option(
        0,
        "minimum occurrences in training; rarer tokens are unknown",
        minimum=0,
        if_unset=f"1; 2 for more than {MANY_TEXTS:,} texts",
    )
    word_dropout: float = option(0.1, "fraction of the tokens that training treats as unknown", minimum=0, maximum=1)
    linear: bool = option(
        True, "add a linear map of the tf-idf of texts, or a ridge regression of series, to the output"
    )
    learning_rate: float = override("learning_rate", 0.0, if_unset="0.003; for series 0.001 to 0.003, by batch size")

    def rate_for(self, batch_size: int, is_series: bool = False) -> float:
        return self.learning_rate or (min(3e-3, 2.5e-4 * batch_size) if is_series else 3e-3)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text or a series, and its label.

    Attributes:
        content: a text, its tokens, or a series of C channels, `(L, C)`, float32
        label: the label; None if unknown
        source: the file that contains it; in a .npz file also the number of the series
        line: the number of its last line
        raw: the characters of a text that `content` contains as tokens; empty if they are not stored
    """

    content: str | Sequence[str] | np.ndarray
    label: str | None = None
    source: str = "given examples"
    line: int | None = None
    raw: Sequence[str] = ""

    def fault(self, message: str) -> DataError:
        """Return an error about the example."""
        return DataError(self.source, self.line, message)


class Reader:
    """Iterates over the labelled texts or series of a file or a folder.

    Args:
        path: the file or folder
        format: one of `FORMATS`
        text_column, label_column: names in the header of a table, numbers from 1 if it has no header, or keys of JSON
            objects
        missing: the treatment of missing values (NaN) of a series: "error", "drop" or "interpolate"; "drop" also drops
            rows without a text or a label
        labelled: whether labels are required
        is_numeric: whether the labels are numbers

    Attributes:
        format: the format that was detected
        columns: the columns of a table or the keys of rows; None for other files
        description: the format in words, for messages
        encoding: the encoding of a text file, if it is not UTF-8, as the end of a note
        dropped: the number of rows dropped so far
        skipped_links: the number of symbolic links out of a folder, which are not followed

    Raises:
        DataError: the file cannot be read, or its columns are not recognised
        OptionError: the format cannot be detected, or the file is plain text and labels are required
    """

    def __init__(
        self,
        path: str | Path,
        format: str = "auto",
        text_column: str = "text",
        label_column: str = "label",
        missing: str = "error",
        labelled: bool = True,
        is_numeric: bool = False,
    ):
        self.path, self.missing, self.labelled = path, missing, labelled
        self.text_column, self.label_column = text_column, label_column
        self.dropped = self.skipped_links = 0
        self.columns: roles.Assignment | None = None
        self.format = self._detect_format() if format == "auto" else format
        if self.format == "text" and labelled:
            raise OptionError(f"{path}: plain text has no labels; give CSV, TSV or JSON lines, or see --format")
        self.description = f"format {self.format}"
        if self.format in (*records.TABLE_KINDS, *records.KEYED_KINDS):
            self._find_columns(roles.NUMBER_ROLE if is_numeric else roles.LABEL_ROLE)
        self.encoding = sniff(path).encoding
        self.description += self.encoding

    def __iter__(self) -> Iterator[Labelled]:
        if self.format in SERIES:
            examples: Iterable[Labelled] = (
                Labelled(handle_missing(source, line, series, self.missing), label, source, line)
                for source, line, series, label in SERIES[self.format](self.path, self.label_column, self.labelled)
            )
        elif self.format == "folder":
            examples = self._read_folder()
        elif self.format == "fasttext":
            examples = self._read_fasttext()
        elif self.columns is not None:
            examples = _read_texts(self.columns)
        else:
            lines = ((number, line) for number, line in read_lines(self.path) if line.strip())
            examples = (Labelled(line, None, str(self.path), number) for number, line in lines)
        message = "the file holds no example; give one with at least one row of data"
        return nonempty(self._drop_incomplete(examples), DataError(self.path, None, message))

    @property
    def found(self) -> dict[str, str]:
        """The columns that were found by their content, under "text_column" and "label_column"."""
        return self.columns.by_content if self.columns else {}

    @property
    def separator(self) -> str:
        """The separator of the columns of a text table; empty for other files."""
        return self.columns.source.dialect.separator if self.columns else ""

    @property
    def has_unread_cells(self) -> bool:
        """Whether rows may contain cells that no example contains."""
        if self.format in records.TABLE_KINDS and self.columns:
            return len(self.columns.names) > len(self.columns.indices)
        return self.format == "fasttext" and not self.labelled

    def _detect_format(self) -> str:
        kind = detect_kind(self.path)
        if kind == "folder":
            return kind if find_targets(self.path, self.label_column) is None else "series-folder"
        if kind in ("text", "") and _is_fasttext(self.path):
            return "fasttext"
        if kind in ("text", "", "csv", "tsv", *records.KEYED_KINDS):
            source = sniff(self.path)
            if self.text_column == "text" and is_series_table(source):
                return "series"
            has_columns = source.separator.strip(" ") or (source.separator and source.dialect.has_quotes)
            if kind in ("text", "") and self.labelled and has_columns:
                return "tsv" if source.separator == "\t" else "csv"
        if kind in FORMATS:
            return kind
        if str(self.path) == STDIN:
            return "csv" if self.labelled or self._has_header() else "text"
        raise OptionError(
            f"{self.path}: cannot detect the format by the suffix {suffix_of(self.path)!r}; known are .csv, .tsv, "
            f".xlsx, .jsonl, .json, .parquet, .txt, .ts, .arff and .npz; name it with --format {'|'.join(FORMATS[1:])}"
        )

    def _has_header(self) -> bool:
        """Whether the first line of standard input is a header with the text column and other columns."""
        header = sniff(self.path, "csv").header
        return len(header) > 1 and self.text_column in header

    def _find_columns(self, label_role: roles.Role) -> None:
        """Find the columns or the keys of the texts and the labels."""
        requested = _requested_columns(self.text_column, self.label_column, label_role if self.labelled else None)
        self.columns = found = roles.assign_source(sniff(self.path, self.format, roles.hints(requested)), requested)
        text, *label = (found.names[found.indices[role]] for role in requested)
        self.text_column, self.label_column = text, "".join(label)
        if self.format in records.TABLE_KINDS:
            labels = f", labels in {label[0]!r}" if label else ""
            layout = f", separated by {SEPARATORS[self.separator]}" if self.separator else ", the first sheet"
            self.description = f"texts in column {text!r}{labels}{layout}{'' if found.has_header else ', no header'}"

    def _drop_incomplete(self, examples: Iterable[Labelled]) -> Iterator[Labelled]:
        """Yield the complete examples, and count the others in `dropped`."""
        for example in examples:
            if _is_complete(example, self.missing):
                yield example
            else:
                self.dropped += 1

    def _read_fasttext(self) -> Iterator[Labelled]:
        for number, line in read_lines(self.path):
            if not line.strip():
                continue
            words = line.split()
            labels = [word.removeprefix(_LABEL_PREFIX) for word in words if word.startswith(_LABEL_PREFIX)]
            if self.labelled and len(labels) != 1:
                raise DataError(
                    self.path,
                    number,
                    f"expected one {_LABEL_PREFIX}NAME and a text, got {len(labels)} labels; correct the line",
                )
            text = " ".join(word for word in words if not word.startswith(_LABEL_PREFIX))
            yield Labelled(text, labels[0] if self.labelled else None, str(self.path), number)

    def _read_folder(self) -> Iterator[Labelled]:
        """The files of each class folder, in alphabetical order."""
        root = Path(self.path)
        folders = sorted(path for path in self._members(root.iterdir()) if path.is_dir())
        if self.labelled and not folders:
            raise DataError(root, None, "expected a file, or a folder with a folder of text files for each class")
        if self.labelled and {folder.name.lower() for folder in folders} <= PART_NAMES:
            first = folders[0].name
            raise DataError(
                root,
                None,
                f"expected a folder for each class, got parts of the data; give one part, such as {root / first}",
            )
        is_empty = True
        for folder in folders or [root]:
            for file in sorted(path for path in self._members(folder.rglob("*")) if path.is_file()):
                is_empty = False
                text = "".join(f"{line}\n" for _, line in read_lines(file)) if file.stat().st_size else ""
                yield Labelled(text, folder.name if self.labelled else None, str(file))
        if is_empty and self.skipped_links:
            raise DataError(root, None, "expected files, got only symbolic links out of the folder; copy the files")

    def _members(self, paths: Iterable[Path]) -> Iterator[Path]:
        """The members of a folder without hidden ones and without symbolic links that leave the folder."""
        root = Path(self.path).resolve()
        for path in paths:
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                self.skipped_links += 1
            elif not path.name.startswith("."):
                yield path


def _is_complete(example: Labelled, missing: str) -> bool:
    """Whether neither the text nor the label is empty. If one is, raise an error unless `missing` is "drop"."""
    text_is_empty = isinstance(example.content, str) and not example.content.strip()
    if not text_is_empty and (example.label is None or example.label.strip()):
        return True
    if missing == "drop":
        return False
    empty_part, container = "text" if text_is_empty else "label", "file" if example.line is None else "row"
    raise example.fault(
        f"the {empty_part} is empty; remove the {container}, give it a {empty_part}, or choose --missing drop"
    )


def _is_fasttext(path: str | Path) -> bool:
    lines = [line for _, line in islice(read_lines(path), _EXAMINED_ROWS) if line.strip()]
    return bool(lines) and all(any(word.startswith(_LABEL_PREFIX) for word in line.split()) for line in lines)


def _requested_columns(text_column: str, label_column: str, label: roles.Role | None) -> dict[roles.Role, str | None]:
    """The roles of texts and of labels, if these are read, with the values of the options; None for a default."""
    requested = {roles.TEXT_ROLE: None if text_column == "text" else text_column}
    return requested | ({label: None if label_column == "label" else label_column} if label else {})


def _read_texts(columns: roles.Assignment) -> Iterator[Labelled]:
    """Yield the texts of a table or of rows with keys, and their labels if a column has their role.

    A missing text or label is an empty string.
    """
    source, indices = columns.source, columns.indices
    text_index = indices[roles.TEXT_ROLE]
    label_index = next((index for role, index in indices.items() if role is not roles.TEXT_ROLE), None)
    for number, cells in source.rows(int(columns.has_header)):
        if not cells:
            continue
        text = "" if records.is_missing(cells[text_index]) else cells[text_index]
        if not isinstance(text, str):
            got = f"expected a string under {columns.names[text_index]!r}, got {type(text).__name__}"
            raise DataError(source.path, number, f"{got}; quote it")
        label = None if label_index is None else _one_label(columns, number, cells[label_index], label_index)
        yield Labelled(text, label, str(source.path), number)


def _one_label(columns: roles.Assignment, number: int, cell: Any, index: int) -> str:
    """A label as text. It may be a list of one label, such as `['good']` in a table, or of numbers, for regression."""
    name = columns.names[index]
    is_list = isinstance(cell, str) and _LIST_OF_LABELS.fullmatch(cell.strip())
    labels = records.as_list(cell) if is_list or isinstance(cell, list) else [cell]
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in labels)
    if not are_numbers and (len(labels) != 1 or isinstance(labels[0], list | dict)):
        remedy = "leave one, or join them to one"
        if any(isinstance(each, list | dict) for each in labels):
            remedy = "for tagging, write a list of tokens and a list of their labels in each row"
        raise DataError(columns.source.path, number, f"expected one label under {name!r}, got {cell}; {remedy}")
    return records.label_name(labels if is_list else cell, columns.source.label_names.get(name)).strip()


def from_rows(rows: Iterable[tuple[int, Any, records.LabelNames]], options: "LabelledOptions") -> list[Labelled]:
    """Convert the rows of a table that is not a file, such as a pandas frame, to examples."""
    requested = _requested_columns(options.text_column, options.label_column, roles.LABEL_ROLE)
    source = source_of(rows)
    examples = _read_texts(roles.assign_source(source, requested)) if source.content else ()
    return [example for example in examples if _is_complete(example, options.missing)]
