"""Runs several functions in parallel processes, with their progress bars in one terminal."""

import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from rich import progress as rich

from glassgate.cli.progress import Bar
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.training.signals import end_with_parent

Result = TypeVar("Result")


def run_parallel(jobs: Mapping[str, Callable[[Progress], Result]], display: rich.Progress) -> dict[str, Result]:
    """Run all jobs in parallel and return their results.

    Args:
        jobs: the functions to run, which must be picklable, by the titles of their progress bars
        display: the terminal display of the bars, from `glassgate.cli.progress.display()`

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, when each job has saved its state
    """
    context = get_context("spawn")
    events: SimpleQueue[tuple[str, str, tuple[Any, ...]]] = context.SimpleQueue()
    stop = context.Event()
    bars = {name: Bar(display, name) for name in jobs}
    interruption: Interrupted | None = None
    with ProcessPoolExecutor(len(jobs), context, _initialise_worker, (events, stop)) as pool:
        futures = {name: pool.submit(_run_job, name, job) for name, job in jobs.items()}
        while not (all(future.done() for future in futures.values()) and events.empty()):
            try:
                if events.empty():
                    time.sleep(0.05)
                else:
                    name, callback, arguments = events.get()
                    getattr(bars[name], callback)(*arguments)
            except KeyboardInterrupt as error:
                interruption = Interrupted(*error.args)
                stop.set()
        try:
            return {name: future.result() for name, future in futures.items()}
        except Interrupted as error:
            raise interruption or error from None


class _Relay(Progress):
    """Forwards callbacks to the parent process, and interrupts its own process when `stop` is set."""

    def __init__(self, name: str, events: "SimpleQueue[tuple[str, str, tuple[Any, ...]]]", stop: Event):
        self.name = name
        self.events = events
        self.stop = stop

        for callback in ("reading", "converting", "note", "begin", "change", "step", "epoch", "end"):
            setattr(self, callback, partial(self._send, callback))

    def _send(self, callback: str, *arguments: Any) -> None:
        self.events.put((self.name, callback, arguments))
        if callback == "step" and self.stop.is_set():
            signal.raise_signal(signal.SIGINT)


_connection: tuple["SimpleQueue[tuple[str, str, tuple[Any, ...]]]", Event]


def _initialise_worker(events: "SimpleQueue[tuple[str, str, tuple[Any, ...]]]", stop: Event) -> None:
    """Initialise a worker process, which ignores Ctrl-C and ends if the parent is killed."""
    global _connection
    _connection = events, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _run_job(name: str, job: Callable[[Progress], Result]) -> Result:
    return job(_Relay(name, *_connection))
