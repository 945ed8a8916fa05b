"""A piece of work for one thread: machine code and the words that it reads."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.native import native


class Job(NamedTuple):
    """Machine code to run with one argument, the address of its words."""

    function: Function
    words: "array[int]"

    def __call__(self) -> None:
        self.function(self.words.buffer_info()[0])


SEQUENCE = '''
def sequence(address):
    """One job after the other: how many, then each one's function and how far on its words begin, then all words."""
    job = words(address)
    for k in range(job[0]):
        perform(job[2 * k + 1], address + job[2 * k + 2])
'''


def in_turn(jobs: Sequence[Job]) -> Job:
    """All of some jobs as one."""
    if len(jobs) == 1:
        return jobs[0]
    head, every = array("q", [len(jobs)]), array("q")
    for job in jobs:
        head.extend((job.function.address, 8 * (2 * len(jobs) + 1 + len(every))))
        every += job.words
    return Job(native(SEQUENCE), head + every)
