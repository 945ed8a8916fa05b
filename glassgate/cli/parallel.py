"""Runs several functions in parallel processes, with their progress bars in one terminal."""

import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from rich import progress as rich

from glassgate.cli.progress import Bar
from glassgate.system import SYSTEM
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted, Progress
from glassgate.tasks.training.signals import StopRequest, end_with_parent

Result = TypeVar("Result")


def run_parallel(jobs: Mapping[str, Callable[[Progress], Result]], display: rich.Progress) -> dict[str, Result]:
    """Run all jobs in parallel and return their results.

    Each process has its own connection. A queue that processes share has a lock, and a process that is killed while it
    holds the lock would block the others forever. After Ctrl-C or SIGTERM, all jobs save their states before
    `Interrupted` is raised.

    Args:
        jobs: the functions to run, which must be picklable, by the titles of their progress bars
    """
    context = get_context("spawn")
    bars = {name: Bar(display, name) for name in jobs}
    processes = {}
    running: dict[Any, str] = {}  # by the connection, whose class depends on the system
    results: dict[str, Any] = {}
    request = StopRequest(Progress())
    try:
        with request.listen():
            for name, job in jobs.items():
                connection, remote = context.Pipe()
                processes[name] = context.Process(target=_run_job, args=(job, remote))
                processes[name].start()
                remote.close()
                running[connection] = name
            waiting = list(running)  # the connections of the jobs that have not been asked to stop
            while running:
                ready = wait(list(running), timeout=0.05)
                for connection in [each for each in running if each in ready]:
                    try:
                        callback, arguments = connection.recv()
                    except (EOFError, ConnectionError):
                        del running[connection]
                        continue
                    if callback == "result":
                        (results[running[connection]],) = arguments
                    else:
                        getattr(bars[running[connection]], callback)(*arguments)
                while request.received and waiting:
                    with suppress(OSError):  # a job that has ended
                        waiting.pop().send(None)
    finally:
        for process in processes.values():
            process.terminate()  # after an error or a second signal
            process.join()
    errors = [result for result in results.values() if isinstance(result, Exception)]
    for error in errors:
        if not isinstance(error, Interrupted):
            raise error
    if request.received or errors:
        raise Interrupted(request.received) if request.received else errors[0]
    for name, process in processes.items():
        if name not in results:
            raise UserError(f"{name}: the process was ended by {SYSTEM.describe_end(-(process.exitcode or 0))}")
    return results


class _Relay(Progress):
    """Forwards callbacks to the parent process, and interrupts its own process when the parent asks it to stop."""

    def __init__(self, connection: Connection):
        self.connection = connection
        for callback in ("reading", "converting", "note", "begin", "change", "step", "epoch", "end"):
            setattr(self, callback, partial(self._send, callback))

    def _send(self, callback: str, *arguments: Any) -> None:
        self.connection.send((callback, arguments))
        if callback == "step" and self.connection.poll():
            signal.raise_signal(signal.SIGINT)


def _run_job(job: Callable[[Progress], Any], connection: Connection) -> None:
    """Run a job and send its result or error. Ctrl-C is ignored, and the process ends if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    try:
        result = job(_Relay(connection))
    except Exception as error:
        if not isinstance(error, Interrupted | UserError | OSError):
            traceback.print_exc()
        result = error
    connection.send(("result", (result,)))
