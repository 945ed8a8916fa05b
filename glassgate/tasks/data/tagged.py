"""Sequences with a label for each unit, and their file formats: CoNLL-U, columns (IOB2), TSV, text beside labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassgate.tasks.data.lines import STDIN, read_lines
from glassgate.tasks.errors import DataError, OptionError

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
FORMATS = ("auto", "conllu", "columns", "tsv", "text", "python")
UNITS = ("word", "character")

_BY_SUFFIX = {
    ".conllu": "conllu",
    ".conll": "columns",
    ".iob": "columns",
    ".iob2": "columns",
    ".bio": "columns",
    ".tsv": "tsv",
    ".txt": "text",
    ".py": "python",
}


@dataclass(frozen=True, slots=True)
class Tagged:
    """One sequence: its units, their labels where known, and the tokens that the units spell where there are any.

    Attributes:
        units: words, or one string, whose characters are the units
        labels: a label for each unit; None where the file holds none
        tokens: `(start, end)` of each token made of several units, in order
        source: the file it came from
        lines: the line of each unit, or the one line of all
    """

    units: Sequence[str]
    labels: Sequence[str] | None
    tokens: Sequence[tuple[int, int]] = ()
    source: str = ""
    lines: Sequence[int] | int = 1

    def line(self, unit: int) -> int:
        """The number of the line that holds this unit."""
        return self.lines if isinstance(self.lines, int) else self.lines[unit]


def format_of(path: str | Path, format: str = "auto") -> str:
    """Name the format of a file: the one asked for, or by its suffix.

    Raises:
        OptionError: "auto" and an unknown suffix

    Example:
        >>> format_of("train.conllu")
        'conllu'
    """
    if format != "auto":
        return format
    if str(path) == STDIN:
        return "text"
    suffix = Path(path).suffix.lower()
    if suffix not in _BY_SUFFIX:
        raise OptionError(
            f"{path}: cannot tell the format by the suffix {suffix!r}; known are {', '.join(_BY_SUFFIX)}; "
            f"name it with --format {'|'.join(FORMATS[1:-1])}"
        )
    return _BY_SUFFIX[suffix]


def read_conllu(path: str | Path, column: str = "upos") -> list[Tagged]:
    """Read a CoNLL-U file: forms, and one column as labels. Multiword tokens and empty nodes are passed over.

    Args:
        column: a name of `CONLLU_COLUMNS`

    Raises:
        DataError: see `read_lines`; a line that has not ten columns
        OptionError: no such column
    """
    if column not in CONLLU_COLUMNS:
        raise OptionError(f"--column: wanted one of {', '.join(CONLLU_COLUMNS)} for CoNLL-U, got {column!r}")
    which = CONLLU_COLUMNS.index(column)

    def rows() -> Iterator[tuple[int, list[str] | None]]:
        for number, text in read_lines(path):
            if not text.strip():
                yield number, None
            elif not text.startswith("#"):
                row = text.split("\t")
                if len(row) != len(CONLLU_COLUMNS):
                    raise DataError(
                        path, number, f"wanted the 10 tab-separated columns of CoNLL-U, got {len(row)}: {_shown(text)}"
                    )
                if row[0].isdecimal():
                    yield number, row

    return _sequences(path, rows(), form=1, label=which)


def read_columns(
    path: str | Path, column: str | None = None, separator: str | None = None, labelled: bool = True
) -> list[Tagged]:
    """Read one unit a line, blank lines between sequences: the CoNLL and IOB2 files, and TSV with `separator="\\t"`.

    Args:
        column: number of the label's column, from 1; the last if None
        separator: what parts the columns; None is any run of blanks
        labelled: whether labels are needed; without them a single column will do

    Raises:
        DataError: see `read_lines`; a line with more or fewer columns than the first; too few columns
        OptionError: the column is no number or out of range
    """
    width = 0
    if column is not None and not (column.isdecimal() and int(column) >= 1):
        raise OptionError(f"--column: wanted a number from 1 for this format, got {column!r}")

    def rows() -> Iterator[tuple[int, list[str] | None]]:
        nonlocal width
        for number, text in read_lines(path):
            if not text.strip() or text.startswith("-DOCSTART-"):
                yield number, None
                continue
            row = text.split(separator)
            if not width:
                width = len(row)
                _check_width(path, number, width, column, labelled, separator)
            elif len(row) != width:
                raise DataError(
                    path,
                    number,
                    f"wanted {width} columns{_parted(separator)} as in lines before, got {len(row)}: {_shown(text)}",
                )
            yield number, row

    label = int(column) - 1 if column is not None else -1
    return _sequences(path, rows(), form=0, label=label if labelled else None)


def read_text(
    path: str | Path, unit: str = "word", label_suffix: str = ".labels", labelled: bool = True
) -> list[Tagged]:
    """Read one sequence a line; labels, parted by blanks, stand in the same line of the file beside it.

    Args:
        unit: "word" (parted by blanks) or "character"
        label_suffix: turns the text file's name into the label file's, `a.txt` into `a.labels`

    Raises:
        DataError: see `read_lines`; the label file is missing, shorter or longer, or a line's counts differ
    """
    texts = list(read_lines(path))
    split = (lambda text: text) if unit == "character" else str.split
    if not labelled:
        return [Tagged(split(text), None, source=str(path), lines=number) for number, text in texts if text.strip()]
    beside = Path(path).with_suffix(label_suffix)
    if not beside.exists():
        raise DataError(
            path, None, f"wanted its labels in {beside}, which does not exist; make it, or see --label-suffix"
        )
    labels = list(read_lines(beside))
    if len(texts) != len(labels):
        raise DataError(beside, None, f"wanted {len(texts)} lines, as many as {path} has, got {len(labels)}")
    sequences = []
    for (number, text), (_, line) in zip(texts, labels, strict=True):
        sequence = Tagged(split(text), line.split(), source=str(path), lines=number)
        if len(sequence.units) != len(sequence.labels or ()):
            raise DataError(
                beside,
                number,
                f"wanted {len(sequence.units)} labels, one for each {unit} of {path}:{number}, "
                f"got {len(sequence.labels or ())}",
            )
        if sequence.units:
            sequences.append(sequence)
    return _some(path, sequences)


def _sequences(
    path: str | Path, rows: Iterator[tuple[int, list[str] | None]], form: int, label: int | None
) -> list[Tagged]:
    sequences = []
    units: list[str] = []
    labels: list[str] = []
    lines: list[int] = []

    def close() -> None:
        if units:
            sequences.append(
                Tagged(tuple(units), None if label is None else tuple(labels), source=str(path), lines=tuple(lines))
            )
        for part in (units, labels, lines):
            part.clear()

    for number, row in rows:
        if row is None:
            close()
        else:
            units.append(row[form])
            lines.append(number)
            if label is not None:
                labels.append(row[label])
    close()
    return _some(path, sequences)


def _some(path: str | Path, sequences: list[Tagged]) -> list[Tagged]:
    if not sequences:
        raise DataError(path, None, "the file holds no sequence, only blank or comment lines")
    return sequences


def _check_width(
    path: str | Path, number: int, width: int, column: str | None, labelled: bool, separator: str | None
) -> None:
    if labelled and width < 2:
        raise DataError(
            path, number, f"wanted at least 2 columns{_parted(separator)}, the unit first and its label, got {width}"
        )
    if labelled and column is not None and int(column) > width:
        raise OptionError(f"--column: {path}:{number} has {width} columns, got {column}")


def _parted(separator: str | None) -> str:
    return " parted by blanks" if separator is None else " parted by tabs"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
