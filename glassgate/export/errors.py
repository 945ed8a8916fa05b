"""The errors of exports and imports, and packages that are loaded on first use."""

from importlib import import_module
from types import ModuleType


class ExportError(ValueError):
    """A module cannot be exported, or a file cannot be imported; the message states the reason and the remedy."""


def optional(name: str, operation: str) -> ModuleType:
    """Import a package of the extra `export`.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{operation}: the package {package!r} is missing; install it with: pip install 'glassgate[export]'"
        ) from error
