"""Labelled text in colours: each label has its own, and a token labelled wrong is marked."""

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
    """Whether the tokens are characters of a text and there is a colour for each label."""
    return isinstance(units, str) and _STYLES.keys() >= set(labels)


def coloured(units: Sequence[str], labels: Sequence[str], truth: Sequence[str] | None = None) -> Text:
    """Return the tokens one after another, each in its label's colour.

    Args:
        units: characters
        labels: the predictions of a model
        truth: the right labels; where they differ, the token is marked

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
    """Return each label in its colour, and a mistake in the colour of mistakes."""
    words = [Text(label, style) for label, style in _STYLES.items() if style]
    return Text(" ").join([*words, Text("mistake", _WRONG)])
