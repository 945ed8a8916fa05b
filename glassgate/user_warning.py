"""Warnings that point at the user's code."""

import sys
import warnings

_INTERNAL = ("glassgate", "torch")
"""Warnings do not point at frames of these packages. `nn.Module.__call__` is between the user and a layer."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line of the innermost caller outside of this package and torch."""
    frame, stacklevel = sys._getframe(1), 2
    while frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL and frame.f_back is not None:
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)
