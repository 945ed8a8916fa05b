"""The graph of one step: the values of a pass's loop, without the operations that only change axes."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.lowering.expressions import is_numbered
from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Operation,
    Pass,
    Port,
    Reshape,
    Stack,
    Sum,
    Take,
    Value,
    operands,
)
from glassgate.engines.lowering.step import P, StepProgram


class WeightRows(NamedTuple):
    """The weight of a matrix product.

    Attributes:
        name: the name of the parameter.
        gates: the indices of the gates whose rows are in the matrix, in the order of the product; empty without gates.
        heads: the number of diagonal blocks.
        is_transposed: whether the product sums over the rows of the weight.
    """

    name: str
    gates: tuple[int, ...]
    heads: int
    is_transposed: bool


def row_axis(axes: Axes, value: Value) -> Axis:
    """The axis of a value within a row, apart from the axes of gates, steps and sequences.

    With several heads, a value may have two axes in place of the axis of all units. They have the same factors.
    """
    names = [name for name in value.type.axes if name not in ("T", "N", "B", "M") and not axes[name].labels]
    factors = tuple(factor for name in names for factor in axes.factors(name))
    known = (axis for axis in (UNITS, PROJECTED, FEATURES) if axis.name in axes)
    return next((axis for axis in known if axes.factors(axis.name) == factors), PER_ROW)


class StepGraph:
    """The graph of one step of a pass.

    Its values are vectors with one number per unit, or single numbers per row. A product with the rows of several gates
    has one value per gate. Values that the pass computes before the loop, for example from parameters, are values of
    the step too. A value without operands is a *leaf*: the step reads it from memory.

    Args:
        program: the pass.

    Attributes:
        operations: the operation of each value that is not an input of the pass or of its loop.
        sequences: for each value that the loop reads from a sequence, the sequence.
    """

    def __init__(self, program: Pass) -> None:
        self.program, self.axes = program, program.axes
        lines = (*program.before, *program.loop.body)
        self.operations: dict[Value, Operation] = {line.result: line.operation for line in lines}
        self.sequences = {read.at: read.sequence for read in program.loop.reads}
        self.ports: dict[Value, Port] = {value: port for port, value in program.inputs.items()}
        self._axes_of_types: dict[tuple[str, ...], Axis] = {}
        self._operands: dict[Value, tuple[Value, ...]] = {}
        self._products: dict[Value, Contract | None] = {}

    def origin(self, value: Value) -> Value:
        """The value before operations that only change axes. A broadcast number is a value of its own."""
        while True:
            match self.operations.get(value):
                case Reshape(x):
                    value = x
                case Broadcast(x) if self.number(x) is None:
                    value = x
                case _:
                    return value

    def number(self, value: Value) -> float | None:
        """The number that a value consists of; None for other values."""
        match self.operations.get(value):
            case Constant(number):
                return number
            case Broadcast(x):
                return self.number(x)
        return None

    def product(self, value: Value) -> Contract | None:
        """The matrix product whose result is this value, or contains it as the block of a gate; None for others."""
        if value not in self._products:
            match self.operations.get(value):
                case Contract() as contract:
                    self._products[value] = contract
                case Block(x):
                    self._products[value] = self.product(self.origin(x))
                case _:
                    self._products[value] = None
        return self._products[value]

    def is_computed(self, value: Value) -> bool:
        """Whether a step computes a value. It reads other values from memory."""
        return isinstance(self.operations.get(value), Elementwise | Sum) or self.product(value) is not None

    def operands(self, value: Value) -> tuple[Value, ...]:
        """The values from which a step computes a value; none for a leaf."""
        if value not in self._operands:
            operation, contract = self.operations.get(value), self.product(value)
            if isinstance(operation, Elementwise | Sum):
                self._operands[value] = tuple(map(self.origin, operands(operation)))
            else:
                self._operands[value] = () if contract is None else self.left_operands(contract)
        return self._operands[value]

    def left_operands(self, contract: Contract) -> tuple[Value, ...]:
        """The row vectors that a matrix product reads: one, or one per gate if it sums over gates."""
        left = self.origin(contract.a)
        operation = self.operations.get(left)
        return tuple(map(self.origin, operation.values)) if isinstance(operation, Stack) else (left,)

    def weight(self, contract: Contract) -> WeightRows:
        """The weight of a matrix product."""
        weight, gates = contract.b, None
        if isinstance(take := self.operations.get(weight), Take):
            weight, gates = take.x, take.indices
        axes = weight.type.axes
        if gates is None:
            gates = tuple(range(self.axes.constant_extent("G") or 0)) if "G" in axes else ()
        heads = self.axes.constant_extent("K") or 1 if "K" in axes else 1
        return WeightRows(self.ports[weight].name, gates, heads, axes[-1] not in contract.over)

    def axis_of(self, value: Value) -> Axis:
        """The axis of a value within a row, see `row_axis`."""
        if value.type.axes not in self._axes_of_types:
            self._axes_of_types[value.type.axes] = row_axis(self.axes, value)
        return self._axes_of_types[value.type.axes]

    @cached_property
    def names(self) -> dict[Value, str]:
        """The names of values that the pass has only numbered, if a value with other axes has a name."""
        reshaped = [value for value, operation in self.operations.items() if isinstance(operation, Reshape)]
        return {self.origin(value): value.name for value in reshaped if not is_numbered(value.name)}

    @cached_property
    def names_of_gates(self) -> dict[Value, str]:
        """The names of the parts of parameters that belong to a gate, for those that the pass has only numbered."""
        names = {}
        for value, operation in self.operations.items():
            if isinstance(operation, Block) and is_numbered(value.name) and not is_numbered(operation.x.name):
                label = self.axes[operation.axis].labels
                names[value] = f"{operation.x.name}_{label[operation.at]}"
        return names

    @cached_property
    def order(self) -> dict[Value, int]:
        """The position of each value in the pass. Operands precede the values that are computed from them."""
        program, loop = self.program, self.program.loop
        read = [*program.inputs.values(), *self.sequences, *(carry.before for carry in loop.carries)]
        computed = (line.result for line in (*program.before, *loop.body))
        return {value: k for k, value in enumerate([*read, *computed])}

    def with_operands(self, results: Iterable[Value]) -> list[Value]:
        """The values on which results depend, including the results, each after its operands."""
        found: set[Value] = set()
        pending = [*results]
        while pending:
            value = pending.pop()
            if value not in found:
                found.add(value)
                pending += self.operands(value)
        return sorted(found, key=self.order.__getitem__)


class GraphProgram(StepProgram[Value, P]):
    """The phases of the values of a `StepGraph`.

    Args:
        graph: the graph.
        results: the results of the step.
        phase: constructs a phase, as in `StepProgram`.
    """

    def __init__(self, graph: StepGraph, results: Iterable[Value], phase: Callable[[int, Axis], P]) -> None:
        self.graph = graph
        super().__init__(graph.with_operands(results), phase)

    def operands(self, value: Value) -> tuple[Value, ...]:
        """See `StepGraph.operands`."""
        return self.graph.operands(value)

    def axis_of(self, value: Value) -> Axis:
        """The axis of a value within a row."""
        return self.graph.axis_of(value)

    def is_product(self, value: Value) -> bool:
        """Whether a value is the result of a matrix product."""
        return self.graph.product(value) is not None

    def is_sum(self, value: Value) -> bool:
        """Whether a value is a sum over units."""
        return isinstance(self.graph.operations.get(value), Sum)

    def is_read(self, value: Value) -> bool:
        """Whether a value is an input, or a sum, which its phase stores in memory."""
        return not self.graph.is_computed(value) or self.is_sum(value)
