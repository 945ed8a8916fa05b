"""Files that declare their content in lines that begin with @: .ts of sktime, .arff of Weka, and .tsf of Monash."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.errors import DataError


class Declaration(NamedTuple):
    """A line before the data: its number, its tag in lower case, such as "@attribute", and the text after the tag."""

    line: int
    tag: str
    text: str


def read_declared(path: str | Path) -> tuple[list[Declaration], Iterator[tuple[int, str]]]:
    """Return the declarations of a file, and an iterator over the numbers and the texts of the lines of data.

    Blank lines and comments, which begin with # or %, are skipped.

    Raises:
        DataError: see `read_lines`; a line before the data does not begin with @; the data is missing
    """
    lines = ((number, text) for number, line in read_lines(path) if (text := line.strip()) and text[0] not in "#%")
    declarations: list[Declaration] = []
    for number, text in lines:
        tag, *rest = text.split(maxsplit=1)
        if tag.lower() == "@data":
            return declarations, lines
        if not tag.startswith("@"):
            got = repr(text[:40])
            raise DataError(path, number, f"expected a tag such as @classLabel or @data, got {got}; check the format")
        declarations.append(Declaration(number, tag.lower(), "".join(rest).strip()))
    raise DataError(path, None, "expected a line @data and the series after it, got none; is the file cut short?")
