"""Labelled text in colours: each label has its own, and a unit labelled wrong is marked."""

from collections.abc import Sequence

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
    """Whether the units are characters of a text and there is a colour for each label."""
    return isinstance(units, str) and _STYLES.keys() >= set(labels)


def coloured(units: Sequence[str], labels: Sequence[str], truth: Sequence[str] | None = None) -> Text:
    """Return the units one after another, each in its label's colour.

    Args:
        units: characters
        labels: what a model says of them
        truth: the right labels; where they differ, the unit is marked

    Example:
        >>> coloured("if x", ["keyword", "keyword", "other", "name"]).plain
        'if x'
    """
    text = Text()
    for place, (unit, label) in enumerate(zip(units, labels, strict=True)):
        wrong = truth is not None and truth[place] != label
        text.append("\N{OPEN BOX}" if wrong and unit == " " else unit, _WRONG if wrong else _STYLES.get(label, ""))
    return text


def legend() -> Text:
    """Return each label in its colour, and a mistake in the colour of mistakes."""
    words = [Text(label, style) for label, style in _STYLES.items() if style]
    return Text("  ").join([*words, Text("mistake", _WRONG)])
