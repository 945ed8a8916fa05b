"""The package's own thread pool, for calls that do not run on OpenMP's threads. `threads.py` selects a pool.

Threads sleep between calls and are created again after a fork. After a job, a thread polls for the next one before it
sleeps, so that it is still awake if calls follow each other closely. Under CPU contention a thread may begin its job
late. A caller that has finished its own job does not wait for such jobs, but runs them itself.
"""

import threading
from array import array
from collections.abc import Sequence
from queue import SimpleQueue

from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.system import SYSTEM

WAITING, GIVEN, TAKEN, ASLEEP = range(4)
"""The states of a mailbox: its thread waits; a job was put in; a thread has begun the job; its thread sleeps."""
FUNCTION, ARGUMENT, FLAG = 1, 2, 3
"""The indices of the words of a mailbox after its state: the address of a function, the function's argument, and a flag
that kernels set for Python to read."""
POLLS = 1500
"""The number of polls before a thread sleeps. The thread yields its core after each poll."""

SERVE = f'''
def serve(mailbox):
    """Run the jobs that arrive in a mailbox, until none has arrived for some time."""
    polls = 0
    while True:
        if compare_and_swap(mailbox, {GIVEN}, {TAKEN}):
            perform(words(mailbox)[{FUNCTION}], words(mailbox)[{ARGUMENT}])
            compare_and_swap(mailbox, {TAKEN}, {WAITING})
            polls = 0
        polls += 1
        if polls > {POLLS}:
            if compare_and_swap(mailbox, {WAITING}, {ASLEEP}):
                return
            polls = 0
        yield_core()
'''

GIVE = f'''
def give(mailbox):
    """Pass the job in a mailbox to the mailbox's thread, and set the flag if the thread sleeps."""
    words(mailbox)[{FLAG}] = 0
    if not compare_and_swap(mailbox, {WAITING}, {GIVEN}):
        words(mailbox)[{FLAG}] = 1
        compare_and_swap(mailbox, {ASLEEP}, {GIVEN})
'''

FINISH = f'''
def finish(mailbox):
    """Wait for the job in a mailbox. If its thread has not begun, run the job on this thread and set the flag."""
    words(mailbox)[{FLAG}] = 0
    if compare_and_swap(mailbox, {GIVEN}, {TAKEN}):
        perform(words(mailbox)[{FUNCTION}], words(mailbox)[{ARGUMENT}])
        words(mailbox)[{FLAG}] = 1
        compare_and_swap(mailbox, {TAKEN}, {WAITING})
    while load_acquire(mailbox) == {TAKEN}:
        yield_core()
'''


class _Worker:
    """A thread and the mailbox for its jobs."""

    def __init__(self) -> None:
        self._mailbox = array("q", [ASLEEP, 0, 0, 0])
        self._address = self._mailbox.buffer_info()[0]
        self._avoided_processor = -1
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="glassgate", daemon=True)
        self._thread.start()

    def give(self, job: Launch) -> None:
        """Start the job on the thread. The thread avoids the processor of the caller."""
        processor = SYSTEM.current_processor()
        if processor is not None and processor != self._avoided_processor:
            self._avoid(processor)
        self._mailbox[FUNCTION], self._mailbox[ARGUMENT] = job.function.address, job.arguments.buffer_info()[0]
        compile_native(GIVE)(self._address)
        if self._mailbox[FLAG]:
            self._wake_ups.put(None)

    def _avoid(self, processor: int) -> None:
        """Exclude a processor from the affinity of the thread.

        Some systems run an awakened thread on the processor of the waking thread, although other processors are idle.
        """
        self._avoided_processor = processor
        if self._thread.native_id:
            SYSTEM.avoid_processor(self._thread.native_id, processor)

    def finish(self) -> None:
        """Wait until the job is done, or run it on the calling thread if the worker has not begun."""
        compile_native(FINISH)(self._address)

    def _work(self) -> None:
        serve = compile_native(SERVE)
        while True:
            self._wake_ups.get()
            serve(self._address)


_idle: list[_Worker] = []


def run(jobs: Sequence[Launch]) -> None:
    """Run the first job on the calling thread and each other job on a thread of the pool. Wait until all are done."""
    workers = [_idle_worker() for _ in jobs[1:]]
    try:
        for worker, job in zip(workers, jobs[1:], strict=True):
            worker.give(job)
        jobs[0]()
    finally:  # an interrupt must not free memory that other threads still use
        for worker in workers:
            worker.finish()
        _idle.extend(workers)


def _idle_worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


SYSTEM.after_fork(_idle.clear)
