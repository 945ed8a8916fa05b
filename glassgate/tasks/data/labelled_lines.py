"""The styles of files with a labelled sequence per line: its words and as many labels, or words with labels.

| style | line |
|---|---|
| words, separator, labels | `show boston<tab>O B-city`, as in the ATIS corpus; or `###` or `|||` as separator |
| words with labels | `show/VB boston/NNP`, as in the Brown corpus; or `_` or `|` as mark |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from glassgate.tasks.data.lines import read_lines

_SEPARATORS = ("\t", " ### ", " ||| ")
_MARKS = ("/", "_", "|")
_BEGINNINGS = ("B-", "I-")  # of labels of entities
_EXAMINED_LINES = 1000
_MIN_TOKENS = 10  # with fewer tokens, marks within words are not taken for those of labels


@dataclass(frozen=True)
class LineStyle:
    """The style of the lines.

    Attributes:
        separator: the separator of the words and the labels; empty if each word ends with its label
        mark: the mark between a word and its label
    """

    separator: str = ""
    mark: str = ""

    def __str__(self) -> str:
        return f"words with labels after {self.mark!r}" if self.mark else "words and labels in each line"

    def parse(self, line: str) -> tuple[list[str], list[str]]:
        """Return the words and the labels of a line. A word without a mark has an empty label."""
        if not self.mark:
            words, _, labels = line.partition(self.separator)
            return words.split(), labels.split()
        parts = [token.rpartition(self.mark) for token in line.split()]
        return [word or label for word, _, label in parts], [label if word else "" for word, _, label in parts]


def detect_line_style(path: str | Path) -> LineStyle | None:
    """Return the style of a file with a labelled sequence per line; None for other files.

    Every line has a label for each word, with one more label at most, for the intent. There are half as many distinct
    labels as words, or they mark entities, unlike the words of a translation. The labels after marks repeat within the
    file and are not numbers, unlike the ends of paths, names with underscores, and dates.
    """
    examined = islice(read_lines(path), _EXAMINED_LINES)
    lines = [text for _, line in examined if (text := line.strip("\ufeff \t"))]
    for separator in _SEPARATORS:
        style = LineStyle(separator)
        counts = [tuple(map(len, style.parse(line))) for line in lines]
        if any(words > 1 for words, _ in counts) and all(words and n - words in (0, 1) for words, n in counts):
            words, labels = ({each for line in lines for each in style.parse(line)[side]} for side in (0, 1))
            if 2 * len(labels) <= len(words) or any(label[:2] in _BEGINNINGS for label in labels):
                return style
    for mark in _MARKS:
        style = LineStyle(mark=mark)
        if all(mark in line for line in lines) and _are_labels([style.parse(line)[1] for line in lines]):
            return style
    return None


def _are_labels(rows: Sequence[Sequence[str]]) -> bool:
    labels = [label for row in rows for label in row]
    if not all(labels) or len(labels) < max(_MIN_TOKENS, 2 * len(rows)):
        return False
    return 2 * len({*labels}) <= len(labels) and not any(map(str.isdecimal, labels))
