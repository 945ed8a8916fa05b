"""What threads can share: machine code whose arguments a call's bindings fill in, and its part in the last two."""

from array import array
from collections.abc import Sequence

from glassgate.engines.numba_cpu.arguments import Argument
from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.launch import Launch, in_turn

Bindings = dict[Argument, int]
"""What a call knows: addresses, sizes, distances."""
Operand = Argument | int | tuple[Argument, int]
"""What a task is handed: what a call knows, a number, or the sum of both."""
Places = dict[Argument, tuple[int, int]]
"""Arguments that are some of a list's numbers, and what is added to these."""


class ParallelTask:
    """Something that threads can share, by its last two arguments: from which on, and up to which.

    Attributes:
        function: the machine code.
        operands: its arguments but for these two.
        size: how much there is to share.
        light: whether that takes less time than to wake a second thread.
    """

    def __init__(self, function: Function, operands: Sequence[Operand], size: Operand, light: bool = False) -> None:
        self.function, self.operands = function, operands
        pairs = [_pair(operand) for operand in (*operands, 0, 0)]
        self._blank = Launch(function, array("q", [number for _, number in pairs]))
        self._bound = [(slot, argument) for slot, (argument, _) in enumerate(pairs) if argument is not None]
        self._shares = [(len(operands), *_pair(size))]
        self.light = light

    def part(self, bindings: Bindings, k: int = 0, parts: int = 1) -> Launch:
        """One of `parts` about equal parts."""
        launch = self._filled(bindings)
        for slot, argument, more in self._shares:
            size = more if argument is None else bindings[argument] + more
            launch.arguments[slot], launch.arguments[slot + 1] = size * k // parts, size * (k + 1) // parts
        return launch

    def between(self, bindings: Bindings, first: int, last: int) -> Launch:
        """A part of any size."""
        launch = self._filled(bindings)
        launch.arguments[-2], launch.arguments[-1] = first, last
        return launch

    def prepared(self, bindings: Bindings, places: Places, k: int = 0, parts: int = 1) -> "PreparedLaunch":
        """One of some parts, for calls that differ in a few numbers alone.

        Args:
            bindings: what all of them know.
            places: which arguments are which of these numbers.
            k, parts: as in `part`.
        """
        known = bindings | {argument: shift for argument, (_, shift) in places.items()}
        bound = [(slot, places[argument][0]) for slot, argument in self._bound if argument in places]
        return PreparedLaunch(self.part(known, k, parts), bound)

    def _filled(self, bindings: Bindings) -> Launch:
        arguments = self._blank.arguments[:]
        for slot, argument in self._bound:
            arguments[slot] += bindings[argument]
        return Launch(self._blank.function, arguments)


class PreparedLaunch:
    """A launch with some numbers still to be added to its arguments.

    Args:
        launch: the rest.
        bound: places among the arguments, and which number is added there.
    """

    def __init__(self, launch: Launch, bound: Sequence[tuple[int, int]]) -> None:
        self._function, self._arguments, self._bound = launch.function, launch.arguments, tuple(bound)

    def filled(self, numbers: Sequence[int]) -> Launch:
        """The launch with these numbers."""
        arguments = self._arguments[:]
        for slot, number in self._bound:
            arguments[slot] += numbers[number]
        return Launch(self._function, arguments)


class Series(ParallelTask):
    """Tasks one after the other, as one: its parts are parts of each."""

    def __init__(self, tasks: Sequence[ParallelTask]) -> None:
        self._blank = in_turn([task._blank for task in tasks])
        self._bound, self._shares = [], []
        at = len(self._blank.arguments) - sum(len(task._blank.arguments) for task in tasks)
        for task in tasks:
            self._bound += [(at + slot, argument) for slot, argument in task._bound]
            self._shares += [(at + slot, argument, more) for slot, argument, more in task._shares]
            at += len(task._blank.arguments)
        self.light = all(task.light for task in tasks)


def _pair(operand: Operand) -> tuple[Argument | None, int]:
    if isinstance(operand, tuple):
        return operand
    return (None, operand) if isinstance(operand, int) else (operand, 0)
