"""The picture of an attention: a row for each unit of the translation, a column for each of the source, as SVG."""

from collections.abc import Sequence
from html import escape
from unicodedata import east_asian_width

from glassgate.tasks.translation.task import Attended

_CELL = 24
_LETTER = 8.0
_FONT = "font-family='DejaVu Sans, Noto Sans CJK SC, sans-serif' font-size='13'"


def attention_picture(attended: Attended) -> str:
    """Draw weights as squares, the darker the more; the number stands in each that a reader points at.

    Returns:
        an SVG document
    """
    source, target = ([_shown(unit) for unit in side] for side in (attended.source, attended.target))
    left, top = _width(target) + 14, _width(source) + 14
    width, height = left + _CELL * len(source) + 10, top + _CELL * len(target) + 10
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' "
        f"width='{width:.0f}' height='{height:.0f}' {_FONT}>",
        "<rect width='100%' height='100%' fill='white'/>",
    ]
    for column, unit in enumerate(source):
        x, y = left + _CELL * (column + 0.5) + 5, top - 8
        parts.append(f"<text transform='translate({x:.1f} {y:.1f}) rotate(-90)'>{unit}</text>")
    for row, (unit, weights) in enumerate(zip(target, attended.weights.tolist(), strict=True)):
        y = top + _CELL * row
        parts.append(f"<text x='{left - 8:.1f}' y='{y + 0.7 * _CELL:.1f}' text-anchor='end'>{unit}</text>")
        for column, weight in enumerate(weights):
            parts.append(
                f"<rect x='{left + _CELL * column:.1f}' y='{y:.1f}' width='{_CELL - 1}' height='{_CELL - 1}' "
                f"fill='#1f4e79' fill-opacity='{weight:.3f}' stroke='#e3e6ea'>"
                f"<title>{unit} looks at {source[column]}: {weight:.3f}</title></rect>"
            )
    return "\n".join([*parts, "</svg>\n"])


def _shown(unit: str) -> str:
    return escape({"": "(end)", " ": "\N{OPEN BOX}"}.get(unit, unit), quote=True)


def _width(units: Sequence[str]) -> float:
    """About how wide the widest unit is."""
    return max(sum(_LETTER * (1 + (east_asian_width(c) in "WF")) for c in unit) for unit in units)
