"""Small plots as SVG: axes, lines, bands and dots. The style sheet of the page defines their colours."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple
from unicodedata import east_asian_width

LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 34
_ROW = 15  # the height of a row of a legend


def number(value: float) -> str:
    """A number in a short form for axes.

    Example:
        >>> number(0.5), number(20.0), number(0.00001), number(12345.0)
        ('0.5', '20', '1e-5', '12,345')
    """
    if value == 0:
        return "0"
    if value < 0:
        return f"\N{MINUS SIGN}{number(-value)}"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.10g}" if abs(value) >= 1000 else f"{value:.6g}"


def round_numbers(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` evenly spaced round numbers in a range.

    Example:
        >>> round_numbers(0, 1), round_numbers(0, 230)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 50.0, 100.0, 150.0, 200.0])
    """
    rough = (high - low) / count
    if rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


class Axis(NamedTuple):
    """A scale from values to coordinates.

    Attributes:
        low, high: the values at the ends
        label: the label below or next to the axis
        log: whether the scale is logarithmic
        ticks: the marked values and their labels; chosen automatically if empty
        whole: whether only whole numbers are marked, such as steps
    """

    low: float
    high: float
    label: str = ""
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    whole: bool = False

    def position(self, value: float) -> float:
        """The position of a value along the axis, from 0 to 1. Values outside of the axis are clipped."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))

    def marks(self) -> Sequence[tuple[float, str]]:
        """The marked values and their labels."""
        if self.ticks:
            return self.ticks
        if not self.log:
            values = round_numbers(self.low, self.high)
            return [(value, number(value)) for value in values if not self.whole or value == int(value)]
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        stride = max(1, math.ceil((last - first + 1) / 6))
        return [(10.0**k, number(10.0**k)) for k in range(first, last + 1, stride)]


class Plot:
    """A plot. Elements are painted in the order in which they are added.

    Args:
        x, y: the axes
        width, height: the size in pixels
        label: the description of the plot for screen readers, a sentence
        time: for the time cursor, the first step and the number of steps on the x axis; None without a cursor
        legend: the CSS class and the name of each line, above the plot. The plot grows if they need several rows
    """

    def __init__(
        self,
        x: Axis,
        y: Axis,
        width: int,
        height: int,
        label: str,
        time: tuple[int, int] | None = None,
        legend: Sequence[tuple[str, str]] = (),
    ):
        self.x, self.y, self.width, self.label, self.time = x, y, width, label, time
        self.parts: list[str] = []
        more = (self._legend(legend) - 1) * _ROW
        self.top, self.height = TOP + more, height + more

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The coordinates of a point."""
        right, down = self.width - LEFT - RIGHT, self.height - self.top - BOTTOM
        return LEFT + right * self.x.position(x), self.top + down * (1 - self.y.position(y))

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str) -> None:
        """Add a line through points, interrupted at NaN."""
        commands, pen = [], "M"
        for x, y in zip(xs, ys, strict=True):
            if not math.isfinite(y):
                pen = "M"
                continue
            commands.append(f"{pen}{_pair(self.at(x, y))}")
            pen = "L"
        self.parts.append(f'<path class="line {kind}" d="{"".join(commands)}"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        """Fill the area between two lines."""
        upper = [_pair(self.at(x, y)) for x, y in zip(xs, high, strict=True)]
        lower = [_pair(self.at(x, y)) for x, y in zip(xs, low, strict=True)]
        self.parts.append(f'<path class="band {kind}" d="M{"L".join(upper + lower[::-1])}Z"/>')

    def dots(
        self, xs: Sequence[float], ys: Sequence[float], kind: str, radius: float = 3, units: Sequence[int] = ()
    ) -> None:
        """Add a dot for each point.

        Args:
            xs, ys: the coordinates
            kind: the CSS class
            radius: the radius in pixels
            units: the unit of each dot. The page highlights the dot of the selected unit
        """
        for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
            cx, cy = self.at(x, y)
            named = f' data-u="{units[k]}"' if units else ""
            self.parts.append(f'<circle class="dot {kind}" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:g}"{named}/>')

    def bar(self, x1: float, x2: float, y: float, kind: str) -> None:
        """Add a bar from zero to a value."""
        (left, top), (right, bottom) = self.at(x1, max(y, 0)), self.at(x2, min(y, 0))
        width = max(right - left - 0.5, 0.5)
        self.parts.append(
            f'<rect class="box {kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}"/>'
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str = "guide") -> None:
        """Add a straight line between two points."""
        (a, b), (c, d) = self.at(x1, y1), self.at(x2, y2)
        self.parts.append(f'<path class="{kind}" d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "note", anchor: str = "start", up: float = 0) -> None:
        """Add text at a point."""
        a, b = self.at(x, y)
        self.parts.append(
            f'<text class="{kind}" x="{a:.1f}" y="{b - up:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def _legend(self, entries: Sequence[tuple[str, str]]) -> int:
        """Add the legend, from the right, and return its number of rows. The last row is next to the axis label."""
        rows: list[list[tuple[str, str]]] = [[]]
        left, first = float(self.width - RIGHT), LEFT + 1.13 * _width(self.y.label)
        for entry in reversed(entries):
            width = _width(entry[1]) + 30
            if rows[-1] and left - width < first:
                rows.append([])
                left, first = float(self.width - RIGHT), 4.0
            left -= width
            rows[-1].append(entry)
        for row, row_entries in enumerate(reversed(rows)):
            x, y = float(self.width - RIGHT), TOP - 3 + row * _ROW
            for kind, words in row_entries:
                x -= _width(words)
                symbol = f'<path class="line {kind}" d="M{x - 18:.1f} {y - 4}h14"/>'
                if kind.startswith("dot "):
                    symbol = f'<circle class="{kind}" cx="{x - 11:.1f}" cy="{y - 4}" r="4"/>'
                self.parts.append(f'{symbol}<text class="tick" x="{x:.1f}" y="{y}">{escape(words)}</text>')
                x -= 30
        return len(rows)

    def svg(self) -> str:
        """The SVG of the plot."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        attributes = f'{size} role="img" aria-label="{escape(self.label)}"{self._time()}'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{self._axes()}{"".join(self.parts)}</svg>'

    def _time(self) -> str:
        if self.time is None:
            return ""
        (x1, y1), (x2, y2) = self.at(self.x.low, self.y.high), self.at(self.time[1], self.y.low)
        return f' data-time="{self.time[0]} {self.time[1]} {x1:.1f} {x2:.1f} {y1:.1f} {y2:.1f}"'

    def _axes(self) -> str:
        left, bottom = self.at(self.x.low, self.y.low)
        right, top = self.at(self.x.high, self.y.high)
        parts = []
        for value, words in self.y.marks():
            y = self.at(self.x.low, value)[1]
            parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{left - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{escape(words)}</text>'
            )
        for value, words in self.x.marks():
            x = self.at(value, self.y.low)[0]
            parts.append(f'<path class="axis" d="M{x:.1f} {bottom:.1f}v4"/>')
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{escape(words)}</text>'
            )
        parts.append(f'<path class="axis" d="M{left:.1f} {bottom:.1f}H{right:.1f}"/>')
        parts.append(
            f'<text class="name" x="{right:.1f}" y="{self.height - 3}" text-anchor="end">{escape(self.x.label)}</text>'
        )
        if self.y.label:
            parts.append(f'<text class="name" x="{left:.1f}" y="{top - 3:.1f}">{escape(self.y.label)}</text>')
        return "".join(parts)


def _width(words: str) -> float:
    """The approximate width of a label in pixels. Chinese characters are twice as wide as Latin letters."""
    return sum(11.0 if east_asian_width(each) in "WF" else 6.2 for each in words)


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"
