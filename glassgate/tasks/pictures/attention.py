"""The attention weights of source tokens for each output token, and their picture as SVG."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np

_CELL = 24
_LETTER = 8.2
_GAP = 12
_FAINTEST = 0.005  # smaller weights are not drawn
_FONT = "font-family='DejaVu Sans, Noto Sans CJK SC, sans-serif' font-size='13'"


class Attended(NamedTuple):
    """The attention weights of one example.

    Attributes:
        source: the tokens that the network read
        target: the output of the network: the tokens of a translation, with an empty one for its end, or a label
        weights: the weight of each source token for each target token, `(T, S)`; each row sums to 1
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray


def attention_picture(*shown: Attended) -> str:
    """Draw weights as squares: darker squares have larger weights. Hover over a square to see its weight.

    Args:
        shown: the examples, which are drawn one below the other

    Returns:
        an SVG document

    Example:
        >>> attention_picture(Attended(["a", "cat"], ["chat"], np.array([[0.1, 0.9]]))).count("<rect")
        3
    """
    left = _GAP + max(_width(each.target) for each in shown)
    parts, height, width = [], 0.0, 0.0
    for each in shown:
        top = height + (_width(each.source) if _vertical(each.source) else 16) + _GAP
        parts += _columns(each.source, left, top) + _rows(each, left, top)
        height = top + _CELL * len(each.target) + _GAP
        width = max(width, left + _CELL * len(each.source) + _GAP)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
            f"height='{height:.0f}' {_FONT}>",
            "<rect width='100%' height='100%' fill='white'/>",
            *parts,
            "</svg>\n",
        ]
    )


def _columns(units: Sequence[str], left: float, top: float) -> list[str]:
    """The source tokens above their columns."""
    texts = []
    for column, unit in enumerate(units):
        x = left + _CELL * (column + 0.5)
        if _vertical(units):
            where = f"transform='translate({x + 4:.1f} {top - 6:.1f}) rotate(-90)'"
        else:
            where = f"x='{x:.1f}' y='{top - 6:.1f}' text-anchor='middle'"
        texts.append(f"<text {where}>{_shown(unit)}</text>")
    return texts


def _rows(each: Attended, left: float, top: float) -> list[str]:
    """The target tokens, each to the left of the squares of its weights, on a pale grid."""
    right, bottom = left + _CELL * len(each.source), top + _CELL * len(each.target)
    lines = [f"M{left + _CELL * column:.1f} {top:.1f}V{bottom:.1f}" for column in range(len(each.source) + 1)]
    lines += [f"M{left:.1f} {top + _CELL * row:.1f}H{right:.1f}" for row in range(len(each.target) + 1)]
    parts = [f"<path d='{''.join(lines)}' stroke='#e2e6ea' fill='none'/>"]
    for row, (unit, weights) in enumerate(zip(each.target, each.weights.tolist(), strict=True)):
        y = top + _CELL * row
        parts.append(f"<text x='{left - 6:.1f}' y='{y + 0.7 * _CELL:.1f}' text-anchor='end'>{_shown(unit)}</text>")
        for column, (source, weight) in enumerate(zip(each.source, weights, strict=True)):
            if weight >= _FAINTEST:
                parts.append(
                    f"<rect x='{left + _CELL * column + 1:.1f}' y='{y + 1:.1f}' width='{_CELL - 2}' "
                    f"height='{_CELL - 2}' fill='#1f4e79' fill-opacity='{weight:.3f}'>"
                    f"<title>{_shown(unit)}, {_shown(source)}: {weight:.3f}</title></rect>"
                )
    return parts


def _vertical(units: Sequence[str]) -> bool:
    """Whether a token is too wide for its column, so that all are written vertically."""
    return any(len(unit) > 1 for unit in units)


def _shown(unit: str) -> str:
    return escape({"": "(end)", " ": "\N{OPEN BOX}"}.get(unit, unit), quote=True)


def _width(units: Sequence[str]) -> float:
    """The approximate width of the widest token."""
    return _LETTER * max(sum(1 + (east_asian_width(each) in "WF") for each in unit or "(end)") for unit in units)
