"""Expresses values of a pass as sums of terms, gate by gate. Backends then reorder gates and join their products."""

from itertools import chain
from typing import NamedTuple

from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Operation,
    Pass,
    Reshape,
    Stack,
    Sum,
    Take,
    Value,
)


class GateBlock(NamedTuple):
    """A value, or its block for one gate.

    Attributes:
        value: an input, a value that the loop reads or writes, or the result of an operation that is not a sum.
        gate: the index along the gate axis of the value; None if the value has no gate axis.
    """

    value: Value
    gate: int | None = None


class Term(NamedTuple):
    """A gate block, or the product of two gate blocks, summed over some axes.

    Attributes:
        left: the block. In a product, it is the block with a gate axis, such as a weight or gradients of gates.
        right: the other block of a product; None without a product.
        over: the axes of the sum. They never include the gate axis, because each gate is a separate term.
    """

    left: GateBlock
    right: GateBlock | None = None
    over: tuple[str, ...] = ()


Sums = tuple[tuple[Term, ...], ...]
"""For each gate of a value, the terms that sum to its block. A value without a gate axis has one item."""


class Terms:
    """Maps each value of a pass to its terms.

    Args:
        program: the pass.

    Example:
        >>> import glassgate as gg
        >>> from glassgate.engines.lowering.forward import Form, forward_pass
        >>> from glassgate.engines.symbolic.step import equations_of
        >>> from glassgate.engines.symbolic.trace import build_trace
        >>> from glassgate.engines.triton_gpu.costs import COSTS
        >>> equations = equations_of(gg.cells.GRU())
        >>> program = forward_pass(equations, build_trace(equations, COSTS), Form())
        >>> ih = next(line.result for line in program.before if line.result.name == "ih")
        >>> [[term.left.value.name for term in terms] for terms in Terms(program)(ih)]  # gates r, z and n
        [['weight_ih', 'bias_ih', 'bias_hh'], ['weight_ih', 'bias_ih', 'bias_hh'], ['weight_ih', 'bias_ih']]
    """

    def __init__(self, program: Pass) -> None:
        self.axes = program.axes
        lines = chain(program.before, program.loop.body, program.after)
        self._operations: dict[Value, Operation] = {line.result: line.operation for line in lines}
        self._cache: dict[Value, Sums] = {}

    def __call__(self, value: Value) -> Sums:
        if value not in self._cache:
            self._cache[value] = self._compute_terms(value)
        return self._cache[value]

    def _compute_terms(self, value: Value) -> Sums:
        match self._operations.get(value):
            case Block(x, axis, gate) if self.axes[axis].labels:
                return (self(x)[gate],)
            case Take(x, _, gates):
                return tuple(self(x)[gate] for gate in gates)
            case Stack(values):
                return tuple(chain.from_iterable(map(self, values)))
            case Reshape(x):
                return self(x)
            case Broadcast(x) if self._operations.get(x) == Constant(0.0):
                return ((),) * len(self._gate_blocks(value))
            case Elementwise("add", (Value() as a, Value() as b)) if self._gate_axis(a) == self._gate_axis(b):
                return tuple(x + y for x, y in zip(self(a), self(b), strict=True))
            case Sum(x, over) if self._gate_axis(x) not in over:
                return tuple((Term(part, None, over),) for part in self._equal_blocks(x))
            case Contract(a, b, over):
                return self._product_terms(a, b, over)
        return tuple((Term(part),) for part in self._gate_blocks(value))

    def _product_terms(self, a: Value, b: Value, over: tuple[str, ...]) -> Sums:
        """The terms of a product. If the product sums over the gate axis, it has one term per gate."""
        if self._gate_axis(a) is None and self._gate_axis(b):
            a, b = b, a
        left, right, gate_axis = self._equal_blocks(a), self._equal_blocks(b), self._gate_axis(a)
        if gate_axis in over:
            rest = tuple(axis for axis in over if axis != gate_axis)
            return (tuple(Term(x, y, rest) for x, y in zip(left, right, strict=True)),)
        return tuple((Term(x, right[0], over),) for x in left)

    def _equal_blocks(self, value: Value) -> tuple[GateBlock, ...]:
        """For each gate, the block that the value copies; the value's own blocks if any of them is not a copy."""
        sums = self(value)
        equal = all(len(terms) == 1 and terms[0] == Term(terms[0].left) for terms in sums)
        return tuple(terms[0].left for terms in sums) if equal else self._gate_blocks(value)

    def _gate_blocks(self, value: Value) -> tuple[GateBlock, ...]:
        axis = self._gate_axis(value)
        if not axis:
            return (GateBlock(value),)
        return tuple(GateBlock(value, k) for k in range(self.axes.constant_extent(axis) or 0))

    def _gate_axis(self, value: Value) -> str | None:
        """The gate axis of a value; None if it has none."""
        return next((axis for axis in value.type.axes if self.axes[axis].labels), None)
