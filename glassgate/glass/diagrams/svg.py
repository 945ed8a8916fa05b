"""SVG shapes, wires with round corners, labels, and the colours for light and dark pages."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import hypot
from pathlib import Path

from glassgate.storage import write_file

STYLE = """
.gg-diagram { max-width: 100%; height: auto;
  --gg-ink: #1f2328; --gg-muted: #59636e; --gg-ground: #f7f9fb; --gg-edge: #d0d7de; --gg-wire: #57606a;
  --gg-gate: #fff0c2; --gg-gate-edge: #bf8700; --gg-op: #ffe3ea; --gg-op-edge: #c4506f;
  --gg-function: #ece4fb; --gg-function-edge: #8250df; --gg-state: #0a69c4; --gg-input: #1a7f37; --gg-paper: #ffffff; }
@media (prefers-color-scheme: dark) { .gg-diagram { --gg-ink: #e6edf3; --gg-muted: #9198a1; --gg-ground: #161b22;
  --gg-edge: #3d444d; --gg-wire: #9aa4af; --gg-gate: #42360f; --gg-gate-edge: #d9a520; --gg-op: #4a1d2a;
  --gg-op-edge: #e58aa3; --gg-function: #2d2150; --gg-function-edge: #b493f5; --gg-state: #58a6ff;
  --gg-input: #4ac26b; --gg-paper: #0d1117; } }
.gg-diagram text { font: 14px system-ui, 'DejaVu Sans', sans-serif; fill: var(--gg-ink); text-anchor: middle; }
.gg-diagram .frame { fill: var(--gg-ground); stroke: var(--gg-edge); }
.gg-diagram .gate rect, .gg-diagram .product rect { fill: var(--gg-gate); stroke: var(--gg-gate-edge); }
.gg-diagram .operation rect, .gg-diagram .parameter rect { fill: var(--gg-op); stroke: var(--gg-op-edge); }
.gg-diagram .function rect { fill: var(--gg-function); stroke: var(--gg-function-edge); }
.gg-diagram .name { font-style: italic; font-weight: 600; }
.gg-diagram .small { font-size: 12px; fill: var(--gg-muted); }
.gg-diagram .sub { font-size: 10px; font-style: normal; font-weight: 400; }
.gg-diagram .wire path { fill: none; stroke: var(--gg-wire); stroke-width: 1.8; stroke-linejoin: round; }
.gg-diagram .wire .head, .gg-diagram .wire circle { fill: var(--gg-wire); stroke: none; }
.gg-diagram .wire.both path { stroke-width: 2.2; }
.gg-diagram .wire.state path { stroke: var(--gg-state); stroke-width: 2.2; }
.gg-diagram .wire.state .head, .gg-diagram .wire.state circle { fill: var(--gg-state); stroke: none; }
.gg-diagram .wire.input path { stroke: var(--gg-input); stroke-width: 2.2; }
.gg-diagram .wire.input .head, .gg-diagram .wire.input circle { fill: var(--gg-input); stroke: none; }
.gg-diagram .state-name { fill: var(--gg-state); } .gg-diagram .input-name { fill: var(--gg-input); }
.gg-diagram .value { font: 10px ui-monospace, 'DejaVu Sans Mono', monospace; fill: var(--gg-muted); }
.gg-diagram .value.beside, .gg-diagram .at-start { text-anchor: start; } .gg-diagram .at-end { text-anchor: end; }
""".strip()
"""The style of a diagram. A page may set the variables. `Diagram` documents the classes."""


class Picture:
    """A picture as SVG. A notebook shows it, and `str` returns its text."""

    def __init__(self, svg: str) -> None:
        self._svg = svg

    def __str__(self) -> str:
        return self._svg

    def _repr_svg_(self) -> str:
        return self._svg

    def save(self, path: str | Path) -> None:
        """Write the picture to a file.

        Raises:
            ValueError: the path has the suffix of another format.
        """
        if Path(path).suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"):
            raise ValueError(f"save: the picture is SVG text, so the path must end in .svg, got {str(path)!r}")
        write_file(path, self._svg.encode())


class Diagram(Picture):
    """The diagram of a cell or a layer.

    Each wire is a `g` of class `wire`, and each item a `g` of class `gate`, `product`, `operation` or `function`. The
    `data-name` of a `g` is the name of its value. The first wire of a value has an empty `text` of class `value`, which
    a page can fill. The `title` of an item is its equation, which browsers show under the pointer.
    """

    def __repr__(self) -> str:
        return f"Diagram({len(self._svg)} characters of SVG)"


Coordinates = tuple[float, float]
"""The coordinates of a point in pixels."""


def number(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, classes: str = "") -> str:
    """A line of text, centred at a point."""
    kind = f' class="{classes}"' if classes else ""
    return f'<text x="{number(x)}" y="{number(y)}"{kind}>{content}</text>'


def state_name(name: str, time: str) -> str:
    """A name with its time as a subscript, for example h with t−1."""
    return f'{escape(name)}<tspan class="sub" dy="3">{time}</tspan>'


def box(x: float, y: float, width: float, height: float, radius: float) -> str:
    """A rounded rectangle, centred at a point."""
    left, top = number(x - width / 2), number(y - height / 2)
    return f'<rect x="{left}" y="{top}" width="{number(width)}" height="{number(height)}" rx="{number(radius)}"/>'


def wire(points: Sequence[Coordinates], radius: float = 9.0) -> str:
    """The path of a wire with round corners."""
    points = corners(points)
    parts = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for k in range(1, len(points) - 1):
        (x, y), before, after = points[k], points[k - 1], points[k + 1]
        r = min(radius, _distance(before, points[k]) / 2, _distance(points[k], after) / 2)
        a, b = _toward(points[k], before, r), _toward(points[k], after, r)
        parts.append(f"L{number(a[0])} {number(a[1])}Q{number(x)} {number(y)} {number(b[0])} {number(b[1])}")
    parts.append(f"L{number(points[-1][0])} {number(points[-1][1])}")
    return f'<path d="{"".join(parts)}"/>'


def head(points: Sequence[Coordinates], size: float = 7.0) -> str:
    """An arrowhead at the end of a wire."""
    (x, y), before = points[-1], next(p for p in reversed(points) if p != points[-1])
    bx, by = _toward((x, y), before, size)
    dx, dy = (by - y) * 0.5, (x - bx) * 0.5
    ends = " ".join(f"L{number(bx + s * dx)} {number(by + s * dy)}" for s in (1, -1))
    return f'<path class="head" d="M{number(x)} {number(y)}{ends}Z"/>'


def dot(x: float, y: float) -> str:
    """The dot where a wire branches off another."""
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="3"/>'


def value_beside(points: Sequence[Coordinates]) -> str:
    """An empty text for the value of a wire, next to its longest straight segment."""
    points = corners(points)
    (a, b), (c, d) = max(pairwise(points), key=lambda segment: _distance(*segment))
    if b == d:
        return f'<text class="value" x="{number((a + c) / 2)}" y="{number(b - 5)}"/>'
    return f'<text class="value beside" x="{number(a + 5)}" y="{number((b + d) / 2)}"/>'


def corners(points: Sequence[Coordinates]) -> list[Coordinates]:
    """The ends and corners of a path, without other points."""
    kept: list[Coordinates] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        kept.append(point)
    return kept


def document(width: float, height: float, title: str, description: str, body: Sequence[str]) -> str:
    """The complete SVG document."""
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="gg-diagram" role="img" {size} '
            f'aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{STYLE}</style>",
            *body,
            "</svg>",
            "",
        ]
    )


def _distance(a: Coordinates, b: Coordinates) -> float:
    return hypot(a[0] - b[0], a[1] - b[1])


def _toward(a: Coordinates, b: Coordinates, length: float) -> Coordinates:
    fraction = length / (_distance(a, b) or 1.0)
    return a[0] + (b[0] - a[0]) * fraction, a[1] + (b[1] - a[1]) * fraction
