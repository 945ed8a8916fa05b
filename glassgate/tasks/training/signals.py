"""Signals that stop training: the first Ctrl-C or SIGTERM stops it after the current step, the second immediately."""

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


class StopRequest:
    """A request to stop the training, made by a signal.

    Attributes:
        received: the number of the signal; 0 if none was received
    """

    def __init__(self, progress: Progress):
        self.progress = progress
        self.received = 0
        self._former_handlers: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Handle both signals inside the `with`, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                self._former_handlers[number] = signal.SIG_DFL if handler is None else handler
                signal.signal(number, self._receive)
        try:
            yield
        finally:
            self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.progress.stopping()
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Terminate this process when its parent process ends, even if the parent was killed with SIGKILL."""

    def end_after(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)  # safe: files are replaced atomically

    if parent := parent_process():
        threading.Thread(target=end_after, args=(parent.sentinel,), daemon=True).start()
