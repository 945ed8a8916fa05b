"""What a notebook shows of cells and layers. They stand below the pictures, which are handed in from above."""

from collections.abc import Callable

formatter: Callable[[object], str] | None = None
"""From a cell or a layer to HTML; `import glassgate` sets it."""


class Shown:
    """Something that a notebook shows by its picture."""

    def _repr_html_(self) -> str | None:
        return None if formatter is None else formatter(self)
