"""The attention weights of an example, and their picture as SVG."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np

# Lengths are in pixels.
_SQUARE_SIZE = 24
_LETTER_WIDTH = 8.2
_MARGIN = 12
_MIN_DRAWN_WEIGHT = 0.005
_FONT = "font-family='DejaVu Sans, Noto Sans CJK SC, sans-serif' font-size='13'"


class AttentionWeights(NamedTuple):
    """The attention weights of one example.

    Attributes:
        source: the tokens that the network read
        target: the output of the network: a label, or the tokens of a translation and an empty token for its end
        weights: the weight of each source token for each target token, `(T, S)`; each row sums to 1
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray


def attention_picture(*examples: AttentionWeights) -> str:
    """Draw weights as squares: darker squares have larger weights. Hover over a square to see its weight.

    Returns:
        an SVG document, with the examples one below the other

    Example:
        >>> attention_picture(AttentionWeights(["a", "cat"], ["chat"], np.array([[0.1, 0.9]]))).count("<rect")
        3
    """
    left = _MARGIN + max(_text_width(example.target) for example in examples)
    parts, height, width = [], 0.0, 0.0
    for example in examples:
        is_vertical = any(len(token) > 1 for token in example.source)
        top = height + (_text_width(example.source) if is_vertical else 16) + _MARGIN
        parts += _draw(example, is_vertical, left, top)
        height = top + _SQUARE_SIZE * len(example.target) + _MARGIN
        width = max(width, left + _SQUARE_SIZE * len(example.source) + _MARGIN)
    size = f"viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' height='{height:.0f}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_FONT}>"
    return "\n".join([head, "<rect width='100%' height='100%' fill='white'/>", *parts, "</svg>\n"])


def _draw(example: AttentionWeights, is_vertical: bool, left: float, top: float) -> list[str]:
    """The source tokens, and a row per target token: the token and a square for each of its weights, on a pale grid."""
    size, source, target = _SQUARE_SIZE, example.source, example.target
    parts = []
    for column, token in enumerate(source):
        x = left + size * (column + 0.5)
        vertical = f"transform='translate({x + 4:.1f} {top - 6:.1f}) rotate(-90)'"
        position = vertical if is_vertical else f"x='{x:.1f}' y='{top - 6:.1f}' text-anchor='middle'"
        parts.append(f"<text {position}>{_escape(token)}</text>")
    right, bottom = left + size * len(source), top + size * len(target)
    lines = [f"M{left + size * column:.1f} {top:.1f}V{bottom:.1f}" for column in range(len(source) + 1)]
    lines += [f"M{left:.1f} {top + size * row:.1f}H{right:.1f}" for row in range(len(target) + 1)]
    parts += [f"<path d='{''.join(lines)}' stroke='#e2e6ea' fill='none'/>"]
    for row, (target_token, weights) in enumerate(zip(target, example.weights.tolist(), strict=True)):
        y = top + size * row
        text = _escape(target_token)
        parts.append(f"<text x='{left - 6:.1f}' y='{y + 0.7 * size:.1f}' text-anchor='end'>{text}</text>")
        for column, (source_token, weight) in enumerate(zip(source, weights, strict=True)):
            if weight >= _MIN_DRAWN_WEIGHT:
                parts.append(
                    f"<rect x='{left + size * column + 1:.1f}' y='{y + 1:.1f}' width='{size - 2}' "
                    f"height='{size - 2}' fill='#1f4e79' fill-opacity='{weight:.3f}'>"
                    f"<title>{text}, {_escape(source_token)}: {weight:.3f}</title></rect>"
                )
    return parts


def _escape(token: str) -> str:
    """A token as SVG text, with visible signs for a space and for the end of a translation."""
    return escape({"": "(end)", " ": "\N{OPEN BOX}"}.get(token, token), quote=True)


def _text_width(tokens: Sequence[str]) -> float:
    """The approximate width of the widest token."""
    widths = (sum(1 + (east_asian_width(letter) in "WF") for letter in token or "(end)") for token in tokens)
    return _LETTER_WIDTH * max(widths)
