"""What threads can share: machine code whose arguments a call's bindings fill in, and its part in the last two."""

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count

from glassgate.engines.numba_cpu.arguments import Argument
from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.launch import Launch, in_turn
from glassgate.engines.numba_cpu.native import native

Bindings = dict[Argument, int]
"""What a call knows: addresses, sizes, distances."""
Operand = Argument | int | tuple[Argument, int]
"""What a task is handed: what a call knows, a number, or the sum of both."""
Places = dict[Argument, tuple[int, int]]
"""Arguments that are some of a list's numbers, and what is added to these."""


class Template:
    """A launch some of whose arguments are only known at a call: numbers that it is given, and constants added to them.

    Args:
        launch: the constants.
        bound: places among the arguments, and which number is added there.
    """

    def __init__(self, launch: Launch, bound: Sequence[tuple[int, int]]) -> None:
        self._function = native(FILLED)
        head = [launch.function.address, 8 * (4 + 3 * len(bound)), len(bound)]
        head.append(head[1] + 8 * len(launch.arguments))
        for slot, number in bound:
            head += slot, launch.arguments[slot], number
        self._known = array("q", head) + launch.arguments

    def filled(self, numbers: Iterable[int]) -> Launch:
        """The launch with these numbers."""
        return Launch(self._function, self._known + array("q", numbers))

    def each(self, numbers: Iterable[int], more: Iterable[Iterable[int]]) -> list[Launch]:
        """Launches with the same numbers, and more in which they differ."""
        known = self._known + array("q", numbers)
        return [Launch(self._function, known + array("q", own)) for own in more]


FILLED = '''
def filled(address):
    """A launch, once its arguments are filled in: at each of some places a constant and one of the numbers behind."""
    job = words(address)
    arguments, numbers = words(address + job[1]), words(address + job[3])
    for k in range(4, 4 + 3 * job[2], 3):
        arguments[job[k]] = job[k + 1] + numbers[job[k + 2]]
    perform(job[0], address + job[1])
'''


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

    def all(self, bindings: Bindings) -> Launch:
        """All of it."""
        arguments, whole = self._whole
        return whole.filled([bindings[argument] for argument in arguments])

    def parts(self, bindings: Bindings, parts: int) -> list[Launch]:
        """About equal parts."""
        if parts == 1:
            return [self.all(bindings)]
        sizes = [size for _, size in self._sizes(bindings)]
        bounds = ([size * end // parts for size in sizes for end in (k, k + 1)] for k in range(parts))
        return self._template.each([bindings[argument] for argument in self._arguments], bounds)

    def between(self, bindings: Bindings, first: int, last: int) -> Launch:
        """A part of any size."""
        return self._template.filled([*[bindings[argument] for argument in self._arguments], first, last])

    def prepared(self, bindings: Bindings, places: Places, k: int = 0, parts: int = 1) -> Template:
        """One of some parts, for calls that differ in a few numbers alone.

        Args:
            bindings: what all of them know.
            places: which arguments are which of these numbers.
            k, parts: which one of how many.
        """
        known = bindings | {argument: shift for argument, (_, shift) in places.items()}
        bound = [(slot, places[argument][0]) for slot, argument in self._bound if argument in places]
        arguments = self._blank.arguments[:]
        for slot, bound_to in self._bound:
            arguments[slot] += known[bound_to]
        for slot, size in self._sizes(known):
            arguments[slot], arguments[slot + 1] = size * k // parts, size * (k + 1) // parts
        return Template(Launch(self._blank.function, arguments), bound)

    def _sizes(self, bindings: Bindings) -> list[tuple[int, int]]:
        """Where the bounds of each share are, and how much there is to share."""
        return [(slot, more if of is None else bindings[of] + more) for slot, of, more in self._shares]

    @cached_property
    def _arguments(self) -> list[Argument]:
        """What it asks a call for, each once."""
        return [*dict.fromkeys(argument for _, argument in self._bound)]

    @cached_property
    def _whole(self) -> tuple[list[Argument], Template]:
        """What all of it asks a call for, each once, and the launch, given these."""
        arguments, bound = self._blank.arguments[:], self._bound.copy()
        for slot, of, more in self._shares:
            arguments[slot + 1] = more
            if of is not None:
                bound.append((slot + 1, of))
        at = {argument: k for k, argument in enumerate(dict.fromkeys(of for _, of in bound))}
        launch = Launch(self._blank.function, arguments)
        return [*at], Template(launch, [(slot, at[argument]) for slot, argument in bound])

    @cached_property
    def _template(self) -> Template:
        """The launch, given the values of `_arguments` and the bounds of each share."""
        at = {argument: k for k, argument in enumerate(self._arguments)}
        ends = [slot + k for slot, _, _ in self._shares for k in (0, 1)]
        bound = [(slot, at[argument]) for slot, argument in self._bound]
        return Template(self._blank, [*bound, *zip(ends, count(len(at)), strict=False)])


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
