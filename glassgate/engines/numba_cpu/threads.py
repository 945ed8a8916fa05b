"""The threads that run kernels: as many as torch is allowed, asleep between calls, made anew after a fork."""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class _Worker:
    """A thread that runs one job at a time."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Job, SimpleQueue[BaseException | None]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="glassgate", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job, answer = self.jobs.get()
            try:
                job()
            except BaseException as error:
                answer.put(error)
            else:
                answer.put(None)


_idle: list[_Worker] = []


def run(jobs: list[Job]) -> None:
    """Run all jobs, each on its own thread, the first one on the caller's; return when all are done."""
    if len(jobs) == 1:
        return jobs[0]()
    answers: SimpleQueue[BaseException | None] = SimpleQueue()
    workers = []
    for job in jobs[1:]:
        worker = _borrow()
        workers.append(worker)
        worker.jobs.put((job, answers))
    try:
        jobs[0]()
    finally:
        errors = [answers.get() for _ in workers]
        _idle.extend(workers)
    for error in errors:
        if error is not None:
            raise error


def _borrow() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


os.register_at_fork(after_in_child=_idle.clear)
