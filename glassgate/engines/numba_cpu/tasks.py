"""Tasks that threads share: machine code and its arguments, the last two of which are the bounds of a thread's part."""

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from glassgate.engines.numba_cpu.arguments import Argument
from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.launch import Launch, in_turn
from glassgate.engines.numba_cpu.native import native

Bindings = dict[Argument, int]
"""Values of arguments: addresses, sizes, distances."""
Operand = Argument | int | tuple[Argument, int]
"""An argument of a task: a name whose value a call gives, a constant, or the sum of both."""
Numbers = Mapping[Argument, tuple[int, ...]]
"""Arguments that are sums of some of a call's numbers, by the indices of these numbers."""
Bounds = Mapping[Argument, Sequence[int]]
"""For sizes that differ from call to call: the index of the number at which each part but the first begins, and of the
end of the last one."""


class Part(NamedTuple):
    """A launch some of whose arguments a call completes.

    Attributes:
        launch: the constants.
        added: pairs of an argument's position and the index of a call's number that is added to it.
    """

    launch: Launch
    added: Sequence[tuple[int, int]]


def joined(parts: Sequence[Part]) -> Part:
    """Several parts in turn, as one."""
    if len(parts) == 1:
        return parts[0]
    launch = in_turn([part.launch for part in parts])
    at, added = len(launch.arguments) - sum(len(part.launch.arguments) for part in parts), []
    for part in parts:
        added += [(at + slot, number) for slot, number in part.added]
        at += len(part.launch.arguments)
    return Part(launch, added)


COMPLETED = '''
def completed(function, arguments_at, count, numbers_at, *pairs):
    """A launch whose arguments are completed first: each pair (argument, number) adds a number to an argument."""
    arguments, numbers = words(address + arguments_at), words(address + numbers_at)
    for k in range(0, 2 * count, 2):
        arguments[pairs[k]] += numbers[pairs[k + 1]]
    perform(function, address + arguments_at)
'''


def template(part: Part) -> Launch:
    """A part as a launch to whose arguments a call appends its numbers."""
    head = [part.launch.function.address, 8 * (4 + 2 * len(part.added)), len(part.added)]
    head.append(head[1] + 8 * len(part.launch.arguments))
    for pair in part.added:
        head += pair
    return Launch(native(COMPLETED), array("q", head) + part.launch.arguments)


class ParallelTask:
    """A task that threads can share.

    Args:
        function: the machine code.
        operands: its arguments, without the bounds of a thread's part, which follow them.
        size: how many items there are to share.
        light: whether all of it takes less time than waking a second thread.

    Attributes:
        launch: the machine code with the constants among its arguments.
        bound: the position of each other argument, and the argument.
        shares: the positions of the bounds of each share, the size, and a constant that is added to the size.
    """

    def __init__(self, function: Function, operands: Sequence[Operand], size: Operand, light: bool = False) -> None:
        self.function, self.operands, self.light = function, operands, light
        pairs = [_pair(operand) for operand in (*operands, 0, 0)]
        self.launch = Launch(function, array("q", [number for _, number in pairs]))
        self.bound = [(slot, argument) for slot, (argument, _) in enumerate(pairs) if argument is not None]
        self.shares = [(len(operands), *_pair(size))]

    def all(self, bindings: Bindings) -> Launch:
        """All of it, where every argument has a value."""
        return self.part(bindings).launch

    def part(
        self, known: Bindings, numbers: Numbers | None = None, bounds: Bounds | None = None, k: int = 0, parts: int = 1
    ) -> Part:
        """One of some about equal parts.

        Args:
            known: the value of each argument, or the part of it that is the same in all calls.
            numbers, bounds: the part that differs from call to call.
            k, parts: which part of how many.
        """
        numbers, bounds, arguments = numbers or {}, bounds or {}, self.launch.arguments[:]
        added = [(slot, number) for slot, argument in self.bound for number in numbers.get(argument, ())]
        for slot, argument in self.bound:
            arguments[slot] += known[argument]
        for slot, of, size in self.shares:
            if of is not None and of in bounds:
                added += [(slot + end, bounds[of][k + end]) for end in (0, 1) if k + end]
                continue
            size += known[of] if of is not None else 0
            arguments[slot], arguments[slot + 1] = size * k // parts, size * (k + 1) // parts
        return Part(Launch(self.launch.function, arguments), added)


class Series(ParallelTask):
    """Tasks in turn, as one: its parts are parts of each."""

    def __init__(self, tasks: Sequence[ParallelTask]) -> None:
        self.launch = in_turn([task.launch for task in tasks])
        self.bound, self.shares = [], []
        at = len(self.launch.arguments) - sum(len(task.launch.arguments) for task in tasks)
        for task in tasks:
            self.bound += [(at + slot, argument) for slot, argument in task.bound]
            self.shares += [(at + slot, argument, size) for slot, argument, size in task.shares]
            at += len(task.launch.arguments)
        self.light = all(task.light for task in tasks)


def _pair(operand: Operand) -> tuple[Argument | None, int]:
    if isinstance(operand, tuple):
        return operand
    return (None, operand) if isinstance(operand, int) else (operand, 0)
