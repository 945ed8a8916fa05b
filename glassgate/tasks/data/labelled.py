"""Reads texts and series of numbers, each with one label.

Texts are read from tables, JSON, Parquet, fastText's `__label__` files, plain text, and a folder of files per class.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.detect import SEPARATORS, detect_kind
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.labelled_series import KINDS as SERIES
from glassgate.tasks.data.labelled_series import handle_missing, read_labelled_series
from glassgate.tasks.data.lines import encoding_note, nonempty, read_lines
from glassgate.tasks.data.series_folder import find_targets
from glassgate.tasks.data.series_tables import is_series_table
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.data.texts import TOKEN_KINDS
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, option, override

FORMATS = ("auto", "csv", "tsv", "xlsx", "jsonl", "json", "parquet", "fasttext", "text", "folder", *SERIES)
MISSING = ("error", "drop", "interpolate")

_LABEL_PREFIX = "__label__"
_PART_NAMES = {"train", "dev", "valid", "validation", "val", "test"}
_EXAMINED_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(Options):
    """The options of tasks on labelled texts and series."""

    common: ClassVar = (*Options.common, "text_column", "label_column")

    format: str = option("auto", "format of the files; auto detects it", group="data", choices=FORMATS)
    text_column: str = option("text", "text column: a name, or a number from 1", group="data")
    label_column: str = option("label", "label column: a name, or a number from 1", group="data")
    tokens: str = option(
        "word", "kind of tokens that a text is split into", group="data", choices=TOKEN_KINDS, former_name="unit"
    )
    missing: str = option("error", "treatment of missing values", group="data", choices=MISSING)
    least_count: int = option(2, "minimum occurrences in training; rarer tokens are unknown", minimum=1)
    learning_rate: float = override("learning_rate", 0.0, if_unset="0.003; for series 0.001 to 0.003, by batch size")

    def rate_for(self, batch_size: int, is_series: bool = False) -> float:
        return self.learning_rate or (min(3e-3, 2.5e-4 * batch_size) if is_series else 3e-3)


Row = tuple[int, str, str | None]
"""A line number, a text and its label."""


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

    Attributes:
        format: the format that was detected
        separator: the separator of the columns of a text table; empty for other files
        dropped: the number of rows dropped so far
        skipped_links: the number of symbolic links out of a folder, which are not followed
        has_unread_cells: whether rows may contain cells that no example contains
        encoding: the encoding of a text file, if it is not UTF-8, as the end of a note
        description: the format in words, for messages

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
    ):
        self.path, self.missing, self.labelled = path, missing, labelled
        self.text_column, self.label_column = text_column, label_column
        self.dropped = self.skipped_links = 0
        self.format = self._detect_format() if format == "auto" else format
        if self.format == "text" and labelled:
            raise OptionError(f"{path}: plain text has no labels; give CSV, TSV or JSON lines, or see --format")
        self.separator = ""
        self.has_unread_cells = self.format == "fasttext" and not labelled
        self._names: list[str] = []  # the header of a table
        self._column_indices: list[int] = []  # its text column and, if labels are required, its label column
        self.description = self._find_columns() if self.format in records.TABLE_KINDS else f"format {self.format}"
        self.encoding = "" if self.format in (*SERIES, "xlsx", "parquet", "folder") else encoding_note(path)
        self.description += self.encoding

    def __iter__(self) -> Iterator[Labelled]:
        if self.format in SERIES:
            examples = self._read_series()
        elif self.format == "folder":
            examples = self._read_folder()
        else:
            examples = self._read_texts()
        message = "the file holds no example; give one with at least one row of data"
        return nonempty(self._drop_incomplete(examples), DataError(self.path, None, message))

    def _detect_format(self) -> str:
        kind = detect_kind(self.path)
        if kind == "folder":
            return kind if find_targets(self.path, self.label_column) is None else "series-folder"
        if kind in ("text", "") and _is_fasttext(self.path):
            return "fasttext"
        if kind in ("text", "", "csv", "tsv") and self.text_column == "text":
            source = sniff(self.path)
            if is_series_table(source):
                return "series"
            if kind in ("text", "") and self.labelled and source.separator == "\t":
                return "tsv"
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
        header = records.read_table(self.path, "csv")[0].header
        return len(header) > 1 and self.text_column in header

    def _find_columns(self) -> str:
        """Find the text and the label column of a table; return a description of them."""
        columns = {"text": self.text_column, **({"label": self.label_column} if self.labelled else {})}
        dialect, rows = records.read_table(self.path, self.format, list(columns.values()))
        first_row = [cell.strip() for cell in dialect.header]
        if columns == {"text": "text", "label": "label"} and len(first_row) == 2:
            usual_names = {*records.TEXT_COLUMNS, *records.LABEL_COLUMNS}.intersection(map(str.lower, first_row))
            columns = (None if usual_names else self._columns_without_header(first_row, rows)) or columns
        has_header = not columns["text"].isdecimal()
        names = first_row if has_header else [str(number + 1) for number in range(len(first_row))]
        found = []
        for role, name in columns.items():
            name = names[int(name) - 1] if name.isdecimal() and 0 < int(name) <= len(names) else name
            row = dict.fromkeys(names if name in names else first_row)
            found.append(
                records.find_key(self.path, dialect.skipped_lines + 1, row, *_find_key_arguments(role, name), "column")
            )
        self.separator, self._names = dialect.separator, names if has_header else []
        self._column_indices = [names.index(name) for name in found]
        self.has_unread_cells = len(names) > len(found)
        labels = f", labels in {found[1]!r}" if self.labelled else ""
        layout = f", separated by {SEPARATORS[self.separator]}" if self.separator else ", the first sheet"
        return f"texts in column {found[0]!r}{labels}{layout}{'' if has_header else ', no header'}"

    def _columns_without_header(self, first_row: Sequence[str], rows: records.Cells) -> dict[str, str] | None:
        """Choose the text and the label column of a table with two columns, as numbers from 1.

        The label column has repeated values. The value in its first row occurs in later rows, too.

        Returns:
            the numbers; None if the first row may be a header
        """
        cells = [row for _, row in islice(rows, _EXAMINED_ROWS) if row]
        counts = [Counter(row[column].strip() for row in cells) for column in (0, 1)]
        if all(count[cell] < 2 for count, cell in zip(counts, first_row, strict=True)):
            return None
        repeated = [
            count[cell] > 1 and 2 * len(count) <= len(cells) for count, cell in zip(counts, first_row, strict=True)
        ]
        if repeated[0] == repeated[1]:
            raise DataError(
                self.path,
                1,
                f"expected a header with 'text' and 'label', got {', '.join(map(repr, first_row))}; columns 1 and 2 "
                "can each hold the labels: choose --text-column 2 --label-column 1 if they are in the first, "
                "--text-column 1 --label-column 2 if they are in the second",
            )
        return {"text": "2", "label": "1"} if repeated[0] else {"text": "1", "label": "2"}

    def _read_texts(self) -> Iterator[Labelled]:
        rows: Iterator[Row]
        if self.format == "text":
            rows = ((number, line, None) for number, line in read_lines(self.path) if line.strip())
        elif self.format == "fasttext":
            rows = self._read_fasttext()
        elif self.format in records.TABLE_KINDS:
            rows = self._read_table()
        else:
            label_column = self.label_column if self.labelled else None
            content = rows_of_pairs(self.path, records.read_rows(self.path, self.format))
            rows = extract_texts(self.path, content, self.text_column, label_column)
        return (Labelled(text, label, str(self.path), number) for number, text, label in rows)

    def _drop_incomplete(self, examples: Iterator[Labelled]) -> Iterator[Labelled]:
        """Yield the complete examples, and count the others in `dropped`."""
        for example in examples:
            if _is_complete(example, self.missing):
                yield example
            else:
                self.dropped += 1

    def _read_table(self) -> Iterator[Row]:
        _, rows = records.read_table(self.path, self.format, self._names)
        nonblank_rows = ((number, row) for number, row in rows if row)
        for number, row in islice(nonblank_rows, bool(self._names), None):
            text, *label = (row[index] for index in self._column_indices)
            yield number, text, label[0] if label else None

    def _read_fasttext(self) -> Iterator[Row]:
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
            yield number, text, labels[0] if self.labelled else None

    def _read_folder(self) -> Iterator[Labelled]:
        """The files of each class folder, in alphabetical order."""
        root = Path(self.path)
        folders = sorted(path for path in self._members(root.iterdir()) if path.is_dir())
        if self.labelled and not folders:
            raise DataError(root, None, "expected a file, or a folder with a folder of text files for each class")
        if self.labelled and {folder.name.lower() for folder in folders} <= _PART_NAMES:
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

    def _read_series(self) -> Iterator[Labelled]:
        for source, line, series, label in read_labelled_series(
            self.path, self.format, self.label_column, self.labelled
        ):
            yield Labelled(handle_missing(source, line, series, self.missing), label, source, line)


def _is_complete(example: Labelled, missing: str) -> bool:
    """Whether neither the text nor the label is empty. If one is, raise an error unless `missing` is "drop"."""
    text_is_empty = isinstance(example.content, str) and not example.content.strip()
    if not text_is_empty and (example.label is None or example.label.strip()):
        return True
    if missing == "drop":
        return False
    empty_part, container = "text" if text_is_empty else "label", "file" if example.line is None else "row"
    raise DataError(
        example.source,
        example.line,
        f"the {empty_part} is empty; remove the {container}, give it a {empty_part}, or choose --missing drop",
    )


def _is_fasttext(path: str | Path) -> bool:
    lines = [line for _, line in islice(read_lines(path), _EXAMINED_ROWS) if line.strip()]
    return bool(lines) and all(any(word.startswith(_LABEL_PREFIX) for word in line.split()) for line in lines)


def from_rows(rows: Iterator[tuple[int, Any, records.LabelNames]], options: "LabelledOptions") -> list[Labelled]:
    """Convert the rows of a table that is not a file, such as a pandas frame, to examples."""
    texts_and_labels = extract_texts("given rows", rows, options.text_column, options.label_column)
    examples = (Labelled(text, label, "given rows", number) for number, text, label in texts_and_labels)
    return [example for example in examples if _is_complete(example, options.missing)]


def _find_key_arguments(role: str, name: str) -> tuple[str | None, Sequence[str], str]:
    """The arguments of `find_key` for the text or the label column: its name, its usual names, and its option.

    Args:
        role: "text" or "label", which are also the default names
        name: the name of the column
    """
    return (
        None if name == role else name,
        {"text": records.TEXT_COLUMNS, "label": records.LABEL_COLUMNS}[role],
        f"--{role}-column",
    )


def rows_of_pairs(
    path: str | Path, rows: Iterator[tuple[int, Any, records.LabelNames]]
) -> Iterator[tuple[int, Any, records.LabelNames]]:
    """Convert rows that are lists of a text and a label to objects; yield other rows unchanged.

    Raises:
        DataError: either element can be the label, or neither can
    """
    first = next(rows, None)
    if first is None:
        return
    rows = chain([first], rows)
    if not isinstance(first[1], list) or len(first[1]) != 2:
        yield from rows
        return
    read = list(rows)
    if any(len(row) != 2 or not all(isinstance(each, str | int) for each in row) for _, row, _ in read):
        raise DataError(path, first[0], f"expected objects, or lists of a text and its label, got {first[1]!r}")
    counts = [len({row[index] for _, row, _ in read}) for index in (0, 1)]
    if counts[0] == counts[1] or 2 * min(counts) > len(read):
        raise DataError(
            path,
            first[0],
            f"expected lists of a text and its label, in which labels repeat, got {counts[0]} and {counts[1]} distinct "
            f"values in {len(read)} rows; write objects with the keys 'text' and 'label'",
        )
    label = int(counts[1] < counts[0])
    for number, row, names in read:
        yield number, {"text": row[1 - label], "label": row[label]}, names


def extract_texts(
    path: str | Path,
    rows: Iterator[tuple[int, Any, records.LabelNames]],
    text_key: str,
    label_key: str | None,
) -> Iterator[Row]:
    """Yield the number, the text and the label of each row. A missing text or label is an empty string.

    Args:
        path: the origin of the rows, for messages
        rows: the rows, as `records.read_rows` yields them
        text_key: the key of the texts; the default "text" also matches other usual keys
        label_key: the key of the labels; the default "label" also matches other usual keys; None reads no labels
    """
    text_arguments, label_arguments = (
        _find_key_arguments("text", text_key),
        _find_key_arguments("label", label_key or ""),
    )
    for number, row, label_names in rows:
        text = row[records.find_key(path, number, row, *text_arguments)]
        text = "" if records.is_missing(text) else text
        if not isinstance(text, str):
            raise DataError(path, number, f"expected a string under {text_key!r}, got {type(text).__name__}; quote it")
        label = None
        if label_key is not None:
            key = records.find_key(path, number, row, *label_arguments)
            label = records.label_name(row[key], label_names.get(key))
        yield number, text, label
