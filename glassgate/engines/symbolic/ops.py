"""The operations of graphs that are not elementwise: leaves, products with weights, reductions and moves.

A value of a graph has an operation, arguments and axes. Its operation is the name of an elementwise operation, a key of
`operations.OPERATIONS`, or one of these classes. Their fields are all properties of the operation except its arguments.
Two values with equal operations, arguments and axes are therefore equal. Arguments are values, in parentheses here.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. `symbol` is its name in texts."""

    symbol: ClassVar[str] = ""

    @property
    def contents(self) -> tuple[Any, ...]:
        """The values of the fields."""
        return tuple([getattr(self, field.name) for field in fields(self)])


Operation = str | Op
"""The name of an elementwise operation, or an operation of this module."""


@dataclass(frozen=True, slots=True)
class Constant(Op):
    """A number."""

    symbol = "constant"
    number: float


@dataclass(frozen=True, slots=True)
class Leaf(Op):
    """A value from outside of the step. `name` is that of the gate, state, parameter, noise or block of the input."""

    name: str


@dataclass(frozen=True, slots=True)
class InputHalf(Leaf):
    """The rows of a gate of `W_ih x + b_ih`."""

    symbol = "ih"


@dataclass(frozen=True, slots=True)
class State(Leaf):
    """A state before the step."""

    symbol = "state"


@dataclass(frozen=True, slots=True)
class Parameter(Leaf):
    """A parameter of the cell; the block of a gate if it has one per gate."""

    symbol = "parameter"
    gate: str | None = None


@dataclass(frozen=True, slots=True)
class Noise(Leaf):
    """Random numbers."""

    symbol = "noise"


@dataclass(frozen=True, slots=True)
class Input(Leaf):
    """A block of the input that the step itself reads."""

    symbol = "input"


@dataclass(frozen=True, slots=True)
class Gradient(Leaf):
    """In a gradient: the gradient of a new state."""

    symbol = "grad"


class SavedKind(StrEnum):
    """The kinds of values that the forward pass saves for the backward pass."""

    INPUT = "ih"
    """The input half of a gate, the pre-activation of a gate, or a value that depends only on it."""
    RECURRENT = "hh"
    """The recurrent half of a gate, or a value that depends only on it."""
    ROW_SUM = "row"
    PROJECTED = "hr"
    """The result of the projection."""
    KEPT = "kept"
    """Another value. The backend's costs decide that reading it is cheaper than recomputing it."""
    STATE = "state"
    """A new state."""


@dataclass(frozen=True, slots=True, order=True)
class Saved(Op):
    """In a backward graph: a value that the forward pass has saved. `number` counts the values of this kind."""

    symbol = "saved"
    kind: SavedKind
    number: int


@dataclass(frozen=True, slots=True)
class Size(Op):
    """The number of units along an axis, as a float."""

    symbol = "size"
    axis: str


@dataclass(frozen=True, slots=True)
class Product(Op):
    """A pre-activation with a recurrent product (u)."""

    gate: str


@dataclass(frozen=True, slots=True)
class RecurrentHalf(Product):
    """The rows of a gate of `W_hh u + b_hh` (u)."""

    symbol = "hh"


@dataclass(frozen=True, slots=True)
class PreActivation(Product):
    """The rows of a gate of `W_ih x + b_ih + W_hh u + b_hh` (u)."""

    symbol = "pre"


@dataclass(frozen=True, slots=True)
class RecurrentTranspose(Op):
    """In a gradient: the sum over gates of `W^T d`, where W are the rows of the gate in `W_hh` (d, d, ...)."""

    symbol = "hh_t"
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Projection(Op):
    """`W_hr u`, of the projected size (u)."""

    symbol = "hr"


@dataclass(frozen=True, slots=True)
class ProjectionTranspose(Op):
    """In a gradient: `W_hr^T d` (d)."""

    symbol = "hr_t"


@dataclass(frozen=True, slots=True)
class RowSum(Op):
    """The sum over the units of a row, one number per row (x)."""

    symbol = "row_sum"


@dataclass(frozen=True, slots=True)
class Index:
    """The position along one axis of the argument of `Gather` or of the result of `Scatter`.

    It is offset + sum of factor * axis, modulo.

    Attributes:
        terms: pairs (axis, factor).
        offset: the constant term.
        modulus: the size of the axis for an index that wraps around, as in `roll`; None if it does not.
    """

    terms: tuple[tuple[str, int], ...]
    offset: int = 0
    modulus: int | None = None


@dataclass(frozen=True, slots=True)
class Sum(Op):
    """The sum over axes (x)."""

    symbol = "sum"
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Max(Op):
    """The maximum over axes (x)."""

    symbol = "max"
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CumulativeSum(Op):
    """The sums along an axis from its start, or from its end if `reverse` (x)."""

    symbol = "cumsum"
    axis: str
    reverse: bool


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """The elements at one index per axis of the argument, over the axes that the indices contain (x).

    It renames an axis, slices it, selects one position, rolls or divides it.
    """

    symbol = "index"
    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Scatter(Op):
    """In a gradient, the transpose of `Gather`: zero, plus the argument at the indices of `axes` (x)."""

    symbol = "scatter"
    indices: tuple[Index, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merge(Op):
    """The argument with `axes` merged into the axis `into`, the first of `axes` varying slowest (x)."""

    symbol = "merge"
    axes: tuple[str, ...]
    into: str


@dataclass(frozen=True, slots=True)
class Concatenate(Op):
    """Values one after the other along an axis (x, y, ...).

    Part k of the axis is the axis `parts[k]` of argument k, if the argument has it; else its values are constant along
    the axis.
    """

    symbol = "cat"
    axis: str
    parts: tuple[str, ...]


BY_SYMBOL: dict[str, type[Op]] = {
    each.symbol: each
    for each in (
        Constant, InputHalf, State, Parameter, Noise, Input, Size, RecurrentHalf, Projection, RowSum, Sum, Max,
        CumulativeSum, Gather, Merge, Concatenate,
    )
}  # fmt: skip
"""The operations of a step, by their names in texts."""
