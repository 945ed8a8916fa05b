"""Launches of machine code, and tasks that threads divide among themselves.

A *part* is a range of the items of a task. The last two arguments of the machine code are its bounds: the index of the
first item, and the index after the last item.
A *call value* is an integer that may differ between calls, such as the address of a tensor; see `executable.py`.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.native import compile_native


class Launch(NamedTuple):
    """Machine code and its arguments. Calling the launch runs the machine code."""

    function: Function
    arguments: "array[int]"

    def __call__(self) -> None:
        self.function(self.arguments.buffer_info()[0])


SEQUENCE = '''
def sequence(count, *launches):
    """Run `count` launches in order. `launches` has the function of each, and the offset of its arguments in bytes."""
    for k in range(0, 2 * count, 2):
        perform(launches[k], address + launches[k + 1])
'''


def join_launches(launches: Sequence[Launch]) -> Launch:
    """Join several launches into one, which runs them in order."""
    if len(launches) == 1:
        return launches[0]
    header, arguments = array("q", [len(launches)]), array("q")
    for launch in launches:
        header.extend((launch.function.address, 8 * (2 * len(launches) + 1 + len(arguments))))
        arguments += launch.arguments
    return Launch(compile_native(SEQUENCE), header + arguments)


Bindings = dict[Argument, int]
"""Values of arguments: addresses, sizes, pitches."""
Operand = Argument | int | tuple[Argument, int]
"""An argument of a task: an `Argument` whose value is inserted later, a constant, or a pair (both are added)."""
ValueIndices = Mapping[Argument, tuple[int, ...]]
"""For each argument, the indices of the call values that are added to it."""
BoundIndices = Mapping[Argument, Sequence[int]]
"""For each size that may differ between calls, the indices of the call values that are the bounds of the parts.

Element k refers to the start of part k, and element k + 1 to its end. Element 0 is not used: part 0 starts at 0."""


class TaskPart(NamedTuple):
    """A launch for many calls of a layer. Each call adds some of its call values to the arguments.

    Attributes:
        launch: the launch with the constant summands of its arguments.
        additions: pairs of the index of an argument and the index of the call value that is added to it.
    """

    launch: Launch
    additions: Sequence[tuple[int, int]]


def join_parts(parts: Sequence[TaskPart]) -> TaskPart:
    """Join several parts into one, which runs them in order."""
    if len(parts) == 1:
        return parts[0]
    launch = join_launches([part.launch for part in parts])
    start, additions = len(launch.arguments) - sum(len(part.launch.arguments) for part in parts), []
    for part in parts:
        additions += [(start + slot, index) for slot, index in part.additions]
        start += len(part.launch.arguments)
    return TaskPart(launch, additions)


COMPLETE = '''
def complete(function, arguments_at, count, values_at, *pairs):
    """Add call values to the arguments of a launch, then run it.

    `pairs` has `count` pairs of the index of an argument and the index of a value.
    """
    arguments, values = words(address + arguments_at), words(address + values_at)
    for k in range(0, 2 * count, 2):
        arguments[pairs[k]] += values[pairs[k + 1]]
    perform(function, address + arguments_at)
'''


def launch_template(part: TaskPart) -> Launch:
    """Return a launch that adds call values to the arguments of a part, then runs the part.

    Each call must append its values to the arguments of the launch.
    """
    header = [part.launch.function.address, 8 * (4 + 2 * len(part.additions)), len(part.additions)]
    header.append(header[1] + 8 * len(part.launch.arguments))
    for pair in part.additions:
        header += pair
    return Launch(compile_native(COMPLETE), array("q", header) + part.launch.arguments)


class ParallelTask:
    """A task that threads can divide among themselves.

    Args:
        function: the machine code.
        operands: the arguments before the bounds of a part.
        size: the number of items that threads divide.
        is_light: whether the whole task takes less time than waking a second thread.

    Attributes:
        launch: the machine code with its constant arguments.
        slots: the index and the `Argument` of each argument that is not constant.
        bounds_slot: the index of the first bound among the arguments.
        size: the number of items as a pair: an argument or None, and a constant that is added.
    """

    def __init__(self, function: Function, operands: Sequence[Operand], size: Operand, is_light: bool = False) -> None:
        self.operands, self.is_light = operands, is_light
        pairs = [_split_operand(operand) for operand in (*operands, 0, 0)]
        self.launch = Launch(function, array("q", [constant for _, constant in pairs]))
        self.slots = [(slot, argument) for slot, (argument, _) in enumerate(pairs) if argument is not None]
        self.bounds_slot, self.size = len(operands), _split_operand(size)

    def whole(self, bindings: Bindings) -> Launch:
        """Return the launch of the whole task. `bindings` must have a value for every argument."""
        return self.part(bindings).launch

    def part(
        self,
        constants: Bindings,
        value_indices: ValueIndices | None = None,
        bound_indices: BoundIndices | None = None,
        k: int = 0,
        parts: int = 1,
    ) -> TaskPart:
        """Return part `k` of `parts` parts of about equal size.

        Args:
            constants: the constant summand of each argument.
            value_indices: the indices of the call values that are added to arguments.
            bound_indices: the indices of the call values that are bounds of parts.
            k: the index of the part.
            parts: the number of parts.
        """
        value_indices, bound_indices, arguments = value_indices or {}, bound_indices or {}, self.launch.arguments[:]
        additions = [(slot, index) for slot, argument in self.slots for index in value_indices.get(argument, ())]
        for slot, argument in self.slots:
            arguments[slot] += constants[argument]
        first_bound, (argument_of_size, size) = self.bounds_slot, self.size
        if argument_of_size is not None and argument_of_size in bound_indices:
            indices = bound_indices[argument_of_size]
            additions += [(first_bound + end, indices[k + end]) for end in (0, 1) if k + end]
        else:
            size += 0 if argument_of_size is None else constants[argument_of_size]
            arguments[first_bound], arguments[first_bound + 1] = size * k // parts, size * (k + 1) // parts
        return TaskPart(Launch(self.launch.function, arguments), additions)


def _split_operand(operand: Operand) -> tuple[Argument | None, int]:
    """Split an operand into an argument, or None, and a constant."""
    if isinstance(operand, tuple):
        return operand
    return (None, operand) if isinstance(operand, int) else (operand, 0)
