"""The intermediate representation (IR): a pass in static single assignment form, with named axes.

A pass is the forward or backward computation of one direction of a layer: lines before a loop over the steps, the loop,
and lines after it. The backend chooses the memory, the order of rows and the method of multiplication. `verify.py`
checks a pass, `printer.py` prints it, and `evaluate.py` runs it in plain torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import NamedTuple

from glassgate.engines.axes import Axis


class Axes(dict[str, Axis]):
    """The axes of a pass by name. Their order is the order of the axes of every value."""

    def sorted(self, names: frozenset[str] | set[str]) -> tuple[str, ...]:
        """Sort these axes into the order of the pass."""
        return tuple(name for name in self if name in names)

    def factors(self, name: str) -> tuple[int | str, ...]:
        """The factors of the extent of an axis, in row-major order: numbers and base axes (axes without factors)."""
        axis = self[name]
        if not axis.factors:
            return (name,)
        return tuple(f for part in axis.factors for f in ((part,) if isinstance(part, int) else self.factors(part)))

    def constant_extent(self, name: str) -> int | None:
        """The extent of an axis; None if it depends on a base axis."""
        factors = self.factors(name)
        return prod(f for f in factors if isinstance(f, int)) if all(isinstance(f, int) for f in factors) else None

    def extent(self, name: str, sizes: Mapping[str, int]) -> int:
        """The extent of an axis, given those of the base axes."""
        return prod(f if isinstance(f, int) else sizes[f] for f in self.factors(name))


class Type(NamedTuple):
    """The axes of a value, in row-major order, and the type of its elements: "float", "bool", or "int" for lengths."""

    axes: tuple[str, ...] = ()
    dtype: str = "float"

    def __str__(self) -> str:
        return f"{self.dtype.removeprefix('float')}[{', '.join(self.axes)}]"


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a pass. Values are compared by identity. Their names are only for readers."""

    type: Type
    name: str


class Elementwise(NamedTuple):
    """An operation of `symbolic.operations.OPERATIONS`. Arguments are broadcast to the union of their axes."""

    op: str
    args: tuple[Value | float, ...]


class Contract(NamedTuple):
    """The product of two values, summed over the axes `over`, as in einsum. The result has all other axes."""

    a: Value
    b: Value
    over: tuple[str, ...]


class Sum(NamedTuple):
    """The sum over some axes."""

    x: Value
    over: tuple[str, ...]


class Constant(NamedTuple):
    """A number."""

    value: float


class Size(NamedTuple):
    """The extent of an axis as a float."""

    axis: str


class Block(NamedTuple):
    """The values at one index of an axis, e.g. the rows of one gate. The axis is removed."""

    x: Value
    axis: str
    at: int


class Take(NamedTuple):
    """The values at some indices of an axis. The axis `to` replaces this axis."""

    x: Value
    axis: str
    indices: tuple[int, ...]
    to: str


class Stack(NamedTuple):
    """Values of the same type, stacked along a new axis."""

    values: tuple[Value, ...]
    axis: str


class Reshape(NamedTuple):
    """The same elements with other axes, e.g. an axis of all units split into heads and units per head."""

    x: Value
    axes: tuple[str, ...]


class Broadcast(NamedTuple):
    """The same values, repeated along additional axes."""

    x: Value
    axes: tuple[str, ...]


class Shift(NamedTuple):
    """A sequence delayed by one step of a loop. The element at a step is that of `x` at the previous step.

    The element at the first step of each row is `first`.

    Attributes:
        x: the sequence, with the loop's axis.
        first: an element, without the loop's axis.
        axis: the loop's axis.
        reverse: whether the loop runs from the last step to the first.
        lengths: as in `Loop`.
    """

    x: Value
    first: Value
    axis: str
    reverse: bool
    lengths: Value | None = None


Operation = Elementwise | Contract | Sum | Constant | Size | Block | Take | Stack | Reshape | Broadcast | Shift


class Line(NamedTuple):
    """One line of a pass: `result = operation`."""

    result: Value
    operation: Operation


class Carry(NamedTuple):
    """A value that is passed from step to step.

    Attributes:
        initial: the value before the first step, from outside the loop.
        before: the value before the step, inside the loop.
        next: the value after the step, inside the loop.
        final: the value after the last step, outside the loop.
    """

    initial: Value
    before: Value
    next: Value
    final: Value


class Read(NamedTuple):
    """Defines the value `at` inside the loop: the element of `sequence` at the current step."""

    sequence: Value
    at: Value


class Write(NamedTuple):
    """Collects a value of the loop from all steps in a sequence, which is available after the loop.

    Attributes:
        value: a value inside the loop.
        sequence: the value after the loop.
        port: identifies a sequence that is read after the loop; None for other sequences.
    """

    value: Value
    sequence: Value
    port: "Port | None" = None


class Loop(NamedTuple):
    """The loop over the steps.

    With `lengths`, row n takes part only in steps t < lengths[n], in either direction of the loop. In its other steps,
    carries keep their values, and the elements of written sequences are 0 (False).

    Attributes:
        axis: the axis of the steps.
        reverse: whether the steps run from the last to the first.
        lengths: an integer for each row; None if every row takes part in every step.
        reads, carries: the inputs of the body.
        body: the lines of one step.
        writes: the loop's results other than the final values of carries.
    """

    axis: str
    reverse: bool
    lengths: Value | None
    reads: tuple[Read, ...]
    carries: tuple[Carry, ...]
    body: tuple[Line, ...]
    writes: tuple[Write, ...]


class Role(Enum):
    """The meaning of an input or an output of a pass, or of a sequence inside it."""

    DATA = "input"
    LENGTHS = "lengths"
    RESETS = "resets"
    WEIGHT = "weight"
    """A parameter, by name."""
    INITIAL = "initial state"
    RESTART = "restart state"
    """The state after a reset, if it is not the initial state."""
    NOISE = "noise"
    STATES = "states"
    """A state after each step."""
    FINAL = "final state"
    KEPT = "kept"
    """A value that the forward pass keeps for the backward pass."""
    GATE = "gate"
    """A recorded gate."""
    D_DATA = "d_input"
    D_WEIGHT = "d_weight"
    D_INITIAL = "d_initial state"
    D_RESTART = "d_restart state"
    D_STATES = "d_states"
    D_FINAL = "d_final state"
    D_GATE = "d_gate"
    D_NEW = "d_new state"
    """The total gradient of a new state, for recordings."""
    D_PRE = "d_pre"
    """The gradients of all pre-activations, or of their input and recurrent halves, inside a backward pass."""
    LEFT = "left"
    """An operand that `weight_hh` multiplies and that is not a state, inside a backward pass. They are numbered."""
    UNPROJECTED = "raw"
    """The operand that `weight_hr` multiplies, inside a backward pass."""
    D_PROJECTED = "d_hr"
    """The gradient of the projection, inside a backward pass."""


class Port(NamedTuple):
    """Identifies an input, an output or a sequence.

    Attributes:
        role: its role.
        name: the name of its weight, state or gate, or the kind of a kept value.
        number: its number among those of this role and name; None if there is only one.
    """

    role: Role
    name: str = ""
    number: int | None = None

    @property
    def label(self) -> str:
        """The name with the number."""
        return self.name if self.number is None else f"{self.name}{self.number}"

    def __str__(self) -> str:
        return f"{self.role.value} {self.label}".rstrip()


@dataclass(frozen=True, eq=False)
class Pass:
    """The forward or backward computation of one direction of a layer.

    Attributes:
        title: a name for readers.
        axes: the axes by name.
        inputs: the input values by port.
        before: lines before the loop.
        loop: the steps.
        after: lines after the loop.
        outputs: the output values by port.
    """

    title: str
    axes: Axes
    inputs: Mapping[Port, Value]
    before: tuple[Line, ...]
    loop: Loop
    after: tuple[Line, ...]
    outputs: Mapping[Port, Value] = field(default_factory=dict)


def operands(operation: Operation) -> Iterator[Value]:
    """Yield the values that an operation reads."""
    for part in operation:
        for value in part if isinstance(part, tuple) else (part,):
            if isinstance(value, Value):
                yield value
