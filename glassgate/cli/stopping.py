"""Ends a command on Ctrl-C or SIGTERM with a message and the usual exit status, even during imports of libraries."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any

from glassgate.storage import remove_unfinished

_ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def exit_status(error: BaseException) -> int:
    """Return the exit status of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _number(error)


def ending(error: BaseException) -> str:
    """Return "interrupted" or "terminated"."""
    return _ENDINGS[signal.Signals(_number(error))]


@contextmanager
def stoppable(name: str) -> Iterator[None]:
    """Convert SIGINT and SIGTERM to a KeyboardInterrupt with the number of the signal.

    During the import of a library, the process exits immediately. Otherwise the library might convert the exception to
    another one, or stay partly imported. Unfinished files are removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    importing_before = _modules_in_import()

    def stop(number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt(number)
        if _modules_in_import() - importing_before:
            with suppress(OSError):
                # `print` fails if the signal interrupts another `print`.
                os.write(2, f"glassgate {name}: {ending(error)}\n".encode())
            remove_unfinished()
            os._exit(exit_status(error))
        raise error

    default: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    replaced = [number for number, handler in default.items() if signal.getsignal(number) is handler]
    for number in replaced:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, default[number])


def _number(error: BaseException) -> int:
    return int(error.args[0]) if error.args else int(signal.SIGINT)


def _modules_in_import() -> set[str]:
    """The names of the modules whose specs mark their import as running.

    Do not walk the stack in the signal handler: in Python 3.11, this ended the process while torch traced a model.
    """
    modules = [(name, vars(m)) for name, m in sys.modules.copy().items() if isinstance(m, ModuleType)]
    return {name for name, values in modules if getattr(values.get("__spec__"), "_initializing", False)}
