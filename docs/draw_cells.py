"""`python docs/draw_cells.py` draws every built-in cell as docs/cells/NAME.svg for cells.md."""

from pathlib import Path

import glassgate as gg

FOLDER = Path(__file__).with_name("cells")


def pictures() -> dict[str, str]:
    """Return the SVG of each cell by name."""
    return {name: str(gg.draw(getattr(gg.cells, name)())) for name in gg.cells.__all__}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (FOLDER / f"{name}.svg").write_text(picture, "utf-8")
