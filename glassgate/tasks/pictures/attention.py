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

    Args:
        examples: the weights of the examples, which are drawn one below the other

    Returns:
        an SVG document

    Example:
        >>> attention_picture(AttentionWeights(["a", "cat"], ["chat"], np.array([[0.1, 0.9]]))).count("<rect")
        3
    """
    left = _MARGIN + max(_text_width(example.target) for example in examples)
    parts, height, width = [], 0.0, 0.0
    for example in examples:
        top = height + (_text_width(example.source) if _needs_vertical_text(example.source) else 16) + _MARGIN
        parts += _draw_source(example.source, left, top) + _draw_rows(example, left, top)
        height = top + _SQUARE_SIZE * len(example.target) + _MARGIN
        width = max(width, left + _SQUARE_SIZE * len(example.source) + _MARGIN)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
            f"height='{height:.0f}' {_FONT}>",
            "<rect width='100%' height='100%' fill='white'/>",
            *parts,
            "</svg>\n",
        ]
    )


def _draw_source(tokens: Sequence[str], left: float, top: float) -> list[str]:
    """The source tokens above their columns."""
    texts = []
    for column, token in enumerate(tokens):
        x = left + _SQUARE_SIZE * (column + 0.5)
        if _needs_vertical_text(tokens):
            position = f"transform='translate({x + 4:.1f} {top - 6:.1f}) rotate(-90)'"
        else:
            position = f"x='{x:.1f}' y='{top - 6:.1f}' text-anchor='middle'"
        texts.append(f"<text {position}>{_escape(token)}</text>")
    return texts


def _draw_rows(example: AttentionWeights, left: float, top: float) -> list[str]:
    """A row per target token: the token and a square for each of its weights, on a pale grid."""
    size, source, target = _SQUARE_SIZE, example.source, example.target
    right, bottom = left + size * len(source), top + size * len(target)
    lines = [f"M{left + size * column:.1f} {top:.1f}V{bottom:.1f}" for column in range(len(source) + 1)]
    lines += [f"M{left:.1f} {top + size * row:.1f}H{right:.1f}" for row in range(len(target) + 1)]
    parts = [f"<path d='{''.join(lines)}' stroke='#e2e6ea' fill='none'/>"]
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


def _needs_vertical_text(tokens: Sequence[str]) -> bool:
    """Whether the tokens are written vertically, because at least one has more than one character."""
    return any(len(token) > 1 for token in tokens)


def _escape(token: str) -> str:
    """A token as SVG text, with visible signs for a space and for the end of a translation."""
    return escape({"": "(end)", " ": "\N{OPEN BOX}"}.get(token, token), quote=True)


def _text_width(tokens: Sequence[str]) -> float:
    """The approximate width of the widest token."""
    widths = (sum(1 + (east_asian_width(letter) in "WF") for letter in token or "(end)") for token in tokens)
    return _LETTER_WIDTH * max(widths)
