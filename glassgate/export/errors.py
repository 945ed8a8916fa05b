"""The exception of exports and imports, and the import of optional packages."""

from importlib import import_module
from types import ModuleType


class ExportError(ValueError):
    """A module cannot be exported, or a file cannot be imported; the message states the reason and the remedy."""


def import_optional(name: str, operation: str) -> ModuleType:
    """Import a package of the extra `export`.

    Args:
        name: the name of the package or module.
        operation: the first word of the error message.

    Raises:
        ImportError: the package is not installed. The message has the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{operation}: the package {package!r} is missing; install it with: pip install 'glassgate[export]'"
        ) from error
