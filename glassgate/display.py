"""Cells and layers in a notebook. The drawing packages import this module, so the formatter is set from outside."""

from collections.abc import Callable

formatter: Callable[[object], str] | None = None
"""Converts a cell or a layer to HTML; `import glassgate` sets it."""


class Drawable:
    """An object that notebooks display as a diagram."""

    def _repr_html_(self) -> str | None:
        return None if formatter is None else formatter(self)
