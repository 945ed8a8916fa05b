"""Detects the dialect of a table: the way in which a text file separates and quotes its cells."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from glassgate.tasks.data.kinds import TEXT, is_number_or_time, kind_of, names_columns

if TYPE_CHECKING:
    from _csv import Reader

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
"""The separators that are detected, and their names in messages. Any number of blanks separates columns of numbers."""

EXAMINED_LINES = 1000
"""The number of lines of a table from which its dialect is detected."""

_SEPARATORS_BY_CLARITY = ("\t", ";", "|", ",")  # from the one that texts contain least often
_MAX_CELL_LENGTH = 2**31 - 1  # characters of a CSV cell; the default limit of Python is 131,072
_MIN_OF_ONE_WIDTH = 0.9  # the fraction of the lines that have the usual number of cells
_MAX_TITLE_LINES = 20
_DOUBLED_QUOTES = re.compile('""')
_QUOTED_WORD = re.compile(r'"[^"]*"( |$)')
_QUOTED_TEXT = re.compile(r'"[^"]*"')
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED_CELL_OF_SEVERAL_LINES = re.compile(r'(?<![^\t\n])"(?:[^"]|"")*\n(?:[^"]|"")*"(?![^\t\n])')


@dataclass(frozen=True)
class Dialect:
    """The dialect of a table.

    Attributes:
        separator: the separator of the columns
        skipped_lines: the number of lines before the first row: blank lines, comments, or the line `sep=;` of Excel
        header: the cells of the first row
        has_quotes: whether quotes enclose cells; in TSV they may be ordinary characters
        skips_blanks: whether blanks before the quotes of a cell are left out
        lacks_name: whether the first row has no cell for the names of the rows, as in files of R
    """

    separator: str
    skipped_lines: int
    header: tuple[str, ...]
    has_quotes: bool = True
    skips_blanks: bool = False
    lacks_name: bool = False

    def rows(self, lines: Iterable[str], strict: bool = False) -> "Iterator[list[str]] | Reader":
        """Return the rows of cells in lines with line ends: a `csv.reader`, unless blanks separate the columns.

        Args:
            strict: whether wrong quotes raise `csv.Error`
        """
        if self.separator == " " and not self.has_quotes:
            return (line.strip("\ufeff").split() for line in lines)
        return csv_rows(
            lines,
            delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE,
            strict=strict and self.has_quotes,
            skipinitialspace=self.skips_blanks,
        )


def dialect_of(lines: Sequence[str], separator: str | None = None, names: Sequence[str] = ()) -> Dialect | None:
    """Return the dialect of a table that begins with these lines; None if they are blank.

    Args:
        separator: the separator of the columns; detected if None
        names: the names of columns that the first row should contain
    """
    skipped_lines = 0
    if lines and lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        separator, skipped_lines = lines[0][4], 1
    while skipped_lines < len(lines) - 1 and not lines[skipped_lines].strip():
        skipped_lines += 1
    skipped_lines += _count_comments(lines[skipped_lines:], separator, names)
    lines = lines[skipped_lines:]
    if not any(map(str.strip, lines)):
        return None
    separator = separator or _find_separator(lines, names)
    titles = _count_titles(lines, separator)
    skipped_lines, lines = skipped_lines + titles, lines[titles:]
    skips_blanks = 2 * sum(f'{separator} "' in _DOUBLED_QUOTES.sub("", line) for line in lines) > len(lines)
    has_quotes = bool(_QUOTED_WORD.match(lines[0])) if separator == " " else True
    has_quotes = has_quotes and (separator != "\t" or _quotes_enclose_cells(lines))
    dialect = Dialect(separator, skipped_lines, (), has_quotes, skips_blanks or separator == " ")
    try:
        header = next(dialect.rows(f"{line}\n" for line in lines), [""])
    except csv.Error:
        header = lines[0].split(separator)
    header = [cell.lstrip() for cell in header] if dialect.skips_blanks else header
    lacks_name = _have_names(lines[1:], separator, len(header) + 1)
    return replace(dialect, header=("",) * lacks_name + tuple(header), lacks_name=lacks_name)


def _have_names(lines: Sequence[str], separator: str, width: int) -> bool:
    """Whether rows have one cell more than the header: their names, which are numbers unless tabs separate the cells.

    A separator within texts must not be taken for one between cells. If a column contains texts without quotes, the
    first cells are names only if tabs separate them and they are not texts themselves.
    """
    texts = [_QUOTED_TEXT.sub(lambda match: match[0].replace(separator, ""), line) for line in lines]
    rows = [text.split(None if separator == " " else separator) for text in texts]
    names = [row[0].strip(' "') for row in rows if any(row)]
    are_quoted = separator == " " and all(row[0].startswith('"') for row in rows if any(row))
    are_names = len(names) > 1 and (separator == "\t" or are_quoted or all(map(str.isdecimal, names)))
    if not are_names or len({*names}) < len(names) or any(len(row) != width for row in rows if any(row)):
        return False
    is_certain = separator == "\t" and kind_of(names) != TEXT
    return is_certain or not _have_unquoted_texts([row[1:] for row in rows if any(row)])


def _have_unquoted_texts(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a column of rows of one width contains texts that no quotes enclose."""
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    return any(kind_of([cell for cell in column if not cell.startswith('"')]) == TEXT for column in columns)


def _count_comments(lines: Sequence[str], separator: str | None, names: Sequence[str]) -> int:
    """The number of lines of comments before a table: they begin with `#` and have another number of cells."""
    comments = list(takewhile(lambda line: line.startswith("#") or not line.strip(), lines))
    rows = lines[len(comments) :]
    if not comments or not rows:
        return 0
    separator = separator or _find_separator(rows, names)
    width = len(rows[0].split(separator))
    are_numbers = [any(is_number_or_time(cell.strip()) for cell in row.split(separator)) for row in rows[:2]]
    if len(comments) > 1 and are_numbers == [False, True]:  # the header follows
        return len(comments)
    return len(comments) if width > 1 and all(len(line.split(separator)) != width for line in comments) else 0


def csv_rows(lines: Iterable[str], **options: Any) -> "Reader":
    """Return a `csv.reader` that accepts long cells, such as whole articles."""
    csv.field_size_limit(_MAX_CELL_LENGTH)
    return csv.reader(lines, **options)


def _find_separator(lines: Sequence[str], names: Sequence[str]) -> str:
    """Return a separator with which the first row contains all names.

    Otherwise return a separator with which the rows have the same number of cells: all of them or, failing that, most
    of them. If no separator fits, return the most frequent one in the first row, a blank for columns of numbers and
    rows that begin with quotes, or a comma.
    """
    for separator in SEPARATORS if names else ():
        cells = [cell.strip().strip('"') for cell in lines[0].split(separator)]
        if all(name in cells for name in names):
            return separator
    rows = [_QUOTED_TEXT.sub('"', line) for line in lines if line.strip()]
    fractions = {separator: _fraction_of_one_width(rows, separator) for separator in _SEPARATORS_BY_CLARITY}
    for least in (1.0, _MIN_OF_ONE_WIDTH):
        if fitting := [separator for separator, fraction in fractions.items() if fraction >= least]:
            return fitting[0]
    counts = {separator: lines[0].count(separator) for separator in fractions}
    if max(counts.values()):
        return max(counts, key=counts.__getitem__)
    cells = [cell for row in rows for cell in row.split()]
    is_numeric = 2 * sum(map(is_number_or_time, cells)) >= len(cells) > len(rows)
    has_sentences = "\n\n" in "\n".join(lines).strip()  # of a token per row
    is_numeric |= all(row.startswith('"') for row in rows) and not has_sentences
    return " " if is_numeric and _fraction_of_one_width(rows, None) >= _MIN_OF_ONE_WIDTH else ","


def _fraction_of_one_width(rows: Sequence[str], separator: str | None) -> float:
    """The fraction of the rows with the usual number of cells; 0 if that is one."""
    ((width, count),) = Counter(len(row.split(separator)) for row in rows).most_common(1)
    return count / len(rows) if width > 1 else 0.0


def _count_titles(lines: Sequence[str], separator: str) -> int:
    """The number of lines before the header of a table that have at most half of its cells, such as a title.

    It is 0 if the first line may be the header of texts that contain the separator.
    """
    rows = [(_QUOTED_TEXT.sub('"', line).split(None if separator == " " else separator), line) for line in lines]
    widths = [len(cells) if line.strip() else 0 for cells, line in rows]
    ((usual, count),) = Counter(filter(None, widths)).most_common(1)
    first = widths.index(usual)
    are_titles = all(
        2 * width <= usual and line.count('"') % 2 == 0 for width, line in zip(widths[:first], lines, strict=False)
    )
    is_table = count >= _MIN_OF_ONE_WIDTH * sum(width > 0 for width in widths[first:])
    if not (0 < first <= _MAX_TITLE_LINES and is_table and are_titles):
        return 0
    header, *body = [[cell.strip() for cell in cells] for cells, _ in rows[first:] if len(cells) == usual]
    return first if names_columns(header, body) or not _have_unquoted_texts([header, *body]) else 0


def _quotes_enclose_cells(lines: Sequence[str]) -> bool:
    """Whether quotes enclose cells of a TSV, instead of being ordinary characters."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    widths = {len(line.split("\t")) for line in lines[1:] if line.strip()}
    if len(widths) > 1:
        return bool(_QUOTED_CELL_OF_SEVERAL_LINES.search("\n".join(lines)))
    return bool(cells) and all(_QUOTED_CELL.fullmatch(cell) for cell in cells)
