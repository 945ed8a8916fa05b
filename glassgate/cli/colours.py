"""Prints labelled text with a colour for each label, and marks wrong labels."""

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

_STYLES = {
    "other": "",
    "keyword": "bold magenta",
    "builtin": "cyan",
    "name": "",
    "number": "blue",
    "string": "green",
    "docstring": "italic yellow",
    "comment": "bright_black",
    "operator": "red",
    "decorator": "bold cyan",
}
_WRONG = "white on red"


def can_colour(units: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether the tokens are characters and each label has a colour."""
    return isinstance(units, str) and _STYLES.keys() >= set(labels)


def coloured(units: Sequence[str], labels: Sequence[str], truth: Sequence[str] | None = None) -> Text:
    """Return the text with each character in the colour of its label.

    Args:
        units: the characters
        labels: the predicted labels
        truth: the true labels; wrong predictions are marked

    Example:
        >>> coloured("if x", ["keyword", "keyword", "other", "name"]).plain
        'if x'
    """
    text = Text()
    marks = zip(units, labels, labels if truth is None else truth, strict=True)
    for style, same in groupby(marks, key=lambda mark: _STYLES.get(mark[1], "") if mark[1] == mark[2] else _WRONG):
        part = "".join(unit for unit, *_ in same)
        text.append(part.replace(" ", "\N{OPEN BOX}") if style == _WRONG else part, style)
    return text


def legend() -> Text:
    """Return the labels and the word "mistake", each in its colour."""
    names = [Text(label, style) for label, style in _STYLES.items() if style]
    return Text(" ").join([*names, Text("mistake", _WRONG)])
