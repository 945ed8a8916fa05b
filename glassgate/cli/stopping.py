"""Ctrl-C and SIGTERM end a command with a sentence and the status that shells expect, also while libraries load."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_HOW = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_IMPORT = "<frozen importlib._bootstrap>"


def status(error: BaseException) -> int:
    """Return the exit status of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _number(error)


def how(error: BaseException) -> str:
    """Return "interrupted" or "terminated"."""
    return _HOW[signal.Signals(_number(error))]


@contextmanager
def stoppable(name: str) -> Iterator[None]:
    """Let each of the two signals raise a KeyboardInterrupt that holds its number.

    While a library is being imported the process ends at once: libraries turn the exception into others, or leave
    themselves half loaded, and nothing is open yet that would have to be closed.

    Args:
        name: the name of the command
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt(number)
        if _importing(frame):
            print(f"glassgate {name}: {how(error)}", file=sys.stderr, flush=True)
            os._exit(status(error))
        raise error

    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def _number(error: BaseException) -> int:
    return int(error.args[0]) if error.args else int(signal.SIGINT)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False
