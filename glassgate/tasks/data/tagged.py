"""Reads sequences with a label per token: CoNLL-U, columns, rows with lists, and text files with label files."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from glassgate.tasks.data import records
from glassgate.tasks.data.bio import to_iob2
from glassgate.tasks.data.columns import Layout, is_comment
from glassgate.tasks.data.files import STDIN, read_lines
from glassgate.tasks.data.formats import FOLDER
from glassgate.tasks.errors import DataError, OptionError

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_INTENT = re.compile(r"#\s*intent\s*[=:]\s*(\S.*?)\s*")


Row = list[str] | str | None
"""The content of a line: a list of columns, an intent, or None at the end of a sequence."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sequence of tokens with labels and an intent, if known.

    Attributes:
        units: the tokens: words, or one string of characters
        labels: the label of each token; None if unknown
        tokens: for code whose characters are labelled, `(start, end)` of each word
        source: the file that contains the sequence
        lines: the line of each token, or one line for all tokens
        intent: the intent of the sequence; None if unknown
        starts: the offset of each token in its line of raw text, in characters; empty for other formats
    """

    units: Sequence[str]
    labels: Sequence[str] | None
    tokens: Sequence[tuple[int, int]] = ()
    source: str = ""
    lines: Sequence[int] | int = 1
    intent: str | None = None
    starts: Sequence[int] = ()

    def line(self, unit: int = 0) -> int:
        """Return the number of the line that contains a token."""
        return self.lines if isinstance(self.lines, int) else int(self.lines[unit]) if len(self.lines) else 1


def read_conllu(path: str | Path, column: str = "upos", labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sentences of a CoNLL-U file: forms, and one column as labels.

    Multiword tokens and empty nodes are skipped. A comment `# intent = NAME` gives the sentence's intent.

    Args:
        column: a name of `CONLLU_COLUMNS`
        labelled: whether labels are required

    Raises:
        DataError: see `read_lines`; a line does not have ten columns
        OptionError: the column does not exist
    """
    if column not in CONLLU_COLUMNS:
        raise OptionError(f"--column: expected one of {', '.join(CONLLU_COLUMNS)} for CoNLL-U, got {column!r}")
    which = CONLLU_COLUMNS.index(column)

    def lines() -> Iterator[tuple[int, Row]]:
        for number, text in read_lines(path):
            if not text.strip():
                yield number, None
            elif intent := _INTENT.fullmatch(text):
                yield number, intent[1]
            elif not text.startswith("#"):
                row = text.split("\t")
                if len(row) != len(CONLLU_COLUMNS):
                    raise DataError(
                        path,
                        number,
                        f"expected the 10 columns of CoNLL-U, separated by tabs, got {len(row)}: {_shown(text)}; "
                        "correct the line, or name another --format",
                    )
                if row[0].isdecimal():
                    yield number, row

    return _sequences(path, lines(), form=1, label=which if labelled else None)


def read_columns(path: str | Path, layout: Layout, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sequences of a file with one token per line and blank lines between sequences.

    Such files are CoNLL, IOB2 and TSV. A line `# intent = NAME` before a sequence gives its intent.

    Args:
        layout: the layout that `detect_format` returns
        labelled: whether labels are required; otherwise a single column is enough

    Raises:
        DataError: see `read_lines`; a line has more or fewer columns than the first, or too few
    """
    separated = " separated by blanks" if layout.separator is None else " separated by tabs"
    width, names = 0, layout.names

    def lines() -> Iterator[tuple[int, Row]]:
        nonlocal width, names
        for number, text in read_lines(path):
            if not text.strip() or text.startswith("-DOCSTART-"):
                yield number, None
                continue
            if intent := _INTENT.fullmatch(text):
                yield number, intent[1]
                continue
            row = text.split(layout.separator)
            if is_comment(text, len(row), layout.width):
                continue
            if names and tuple(row) == names:
                names = ()
                continue
            if not width:
                width = len(row)
                if labelled and width < 2:
                    raise DataError(
                        path,
                        number,
                        f"expected at least 2 columns{separated}, a word and its label, got {width}; correct the line, "
                        "or name another --format",
                    )
            elif len(row) != width:
                raise DataError(
                    path,
                    number,
                    f"expected {width} columns{separated} as in lines before, got {len(row)}: "
                    f"{_shown(text)}; correct the line, or name another --format",
                )
            yield number, row

    sequences = _sequences(path, lines(), layout.unit, layout.label if labelled else None)
    if layout.scheme in ("", "IOB2"):
        return sequences
    return (replace(each, labels=to_iob2(each.labels or (), layout.scheme)) for each in sequences)


def read_rows(
    path: str | Path, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> Iterator[Tagged]:
    """Yield the sequences of JSON, JSON lines or Parquet: each row has a list of tokens and a list of labels.

    Integer labels are replaced by the names that Parquet files of Hugging Face's `datasets` contain.

    Args:
        column, text_column: the keys of the labels and of the tokens; detected if None
        labelled: whether labels are required

    Raises:
        DataError: see `records.read`; a key is missing, or its values are not two lists of equal length
    """

    return _nonempty(path, from_rows(path, records.read(path), column, text_column, labelled))


def from_rows(
    source: str | Path,
    rows: Iterator[tuple[int, Any, records.Names]],
    column: str | None = None,
    text_column: str | None = None,
    labelled: bool = True,
) -> Iterator[Tagged]:
    """Yield the sequences of rows; see `read_rows`."""
    for number, row, names in rows:
        units = records.value(source, number, row, text_column, records.UNITS, "--text-column")
        labels = records.value(source, number, row, column, records.LABELS, "--column") if labelled else None
        for each, name, option in ((units, "of words", "--text-column"), (labels, "of labels", "--column")):
            if not (isinstance(each, list) or (each is None and not labelled)):
                raise DataError(source, number, f"expected a list {name}, got {type(each).__name__}; see {option}")
        key = column or next((name for name in records.LABELS if name in row), "")
        tags = None if labels is None else [records.label_name(label, names.get(key)) for label in labels]
        sequence = Tagged([str(unit) for unit in units], tags, source=str(source), lines=number)
        _check_count(Path(source), sequence, "unit")
        if sequence.units:
            yield sequence


def read_text(
    path: str | Path, unit: str = "word", label_suffix: str = ".labels", labelled: bool = True
) -> Iterator[Tagged]:
    """Yield a sequence per line; its labels, separated by blanks, are in the same line of the label file.

    Args:
        unit: "word" (separated by blanks) or "character"
        label_suffix: replaces the suffix of the text file in the name of the label file: `a.txt`, `a.labels`

    Raises:
        DataError: see `read_lines`; the label file is missing, shorter or longer, or a line's counts differ
    """
    split = (lambda text: text) if unit == "character" else str.split
    if not labelled:
        for number, text in read_lines(path):
            if text.strip():
                yield Tagged(split(text), None, source=str(path), lines=number)
        return
    if str(path) == STDIN:
        raise DataError(path, None, "expected labels, got plain text; name the format of the input with --format")
    label_file = Path(path).with_suffix(label_suffix)
    if not label_file.exists():
        deque(read_lines(path), maxlen=0)  # errors in the text itself are reported first
        raise DataError(
            path, None, f"expected its labels in {label_file}, which does not exist; make it, or see --label-suffix"
        )

    def sequences() -> Iterator[Tagged]:
        for number, text, line in _zip_lines(path, label_file):
            sequence = Tagged(split(text), line.split(), source=str(path), lines=number)
            _check_count(label_file, sequence, unit)
            if sequence.units:
                yield sequence

    yield from _nonempty(path, sequences())


def read_folder(path: str | Path, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sentences of a folder: tokens in `seq.in`, labels in `seq.out` and, if it exists, intents in `label`.

    Raises:
        DataError: see `read_lines`; a file is missing, shorter or longer, a line is empty or its counts differ
    """
    texts, tags, names = (Path(path) / name for name in FOLDER)
    if not texts.exists():
        raise DataError(path, None, f"expected a file, or a folder that holds {', '.join(FOLDER)}; check the path")
    label_files = [tags] if labelled else []
    intents = labelled and names.exists()

    def sequences() -> Iterator[Tagged]:
        for number, text, *others in _zip_lines(texts, *label_files, *([names] if intents else [])):
            words, intent = tuple(text.split()), others[-1].strip() if intents else None
            if not words or intent == "":
                raise DataError(
                    texts if not words else names, number, f"the line is empty; remove line {number} of each file"
                )
            labels = tuple(others[0].split()) if labelled else None
            sequence = Tagged(words, labels, source=str(texts), lines=number, intent=intent)
            _check_count(tags, sequence, "word")
            yield sequence

    yield from _nonempty(texts, sequences())


def _zip_lines(texts: str | Path, *others: Path) -> Iterator[Any]:
    """Yield the number of each line and that line of all files."""
    files = [read_lines(path) for path in (texts, *others)]
    for number, lines in enumerate(zip_longest(*files), start=1):
        if None in lines:
            count, *counts = (sum(1 for _ in read_lines(path)) for path in (texts, *others))
            path, got = next((path, got) for path, got in zip(others, counts, strict=True) if got != count)
            raise DataError(
                path, None, f"expected {count} lines, as many as {texts} has, got {got}; write one for each"
            )
        yield number, *(text for _, text in lines)


def _check_count(path: Path, sequence: Tagged, unit: str) -> None:
    if sequence.labels is not None and len(sequence.units) != len(sequence.labels):
        raise DataError(
            path,
            sequence.line(),
            f"expected {len(sequence.units)} labels, one for each {unit} of {sequence.source}:{sequence.line()}, "
            f"got {len(sequence.labels)}; correct the line",
        )


def _sequences(path: str | Path, rows: Iterator[tuple[int, Row]], form: int, label: int | None) -> Iterator[Tagged]:
    """Yield a sequence for each group of consecutive rows with columns."""

    def sequences() -> Iterator[Tagged]:
        units: list[str] = []
        labels: list[str] = []
        lines: list[int] = []
        intent: str | None = None
        for number, row in chain(rows, [(0, None)]):
            if row is None:
                if units:
                    tags, given = (None, None) if label is None else (tuple(labels), intent)
                    yield Tagged(tuple(units), tags, source=str(path), lines=tuple(lines), intent=given)
                    units, labels, lines, intent = [], [], [], None
            elif isinstance(row, str):
                if units or intent is not None:
                    raise DataError(
                        path,
                        number,
                        f"expected one intent, before the sequence's first token, got {row!r} besides; move it",
                    )
                intent = row
            else:
                units.append(row[form])
                lines.append(number)
                if label is not None:
                    labels.append(row[label])

    return _nonempty(path, sequences())


def _nonempty(path: str | Path, sequences: Iterator[Tagged]) -> Iterator[Tagged]:
    empty = True
    for sequence in sequences:
        empty = False
        yield sequence
    if empty:
        raise DataError(path, None, "the file holds no sequence, only blank or comment lines; give one with tokens")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
