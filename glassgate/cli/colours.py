"""Labelled text in a terminal, with a style for each label and a mark on wrong labels."""

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


def can_colour(tokens: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether the tokens are characters and each label has a colour."""
    return isinstance(tokens, str) and _STYLES.keys() >= set(labels)


def colour(tokens: Sequence[str], labels: Sequence[str], truth: Sequence[str] | None = None) -> Text:
    """Return the text with each character in the style of its label, and a mark where the true label differs."""
    text = Text()
    styles = [
        _STYLES.get(label, "") if label == true_label else _WRONG
        for label, true_label in zip(labels, labels if truth is None else truth, strict=True)
    ]
    for style, group in groupby(zip(tokens, styles, strict=True), key=lambda pair: pair[1]):
        characters = "".join(character for character, _ in group)
        text.append(characters.replace(" ", "\N{OPEN BOX}") if style == _WRONG else characters, style)
    return text


def legend() -> Text:
    """Return the labels and the word "mistake", each in its colour."""
    names = [Text(label, style) for label, style in _STYLES.items() if style]
    return Text(" ").join([*names, Text("mistake", _WRONG)])
