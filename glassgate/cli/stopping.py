"""Ctrl-C and SIGTERM end a command with a message and the usual exit status, even while libraries are imported."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any

_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def exit_status(error: BaseException) -> int:
    """Return the exit status of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _number(error)


def signal_name(error: BaseException) -> str:
    """Return "interrupted" or "terminated"."""
    return _NAMES[signal.Signals(_number(error))]


@contextmanager
def stoppable(name: str) -> Iterator[None]:
    """Convert SIGINT and SIGTERM to a KeyboardInterrupt that contains the signal number.

    During the import of a library, the process exits immediately, because the library may convert the exception to
    another one, or stay partly imported. No file is open yet.

    Args:
        name: the name of the command
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    importing_before = _importing()

    def stop(number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt(number)
        if _importing() - importing_before:
            with suppress(OSError):
                os.write(
                    2, f"glassgate {name}: {signal_name(error)}\n".encode()
                )  # `print` fails if the signal interrupts it
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


def _importing() -> set[str]:
    """The modules whose code is running for the first time, as the import system notes in their specs.

    A handler must not walk the stack: in Python 3.11 that ended the process while torch traced a model.
    """
    modules = [(name, vars(each)) for name, each in sys.modules.copy().items() if isinstance(each, ModuleType)]
    return {name for name, values in modules if getattr(values.get("__spec__"), "_initializing", False)}
