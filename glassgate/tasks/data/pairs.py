"""Reads pairs of sentences from a file with a tab between source and target, or from two files with parallel lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.dialect import detect_dialect
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.lines import read_lines, read_parallel
from glassgate.tasks.data.pair_rows import KINDS as ROW_KINDS
from glassgate.tasks.data.pair_rows import is_side_name, read_pair_rows, side_columns
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.errors import DataError

FILE_SEPARATOR = ","
"""The separator of the names of two parallel files."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation.

    Attributes:
        source: the sentence to translate
        target: the translation; None if unknown
        file, line: the origin of the pair, for messages
    """

    source: str
    target: str | None = None
    file: str = "given examples"
    line: int | None = None


def read_pairs(path: str | Path, labelled: bool = True, reverse: bool = False) -> list[Pair]:
    """Read pairs.

    Args:
        path: a file with source, tab and target in each line, where further columns are ignored; an export of Tatoeba,
            with a number before each sentence; CSV, JSON or JSON lines with two columns or keys, also under the key
            "translation"; or two files, `A,B`
        labelled: whether a target is required; otherwise a line may contain only a source. Tabs in standard input then
            are blanks, unless there are several lines and each has a tab
        reverse: whether the second column, or the second file, contains the sources

    Raises:
        DataError: a file cannot be read, a line has no tab, a side is empty, or two files have different line counts
    """
    if str(path) != STDIN and FILE_SEPARATOR in str(path) and not Path(path).exists():
        pairs = list(_read_two_files(str(path), reverse))
    elif labelled and (kind := detect_kind(path)) in ROW_KINDS:
        rows = read_pair_rows(path, kind)
        pairs = [Pair(*((b, a) if reverse else (a, b)), str(path), number) for number, a, b in rows]
    else:
        pairs = list(_read_one_file(path, labelled, reverse))
    if not pairs:
        raise DataError(path, None, "the file has only empty lines; give one with at least one pair")
    return pairs


def _read_one_file(path: str | Path, labelled: bool, reverse: bool) -> Iterator[Pair]:
    tabs_are_blanks = str(path) == STDIN and not labelled and not _has_columns(path)
    source = sniff(path) if labelled and detect_kind(path) in ("", "text", "tsv") else Source("")
    has_columns = source.separator == "\t"
    first, second = side_columns(source.columns) if has_columns else (0, 1)
    is_quoted = has_columns and detect_dialect(path, "\t").has_quotes
    has_header = has_columns  # until the first row is read
    for number, line in read_lines(path):
        if not line.strip():
            continue
        columns = [line.replace("\t", " ")] if tabs_are_blanks else line.split("\t")
        if has_columns and len(columns) == len(source.columns):
            columns = [columns[first], columns[second]]
        elif len(columns) == 4 and columns[0].isdecimal() and columns[2].isdecimal():
            columns = columns[1::2]  # each sentence in an export of Tatoeba has a number
        if has_header and all(map(is_side_name, columns[:2])):
            has_header = False
            continue
        has_header = False
        if is_quoted:
            columns = [column.strip().removeprefix('"').removesuffix('"').replace('""', '"') for column in columns]
        if len(columns) < 2 and labelled:
            raise DataError(
                path,
                number,
                "expected a sentence, a tab and its translation, got no tab; put one between the two, or give two "
                f"files with a comma between their names: A{FILE_SEPARATOR}B",
            )
        sides = [column.strip() for column in columns[:2]]
        if reverse:
            sides.reverse()
        if not sides[0] or (labelled and not sides[1]):
            side = "before" if bool(sides[0]) == reverse else "after"
            raise DataError(path, number, f"the text {side} the tab is missing; add it, or remove the line")
        yield Pair(sides[0], sides[1] if len(sides) > 1 else None, str(path), number)


def _has_columns(path: str | Path) -> bool:
    """Whether a file has several lines, and each has a tab."""
    have_tabs = ["\t" in line for _, line in read_lines(path) if line.strip()]
    return len(have_tabs) > 1 and all(have_tabs)


def _read_two_files(path: str, reverse: bool) -> Iterator[Pair]:
    first, second = path.split(FILE_SEPARATOR, 1)
    for number, lines in read_parallel(first, second):
        one, other = map(str.strip, lines)
        if not one and not other:
            continue
        if not one or not other:
            empty, full = (first, second) if not one else (second, first)
            raise DataError(
                empty,
                number,
                f"the line is empty, and that of {full} is not; remove both lines, or fill in the empty one",
            )
        source, target = (other, one) if reverse else (one, other)
        yield Pair(source, target, second if reverse else first, number)
