"""`python docs/draw_student.py` writes the pictures and the interactive page of the student page into docs/student.

The code of the page writes diagrams and heat maps. This script runs that code, and draws the matrices itself.
"""

import contextlib
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import glassgate as gg

DOCS = Path(__file__).parent
FOLDER = DOCS / "student"
PAGE = DOCS / "student.md"

_CELL = 18  # the width and height of a weight in pixels
_COLOURS = {"i": "#2f86cc", "f": "#0a9e76", "g": "#d9620f", "o": "#cc79a7", "": "#808890"}
_INK = "#808890"  # readable on white and on black


class Matrix:
    """A weight matrix to draw. Its rows are divided into blocks of gates, and its columns into groups.

    Args:
        name: the title, with the shape
        columns: the number of columns and the label of each group
        rows: the number of rows of each block
        blocks: the gates of the blocks, from top to bottom
    """

    def __init__(self, name: str, columns: Sequence[tuple[int, str]], rows: int, blocks: Sequence[str]):
        self.name, self.columns, self.rows, self.blocks = name, columns, rows, blocks

    @property
    def width(self) -> int:
        return _CELL * sum(count for count, _ in self.columns)

    @property
    def height(self) -> int:
        return _CELL * self.rows * len(self.blocks)

    def draw(self, left: int, top: int) -> str:
        """Return the matrix as SVG."""
        parts = [_text(left + self.width / 2, top - 30, self.name, "middle", bold=True)]
        x = left
        for count, label in self.columns:
            middle = x + count * _CELL / 2
            parts.append(_text(middle, top - 10, label, "middle"))
            x += count * _CELL
        for k, gate in enumerate(self.blocks):
            y = top + k * self.rows * _CELL
            for row in range(self.rows):
                x = left
                for group, (count, _) in enumerate(self.columns):
                    for _ in range(count):
                        parts.append(_square(x, y + row * _CELL, _COLOURS[gate], 0.75 - 0.35 * group))
                        x += _CELL
            if gate:
                parts.append(_text(left - 10, y + self.rows * _CELL / 2 + 5, gate, "end", bold=True))
            size = f'x="{left}" y="{y}" width="{self.width}" height="{self.rows * _CELL}"'
            parts.append(f'<rect {size} fill="none" stroke="{_INK}" stroke-width="1.5"/>')
        return "".join(parts)


def _square(x: float, y: float, colour: str, opacity: float) -> str:
    size = f'x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}"'
    return f'<rect {size} fill="{colour}" fill-opacity="{opacity:.2f}"/>'


def _text(x: float, y: float, text: str, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{weight}>{text}</text>'


def draw_matrices(label: str, *matrices: Matrix, notes: Sequence[str] = ()) -> str:
    """Draw matrices in a row as SVG, with lines of text below."""
    left, gap, top = 60, 110 if len(matrices) < 5 else 60, 60
    parts, x = [], left
    for matrix in matrices:
        parts.append(matrix.draw(x, top))
        x += matrix.width + gap
    bottom = top + max(matrix.height for matrix in matrices)
    parts += [_text(10, bottom + 28 + 18 * k, note, "start") for k, note in enumerate(notes)]
    width, height = max(x - gap + 70, 7.2 * max(map(len, [*notes, ""]))), bottom + 16 + 18 * (len(notes) + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}" '
        f'role="img" aria-label="{label}" font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">'
        f"{''.join(parts)}</svg>\n"
    )


def matrices() -> dict[str, str]:
    """Return the drawings of weight matrices by file name, with 3 inputs and 3, 4 or 6 units."""
    x, h = (3, "x"), (4, "h")
    return {
        "gate.svg": draw_matrices(
            "The matrix of the forget gate: 4 rows, 3 columns of x and 4 columns of h",
            Matrix("forget_gate.linear.weight (4, 7)", [x, h], 4, ["f"]),
            notes=["a row per unit; the columns of x are W_f, those of h are U_f"],
        ),
        "fused.svg": draw_matrices(
            "weight_ih and weight_hh: blocks of 4 rows for the gates i, f, g and o",
            Matrix("weight_ih (16, 3)", [x], 4, "ifgo"),
            Matrix("weight_hh (16, 4)", [h], 4, "ifgo"),
            Matrix("bias_ih (16)", [(1, "")], 4, "ifgo"),
            notes=["rows 0-3: input gate, 4-7: forget gate,", "8-11: candidate, 12-15: output gate; a row per unit"],
        ),
        "projected.svg": draw_matrices(
            "weight_ih, weight_hh and weight_hr of an LSTM with 6 units and a projection to 2",
            Matrix("weight_ih (24, 3)", [x], 6, "ifgo"),
            Matrix("weight_hh (24, 2)", [(2, "h")], 6, "ifgo"),
            Matrix("weight_hr (2, 6)", [(6, "o tanh(c)")], 2, [""]),
            notes=["weight_hh reads the projected h: 2 columns, as many as weight_hr has rows"],
        ),
        "stacked.svg": draw_matrices(
            "Four matrices of a tutorial, each transposed, stacked into weight_ih",
            *(Matrix(f"W_x{name}", [(4, "")], 3, [gate]) for name, gate in zip("ifoc", "ifog", strict=True)),
            Matrix("weight_ih (16, 3)", [x], 4, "ifgo"),
            notes=["each (3, 4) matrix is transposed to (4, 3); c is g, and changes places with o"],
        ),
    }


def run_page(folder: Path) -> dict[str, str]:
    """Run the code of the page in a folder. Returns the SVG files and the interactive page that it writes, by name."""
    with contextlib.chdir(folder):
        names: dict[str, object] = {"__name__": "__main__"}
        for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
            with contextlib.redirect_stdout(sys.stderr):
                exec(compile(code, PAGE.name, "exec"), names)
    return {path.name: path.read_text("utf-8") for path in [*folder.glob("*.svg"), folder / "cells.html"]}


def files(folder: Path) -> dict[str, str]:
    """Return the files of docs/student by name, except the picture of the report. The folder is for temporary files."""
    chinese = gg.draw(gg.cells.RNN()).live(beside=[gg.cells.GRU(), gg.cells.LSTM()], language="zh")
    return {**run_page(folder), **matrices(), "cells.zh-CN.html": str(chinese)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name, text in files(Path(temporary)).items():
            (FOLDER / name).write_text(text, "utf-8")
