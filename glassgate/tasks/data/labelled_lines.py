"""Reads files with a labelled sequence per line: its words, a tab, and as many labels, as in the ATIS corpus."""

from collections.abc import Iterator
from pathlib import Path

from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

_BEGIN, _END = "BOS", "EOS"


def read_labelled_lines(path: str | Path) -> Iterator[Tagged]:
    """Yield the sequence of each line, without the words BOS and EOS at its ends.

    The label of EOS, or a label after those of all words, is the intent.

    Raises:
        DataError: a line has more or fewer labels than words
    """
    for number, line in read_lines(path):
        words, labels = (part.split() for part in line.partition("\t")[::2])
        if not words:
            continue
        intent = None
        if len(labels) == len(words) + 1:
            intent = labels.pop()
        if len(labels) != len(words):
            raise DataError(path, number, f"expected {len(words)} labels, as many as words, got {len(labels)}")
        if words[0] == _BEGIN:
            words, labels = words[1:], labels[1:]
        if words and words[-1] == _END:
            intent = labels[-1] if intent is None else intent
            words, labels = words[:-1], labels[:-1]
        yield Tagged(words, labels, source=str(path), lines=number, intent=intent)
