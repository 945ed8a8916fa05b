"""A launch: machine code and the arguments that it reads. One thread runs it."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.native import native


class Launch(NamedTuple):
    """Machine code to run with the address of its arguments."""

    function: Function
    arguments: "array[int]"

    def __call__(self) -> None:
        self.function(self.arguments.buffer_info()[0])


SEQUENCE = '''
def sequence(count, *launches):
    """One launch after the other: each one's function and the offset of its arguments in bytes; these follow."""
    for k in range(0, 2 * count, 2):
        perform(launches[k], address + launches[k + 1])
'''


def in_turn(launches: Sequence[Launch]) -> Launch:
    """One launch that runs several launches one after the other."""
    if len(launches) == 1:
        return launches[0]
    head, every = array("q", [len(launches)]), array("q")
    for launch in launches:
        head.extend((launch.function.address, 8 * (2 * len(launches) + 1 + len(every))))
        every += launch.arguments
    return Launch(native(SEQUENCE), head + every)
