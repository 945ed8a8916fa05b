"""The terms of a diagram from the step of a cell that declares axes."""

from typing import Any

from glassgate.cell import Cell
from glassgate.cell_shapes import example_sizes
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep, array_step
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.ops import Index
from glassgate.glass.diagrams.terms import Term, product_of_pre_activation


def array_terms(cell: Cell) -> tuple[ArrayStep, list[Term]]:
    """Return the step of a cell in a small layer, and the term of each new state.

    Raises:
        NotTraceable: the step uses an operation that no graph can express.
    """
    step = array_step(cell, *example_sizes(cell))
    builder = _ArrayTerms(step)
    return step, [builder.term(value) for value in step.states]


class _ArrayTerms:
    """Converts values over named axes to terms. A value that only renames an axis has the term of its argument."""

    def __init__(self, step: ArrayStep) -> None:
        self._sizes = step.sizes
        self._known: dict[Value, Term] = {}

    def term(self, value: Value) -> Term:
        if value not in self._known:
            self._known[value] = self._new(value)
        return self._known[value]

    def _new(self, value: Value) -> Term:
        op = value.op if isinstance(value.op, str) else value.op.symbol
        args: tuple[Any, ...] = value.args
        match value.op:
            case ops.Gather(indices):
                (x,) = value.inputs
                parts = [self._part(axis, each) for axis, each in zip(x.axes, indices, strict=True)]
                text = ", ".join(part for part in parts if part)
                if not text:
                    return self.term(x)
                op, args = "part", (x, text)
            case ops.Sum(axes) | ops.Max(axes) | ops.Merge(axes, _):
                args = *args, ", ".join(map(_plain, axes))
            case ops.CumulativeSum(axis, _):
                args = *args, _plain(axis)
            case ops.RecurrentHalf(gate):
                args = gate, *args
            case ops.Leaf() | ops.Constant():
                args = value.op.contents
            case "add" if (product := product_of_pre_activation(value)) is not None:
                op, args = "pre", product
        return Term(op, tuple(self._argument(arg) for arg in args), value.name, value)

    def _argument(self, arg: Any) -> Any:
        return self.term(arg) if isinstance(arg, Value) else arg

    def _part(self, axis: str, each: Index) -> str:
        """The text of an index along an axis; empty for the whole axis."""
        axis = _plain(axis)
        if not each.terms:
            return f"{axis} {each.offset}"
        if len(each.terms) > 1:
            return f"{axis} = {' × '.join(_plain(own) for own, _ in each.terms)}"
        ((own, factor),) = each.terms
        if each.modulus is not None:
            return f"{axis} rolled"
        if factor < 0:
            return f"{axis} reversed"
        if each.offset or factor != 1 or self._sizes[own] != self._sizes[_plain(axis)]:
            return f"{axis} {each.offset}:{each.offset + factor * self._sizes[own]}" + f":{factor}" * (factor != 1)
        return ""


def _plain(axis: str) -> str:
    return axis.rstrip("'")
