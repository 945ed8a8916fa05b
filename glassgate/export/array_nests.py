"""Divides the graph of one step over named axes into loop nests for languages without vectors: C and JavaScript."""

from collections.abc import Sequence

from glassgate.engines.lowering.nests import Axes, Division, Memory, Nest, Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.export.array_graph import ArrayGraph, Fixed


class Nests(Division):
    """The nests of a step, in order. A new state is a result in a memory of its name.

    Args:
        graph: the step.
    """

    reductions = ops.Sum | ops.Max

    def __init__(self, graph: ArrayGraph) -> None:
        blocks = sorted(graph.state.values(), key=len, reverse=True)
        order = dict.fromkeys([*(axis for axes in blocks for axis in axes), *graph.sizes])
        self._order = {axis: k for k, axis in enumerate(order)}
        super().__init__([Store(Memory(name, graph.state[name]), value) for name, value in graph.states.items()])
        self.all = [nest for nest in self.nests() if isinstance(nest, Nest)]

    def order(self, axes: Sequence[str]) -> Axes:
        """Axes in the order of loops and of elements in memory, if no nest needs another order."""
        return tuple(sorted(axes, key=self._order.__getitem__))

    def is_view(self, value: Value) -> bool:
        """Whether a value is a part of an axis, a merged axis or a concatenation."""
        return isinstance(value.op, ops.Gather | ops.Merge | ops.Concatenate)

    def is_moved(self, value: Value) -> bool:
        """Whether a value is a cumulative sum."""
        return isinstance(value.op, ops.CumulativeSum)

    def is_computed(self, value: Value) -> bool:
        """Whether a value is computed from its arguments by an expression."""
        return isinstance(value.op, str)

    def can_replace(self, state: str) -> bool:
        """Whether a new state can be written over the old one: nothing reads an element of it afterwards."""
        storing = next(k for k, nest in enumerate(self.all) if any(s.memory.name == state for s in nest.stores))
        for nest in self.all[storing:]:
            for leaf, is_moved in self._leaves(nest):
                is_own = leaf.op == ops.State(state)
                if is_own and (nest is not self.all[storing] or is_moved or {*leaf.axes} != {*nest.axes}):
                    return False
        return True

    def _leaves(self, nest: Nest) -> set[tuple[Value, bool]]:
        """The leaves that a nest reads, each with whether it is read at other positions."""
        found, own = set[tuple[Value, bool]](), {*nest.reductions, *nest.kept}
        pending = [(arg, self.is_moved(value)) for value in own for arg in value.inputs]
        pending += [(store.value, False) for store in nest.stores]
        while pending:
            value, is_moved = pending.pop()
            if self.is_leaf(value):
                found.add((value, is_moved))
            elif value not in self.stored or value in own:
                pending += [(arg, is_moved or self.is_view(value)) for arg in value.inputs]
        return found

    def loops(self, nest: Nest) -> Axes:
        """The axes of a nest in the order of loops.

        The product of a constant matrix and a vector has the loop over the rows inside, so that compilers vectorise it.
        """
        factors = [arg for v in nest.reductions for arg in v.inputs[0].inputs if {*arg.axes} == {*nest.axes}]
        if len(nest.axes) > 1 and factors and all(isinstance(factor.op, Fixed) for factor in factors):
            reduced = [axis for axis in nest.axes if not any(axis in value.axes for value in nest.reductions)]
            return (*reduced, *(axis for axis in nest.axes if axis not in reduced))
        return nest.axes
