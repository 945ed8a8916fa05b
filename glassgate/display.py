"""The display of cells and layers in notebooks.

This module cannot import the package that draws diagrams, because that package imports cells. `import glassgate` sets
`formatter` instead.
"""

from collections.abc import Callable

formatter: Callable[[object], str] | None = None
"""Converts a cell or a layer to HTML."""


class Drawable:
    """An object that notebooks display as a diagram."""

    def _repr_html_(self) -> str | None:
        return None if formatter is None else formatter(self)
