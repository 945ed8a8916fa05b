"""Signals that end a training: the first Ctrl-C or SIGTERM between two steps, the next at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from types import FrameType

from glassgate.tasks.progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a training is to end.

    Attributes:
        received: the signal's number; 0 while there was none
    """

    def __init__(self, progress: Progress):
        self.progress = progress
        self.received = 0
        self._before: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for both signals; in a thread that cannot, do nothing."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                self._before[number] = signal.SIG_DFL if before is None else before
                signal.signal(number, self._receive)
        try:
            yield
        finally:
            self._leave()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.progress.stopping()
        self._leave()

    def _leave(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Let this process, the child of another, end when that one does, even by kill -9."""
    if parent := parent_process():
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # saved files are complete at every moment
