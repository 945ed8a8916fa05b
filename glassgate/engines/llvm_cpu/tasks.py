"""Launches of machine code, and tasks that threads divide among them.

The last two arguments of a task's machine code are the bounds of the part that it runs.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.native import native


class Launch(NamedTuple):
    """A kernel and its arguments. Calling it runs the kernel."""

    function: Function
    arguments: "array[int]"

    def __call__(self) -> None:
        self.function(self.arguments.buffer_info()[0])


SEQUENCE = '''
def sequence(count, *launches):
    """Run `count` launches in order. Each has two items: its function, and the offset of its arguments in bytes."""
    for k in range(0, 2 * count, 2):
        perform(launches[k], address + launches[k + 1])
'''


def in_turn(launches: Sequence[Launch]) -> Launch:
    """One launch that runs several launches in order."""
    if len(launches) == 1:
        return launches[0]
    head, arguments = array("q", [len(launches)]), array("q")
    for launch in launches:
        head.extend((launch.function.address, 8 * (2 * len(launches) + 1 + len(arguments))))
        arguments += launch.arguments
    return Launch(native(SEQUENCE), head + arguments)


Bindings = dict[Argument, int]
"""Values of arguments: addresses, sizes, pitches."""
Operand = Argument | int | tuple[Argument, int]
"""An argument of a task: an `Argument` whose value the call sets, a constant, or the sum of the two in a pair."""
Numbers = Mapping[Argument, tuple[int, ...]]
"""By argument, the indices of the numbers of a call (see `executable.py`) that are added to the argument's value."""
Bounds = Mapping[Argument, Sequence[int]]
"""For each size that differs between calls, the indices of the numbers of a call that are the bounds of the parts.

Item k > 0 is the index of the number that is the start of part k and the end of part k - 1. Part 0 starts at 0."""


class TaskPart(NamedTuple):
    """A launch for many calls. Each call adds some of its numbers to the arguments.

    Attributes:
        launch: the launch with the constant part of its arguments.
        added: pairs of the position of an argument and the index of the number that is added to it.
    """

    launch: Launch
    added: Sequence[tuple[int, int]]


def join(parts: Sequence[TaskPart]) -> TaskPart:
    """One part that runs several parts in order."""
    if len(parts) == 1:
        return parts[0]
    launch = in_turn([part.launch for part in parts])
    start, added = len(launch.arguments) - sum(len(part.launch.arguments) for part in parts), []
    for part in parts:
        added += [(start + slot, number) for slot, number in part.added]
        start += len(part.launch.arguments)
    return TaskPart(launch, added)


COMPLETE = '''
def complete(function, arguments_at, count, numbers_at, *pairs):
    """Add numbers to the arguments of a launch, then run it. `pairs` has the indices of an argument and of a number."""
    arguments, numbers = words(address + arguments_at), words(address + numbers_at)
    for k in range(0, 2 * count, 2):
        arguments[pairs[k]] += numbers[pairs[k + 1]]
    perform(function, address + arguments_at)
'''


def template(part: TaskPart) -> Launch:
    """A launch that adds the numbers of a call to the arguments of a part, then runs it.

    The caller must append the numbers to the arguments of the launch.
    """
    head = [part.launch.function.address, 8 * (4 + 2 * len(part.added)), len(part.added)]
    head.append(head[1] + 8 * len(part.launch.arguments))
    for pair in part.added:
        head += pair
    return Launch(native(COMPLETE), array("q", head) + part.launch.arguments)


class ParallelTask:
    """A task that threads can divide among them.

    Args:
        function: the machine code.
        operands: the arguments before the bounds of a thread's part.
        size: the number of items that threads divide.
        light: whether the whole task takes less time than waking a second thread.

    Attributes:
        launch: the machine code with its constant arguments.
        bound: the position and the name of each other argument.
        share: the position of the first bound, and the size as the name of an argument (or None) plus a constant.
    """

    def __init__(self, function: Function, operands: Sequence[Operand], size: Operand, light: bool = False) -> None:
        self.operands, self.light = operands, light
        pairs = [_split_operand(operand) for operand in (*operands, 0, 0)]
        self.launch = Launch(function, array("q", [number for _, number in pairs]))
        self.bound = [(slot, argument) for slot, (argument, _) in enumerate(pairs) if argument is not None]
        self.share = len(operands), *_split_operand(size)

    def all(self, bindings: Bindings) -> Launch:
        """The launch of the whole task. `bindings` must have a value for every argument."""
        return self.part(bindings).launch

    def part(
        self, known: Bindings, numbers: Numbers | None = None, bounds: Bounds | None = None, k: int = 0, parts: int = 1
    ) -> TaskPart:
        """Part `k` of `parts` parts of about equal size.

        Args:
            known: the value of each argument, or the summand of the value that is equal in all calls.
            numbers, bounds: the indices of the numbers of a call that are added to arguments, and that are bounds.
            k, parts: the index of the part, and the number of parts.
        """
        numbers, bounds, arguments = numbers or {}, bounds or {}, self.launch.arguments[:]
        added = [(slot, number) for slot, argument in self.bound for number in numbers.get(argument, ())]
        for slot, argument in self.bound:
            arguments[slot] += known[argument]
        slot, count, size = self.share
        if count is not None and count in bounds:
            added += [(slot + end, bounds[count][k + end]) for end in (0, 1) if k + end]
        else:
            size += known[count] if count is not None else 0
            arguments[slot], arguments[slot + 1] = size * k // parts, size * (k + 1) // parts
        return TaskPart(Launch(self.launch.function, arguments), added)


def _split_operand(operand: Operand) -> tuple[Argument | None, int]:
    if isinstance(operand, tuple):
        return operand
    return (None, operand) if isinstance(operand, int) else (operand, 0)
