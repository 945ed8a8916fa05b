"""Expresses values of a pass as sums of terms, gate by gate, so that backends can reorder gates and join products."""

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
    """A value, or its block of one gate.

    Attributes:
        value: an input, an element or a sequence of the loop, or the result of an operation that is not a sum.
        gate: the index along the value's axis of gates; None if it has no such axis.
    """

    value: Value
    gate: int | None = None


class Term(NamedTuple):
    """A gate block, or the product of two, summed over some axes.

    Attributes:
        left: the block. In a product, it is the one with an axis of gates, such as a weight or gradients of gates.
        right: the other block of a product; None without a product.
        over: the axes of the sum, without the axis of gates, because each gate has a term of its own.
    """

    left: GateBlock
    right: GateBlock | None = None
    over: tuple[str, ...] = ()


Sums = tuple[tuple[Term, ...], ...]
"""For each gate of a value, the terms that add up to it. A value without an axis of gates has one item."""


class Terms:
    """The terms of the values of a pass.

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
        self._known: dict[Value, Sums] = {}

    def __call__(self, value: Value) -> Sums:
        if value not in self._known:
            self._known[value] = self._sums(value)
        return self._known[value]

    def _sums(self, value: Value) -> Sums:
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
                return ((),) * len(self._own(value))
            case Elementwise("add", (Value() as a, Value() as b)) if self._gates(a) == self._gates(b):
                return tuple(x + y for x, y in zip(self(a), self(b), strict=True))
            case Sum(x, over) if self._gates(x) not in over:
                return tuple((Term(part, None, over),) for part in self._parts(x))
            case Contract(a, b, over):
                return self._products(a, b, over)
        return tuple((Term(part),) for part in self._own(value))

    def _products(self, a: Value, b: Value, over: tuple[str, ...]) -> Sums:
        """A sum over an axis of gates has a term for each gate."""
        if self._gates(a) is None and self._gates(b):
            a, b = b, a
        left, right, gates = self._parts(a), self._parts(b), self._gates(a)
        if gates in over:
            rest = tuple(axis for axis in over if axis != gates)
            return (tuple(Term(x, y, rest) for x, y in zip(left, right, strict=True)),)
        return tuple((Term(x, right[0], over),) for x in left)

    def _parts(self, value: Value) -> tuple[GateBlock, ...]:
        """For each gate of a value, the block that is equal to it."""
        sums = self(value)
        equal = all(len(terms) == 1 and terms[0] == Term(terms[0].left) for terms in sums)
        return tuple(terms[0].left for terms in sums) if equal else self._own(value)

    def _own(self, value: Value) -> tuple[GateBlock, ...]:
        gates = self._gates(value)
        return tuple(GateBlock(value, k) for k in range(self.axes.number(gates) or 0)) if gates else (GateBlock(value),)

    def _gates(self, value: Value) -> str | None:
        """The axis of gates of a value."""
        return next((axis for axis in value.type.axes if self.axes[axis].labels), None)
