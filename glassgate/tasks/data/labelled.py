"""Reads texts with one label each: tables, JSON, Parquet, fastText's `__label__`, text, and a folder per class."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassgate.tasks.data import records
from glassgate.tasks.data.detect import SEPARATORS, kind_of
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.labelled_series import KINDS as SERIES
from glassgate.tasks.data.labelled_series import read_arrays, without_missing
from glassgate.tasks.data.lines import encoding_note, nonempty, read_lines
from glassgate.tasks.data.texts import TOKEN_KINDS
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, option

FORMATS = ("auto", "csv", "tsv", "xlsx", "jsonl", "json", "parquet", "fasttext", "text", "folder", *SERIES)
MISSING = ("error", "drop", "interpolate")

_LABEL = "__label__"
_PARTS = {"train", "dev", "valid", "validation", "val", "test"}
_ROWS = 1000  # rows that are examined


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(Options):
    """The options of tasks on labelled texts and series."""

    common: ClassVar = (*Options.common, "text_column", "label_column")

    format: str = option("auto", "format of the files; auto detects it", group="data", choices=FORMATS)
    text_column: str = option("text", "text column: a name, or a number from 1", group="data")
    label_column: str = option("label", "label column: a name, or a number from 1", group="data")
    tokens: str = option(
        "word", "kind of tokens that a text is split into", group="data", choices=TOKEN_KINDS, former="unit"
    )
    missing: str = option("error", "treatment of missing values", group="data", choices=MISSING)
    least_count: int = option(2, "minimum occurrences in training; rarer tokens are unknown", least=1)


Row = tuple[int, str, str | None]
"""The number of a line, a text and its label."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text or a series, and its label.

    Attributes:
        content: a text, its tokens, or a series of C channels, `(L, C)`, float32
        label: the label; None if unknown
        source: the file that contains it, for arrays with the number of the series
        line: the line where it ends
    """

    content: str | Sequence[str] | np.ndarray
    label: str | None = None
    source: str = "given examples"
    line: int | None = None


class Reader:
    """Reads one file, or a folder, of labelled texts or series.

    Args:
        path: the file
        format: one of `FORMATS`
        text_column, label_column: names in the header of a table, numbers from 1 if it has no header, or keys in JSON
        missing: the treatment of missing values (NaN) of a series: "error", "drop" or "interpolate"; "drop" also drops
            rows without a text or a label
        labelled: whether labels are required

    Attributes:
        format: the format that was detected
        separator: the separator of the columns of a text file; empty for other files
        dropped: rows that were dropped so far
        description: a description of the format

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
        self.text, self.label = text_column, label_column
        self.dropped = 0
        self.format = self._format() if format == "auto" else format
        if self.format == "text" and labelled:
            raise OptionError(f"{path}: plain text has no labels; give CSV, TSV or JSON lines, or see --format")
        self.separator = ""
        self._names: list[str] = []  # the header of a table
        self._places: list[int] = []  # its columns of texts and labels
        self.description = self._table() if self.format in records.SEPARATED else f"format {self.format}"
        if self.format not in (*SERIES, "xlsx", "parquet", "folder"):
            self.description += encoding_note(path)

    def __iter__(self) -> Iterator[Labelled]:
        folder = self.format == "folder"
        examples = self._series() if self.format in SERIES else self._folder() if folder else self._texts()
        message = "the file holds no example; give one with at least one row of data"
        return nonempty(self._complete(examples), DataError(self.path, None, message))

    def _format(self) -> str:
        kind = kind_of(self.path)
        if kind == "folder":
            return kind
        if kind in ("text", "") and _is_fasttext(self.path):
            return "fasttext"
        if kind in FORMATS:
            return kind
        if str(self.path) == STDIN:
            return "csv" if self.labelled or self._names_columns() else "text"
        raise OptionError(
            f"{self.path}: cannot detect the format by the suffix {suffix_of(self.path)!r}; known are .csv, .tsv, "
            f".xlsx, .jsonl, .json, .parquet, .txt, .ts and .npz; name it with --format {'|'.join(FORMATS[1:])}"
        )

    def _names_columns(self) -> bool:
        """Whether the first line of standard input is a header with several columns."""
        header = records.table_of(self.path, "csv")[0].header
        return len(header) > 1 and self.text in header

    def _table(self) -> str:
        """Find the columns of a table, and describe them."""
        columns = {"text": self.text, **({"label": self.label} if self.labelled else {})}
        dialect, rows = records.table_of(self.path, self.format, list(columns.values()))
        first = [cell.strip() for cell in dialect.header]
        if columns == {"text": "text", "label": "label"} and len(first) == 2:
            known = {*records.TEXTS, *records.LABELS}.intersection(map(str.lower, first))
            columns = (None if known else self._without_header(first, rows)) or columns
        has_header = not columns["text"].isdecimal()
        names = first if has_header else [str(number + 1) for number in range(len(first))]
        chosen = []
        for role, name in columns.items():
            name = names[int(name) - 1] if name.isdecimal() and 0 < int(name) <= len(names) else name
            row = dict.fromkeys(names if name in names else first)
            chosen.append(records.key_of(self.path, dialect.before + 1, row, *_role(role, name), "column"))
        self.separator, self._names = dialect.separator, names if has_header else []
        self._places = [names.index(name) for name in chosen]
        labels = f", labels in {chosen[1]!r}" if self.labelled else ""
        how = f", separated by {SEPARATORS[self.separator]}" if self.separator else ", the first sheet"
        return f"texts in column {chosen[0]!r}{labels}{how}{'' if has_header else ', no header'}"

    def _without_header(self, first: Sequence[str], rows: records.Cells) -> dict[str, str] | None:
        """The numbers of text and label in two columns without a header; None if the first row may be a header.

        The values of a column of labels are repeated, including that of the first row. Texts are not repeated.
        """
        cells = [row for _, row in islice(rows, _ROWS) if row]
        counts = [Counter(row[place].strip() for row in cells) for place in (0, 1)]
        if all(count[cell] < 2 for count, cell in zip(counts, first, strict=True)):
            return None
        repeated = [count[cell] > 1 and 2 * len(count) <= len(cells) for count, cell in zip(counts, first, strict=True)]
        if repeated[0] == repeated[1]:
            raise DataError(
                self.path,
                1,
                f"expected a header with 'text' and 'label', got {', '.join(map(repr, first))}; columns 1 and 2 can "
                "each hold the labels: choose --text-column 2 --label-column 1 if they are in the first, "
                "--text-column 1 --label-column 2 if they are in the second",
            )
        return {"text": "2", "label": "1"} if repeated[0] else {"text": "1", "label": "2"}

    def _texts(self) -> Iterator[Labelled]:
        rows: Iterator[Row]
        if self.format == "text":
            rows = ((number, line, None) for number, line in read_lines(self.path) if line.strip())
        elif self.format == "fasttext":
            rows = self._fasttext()
        elif self.format in records.SEPARATED:
            rows = self._cells()
        else:
            label = self.label if self.labelled else None
            content = records.read(self.path, self.format)
            rows = keyed_texts(self.path, content, self.text, label)
        return (Labelled(text, label, str(self.path), number) for number, text, label in rows)

    def _complete(self, examples: Iterator[Labelled]) -> Iterator[Labelled]:
        """The examples with a text and a label; counts the others."""
        for each in examples:
            if _is_complete(each, self.missing):
                yield each
            else:
                self.dropped += 1

    def _cells(self) -> Iterator[Row]:
        _, rows = records.table_of(self.path, self.format, self._names)
        for number, row in islice((each for each in rows if each[1]), bool(self._names), None):
            text, *label = (row[place] for place in self._places)
            yield number, text, label[0] if label else None

    def _fasttext(self) -> Iterator[Row]:
        for number, line in read_lines(self.path):
            if not line.strip():
                continue
            words = line.split()
            labels = [word.removeprefix(_LABEL) for word in words if word.startswith(_LABEL)]
            if self.labelled and len(labels) != 1:
                raise DataError(
                    self.path,
                    number,
                    f"expected one {_LABEL}NAME and a text, got {len(labels)} labels; correct the line",
                )
            text = " ".join(word for word in words if not word.startswith(_LABEL))
            yield number, text, labels[0] if self.labelled else None

    def _folder(self) -> Iterator[Labelled]:
        """The files of each class folder, in alphabetical order."""
        root = Path(self.path)
        classes = sorted(each for each in root.iterdir() if each.is_dir() and not each.name.startswith("."))
        if self.labelled and not classes:
            raise DataError(root, None, "expected a file, or a folder with a folder of text files for each class")
        if self.labelled and {each.name.lower() for each in classes} <= _PARTS:
            first = classes[0].name
            raise DataError(
                root, None, f"expected a folder for each class, got parts of the data; give one, such as {root / first}"
            )
        for folder in classes if classes else [root]:
            for file in sorted(each for each in folder.rglob("*") if each.is_file() and not each.name.startswith(".")):
                text = "".join(f"{line}\n" for _, line in read_lines(file)) if file.stat().st_size else ""
                yield Labelled(text, folder.name if self.labelled else None, str(file))

    def _series(self) -> Iterator[Labelled]:
        for source, line, series, label in read_arrays(self.path, self.format):
            yield Labelled(without_missing(source, line, series, self.missing), label, source, line)


def _is_complete(example: Labelled, missing: str) -> bool:
    """Whether an example has a text and a label; one without is an error unless `missing` is "drop"."""
    text_is_empty = isinstance(example.content, str) and not example.content.strip()
    if not text_is_empty and (example.label is None or example.label.strip()):
        return True
    if missing == "drop":
        return False
    lacking, where = "text" if text_is_empty else "label", "file" if example.line is None else "row"
    raise DataError(
        example.source,
        example.line,
        f"the {lacking} is empty; remove the {where}, give it a {lacking}, or choose --missing drop",
    )


def _is_fasttext(path: str | Path) -> bool:
    lines = [line for _, line in islice(read_lines(path), _ROWS) if line.strip()]
    return bool(lines) and all(any(word.startswith(_LABEL) for word in line.split()) for line in lines)


def of_rows(rows: Iterator[tuple[int, Any, records.Names]], options: "LabelledOptions") -> list[Labelled]:
    """Return the examples of the rows of a table that is not a file, such as a pandas frame."""
    texts_and_labels = keyed_texts("given rows", rows, options.text_column, options.label_column)
    examples = (Labelled(text, label, "given rows", number) for number, text, label in texts_and_labels)
    return [each for each in examples if _is_complete(each, options.missing)]


def _role(role: str, name: str) -> tuple[str | None, Sequence[str], str]:
    """The name of a text or label column, None if it is the default, its usual names, and its option."""
    return None if name == role else name, {"text": records.TEXTS, "label": records.LABELS}[role], f"--{role}-column"


def keyed_texts(
    path: str | Path,
    rows: Iterator[tuple[int, Any, records.Names]],
    text: str,
    label: str | None,
) -> Iterator[Row]:
    """Yield number, text and label of rows with keys; missing values are empty.

    The default keys "text" and "label" also match other usual keys.
    """
    text_role, label_role = _role("text", text), _role("label", label or "")
    for number, row, names in rows:
        content = row[records.key_of(path, number, row, *text_role)]
        content = "" if records.is_missing(content) else content
        if not isinstance(content, str):
            raise DataError(path, number, f"expected a string under {text!r}, got {type(content).__name__}; quote it")
        given = None
        if label is not None:
            key = records.key_of(path, number, row, *label_role)
            given = records.label_name(row[key], names.get(key))
        yield number, content, given
