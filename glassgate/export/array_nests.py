"""Divides the graph of one step over named axes into loop nests for languages without vectors: C and JavaScript.

A nest runs over the axes of the values that it computes. Sums, maxima and cumulative sums are stored, and so are values
that nests with other axes read, or that are read at other positions. All other values are computed where they are read.
Parts of axes, merged axes and concatenations ("views") are never stored: their elements are read where their arguments
are stored.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from glassgate.engines.symbolic.arrays.value import Value
from glassgate.export.array_graph import ArrayGraph

Axes = tuple[str, ...]
LEAVES = ("ih", "state", "input", "edit")
VIEWS = ("index", "merge", "cat")
REDUCTIONS = ("sum", "max")


@dataclass(frozen=True)
class Nest:
    """Loops over some axes.

    Attributes:
        axes: the axes, in the order of the loops, outermost first.
        values: the values that are stored for other nests: with exactly these axes, or reductions of such values.
        states: the names of the new states that are stored.
    """

    axes: Axes
    values: tuple[Value, ...]
    states: tuple[str, ...]


class Nests:
    """The nests of a step, in order.

    Args:
        graph: the step.

    Attributes:
        nests: the nests.
        stored: the values that nests store for other nests.
    """

    def __init__(self, graph: ArrayGraph) -> None:
        self.graph = graph
        blocks = sorted(graph.state.values(), key=len, reverse=True)
        order = dict.fromkeys([*(axis for axes in blocks for axis in axes), *graph.sizes])
        self._order = {axis: k for k, axis in enumerate(order)}
        self.stored = self._stored()
        self._done: set[Value] = set()
        self.nests: list[Nest] = []
        pending: list[Value | str] = [*(v for v in graph.values if v in self.stored), *graph.states]
        while pending:
            ready = [item for item in pending if self.reads(item) <= self._done]
            axes = min((self._axes(item) for item in ready), key=lambda axes: (len(axes), sorted(axes)))
            items = [item for item in ready if self._axes(item) == axes]
            chosen = {*items}
            pending = [item for item in pending if item not in chosen]
            values = tuple(item for item in items if isinstance(item, Value))
            states = tuple(item for item in items if isinstance(item, str))
            self.nests.append(Nest(self._loops(axes, values), values, states))
            self._done |= {*values}

    def sorted(self, axes: Iterable[str]) -> Axes:
        """Axes in the order of loops and of elements in memory, if no nest needs another order."""
        return tuple(sorted(axes, key=self._order.__getitem__))

    def is_computed(self, value: Value) -> bool:
        """Whether a value is computed from its arguments by an expression."""
        return value.op not in (*LEAVES, *VIEWS, *REDUCTIONS, "cumsum", "constant") and not self.is_constant(value)

    def is_constant(self, value: Value) -> bool:
        """Whether a value depends only on parameters."""
        return value in self.graph.constants

    def _stored(self) -> set[Value]:
        graph = self.graph
        stored = {value for value in graph.values if value.op in (*REDUCTIONS, "cumsum")}
        for value in graph.values:
            axes = self._axes(value)
            moves = value.op in (*VIEWS, "cumsum")
            stored |= {arg for arg in value.inputs if self.is_computed(arg) and (moves or {*arg.axes} != axes)}
        for name, value in graph.states.items():
            if self.is_computed(value) and {*value.axes} != {*graph.state[name]}:
                stored.add(value)
        return stored

    def _axes(self, item: Value | str) -> frozenset[str]:
        """The axes of the nest that computes an item: a value, or the new state of this name."""
        if isinstance(item, str):
            return frozenset(self.graph.state[item])
        return frozenset(item.args[0].axes if item.op in REDUCTIONS else item.axes)

    def reads(self, item: Value | str) -> set[Value]:
        """The stored values that an item reads."""
        reads, axes = set(), self._axes(item)
        inputs = (self.graph.states[item],) if isinstance(item, str) else item.inputs
        pending = [(value, isinstance(item, Value) and item.op == "cumsum") for value in inputs]
        while pending:
            value, is_moved = pending.pop()
            if value in self.stored and (value in self._done or is_moved or not self._is_inside(value, axes)):
                reads.add(value)
            elif not self.is_constant(value):
                pending += [(arg, value.op in VIEWS) for arg in value.inputs]
        return reads

    def can_replace(self, state: str) -> bool:
        """Whether a new state can be written over the old one: nothing reads an element of it afterwards."""
        storing = next(k for k, nest in enumerate(self.nests) if state in nest.states)
        for nest in self.nests[storing:]:
            for leaf, is_moved in self._leaves(nest):
                is_own = leaf.op == "state" and leaf.args == (state,)
                if is_own and (nest is not self.nests[storing] or is_moved or {*leaf.axes} != {*nest.axes}):
                    return False
        return True

    def _leaves(self, nest: Nest) -> set[tuple[Value, bool]]:
        """The leaves that a nest reads, each with whether it is read at other positions."""
        found, own = set[tuple[Value, bool]](), {*nest.values}
        pending = [(arg, value.op == "cumsum") for value in nest.values for arg in value.inputs]
        pending += [(self.graph.states[name], False) for name in nest.states]
        while pending:
            value, is_moved = pending.pop()
            if value.op in LEAVES:
                found.add((value, is_moved))
            elif not self.is_constant(value) and (value not in self.stored or value in own):
                pending += [(arg, is_moved or value.op in VIEWS) for arg in value.inputs]
        return found

    def _is_inside(self, value: Value, axes: frozenset[str]) -> bool:
        """Whether a nest over these axes can compute the value where it reads it."""
        return self.is_computed(value) and {*value.axes} == axes

    def _loops(self, axes: Iterable[str], values: Iterable[Value]) -> Axes:
        """The axes of a nest in the order of loops.

        The product of a constant matrix and a vector has the loop over the rows inside, so that compilers vectorise it.
        """
        loops, reductions = self.sorted(axes), [value for value in values if value.op in REDUCTIONS]
        factors = [arg for value in reductions for arg in value.args[0].inputs if {*arg.axes} == {*axes}]
        if len(loops) > 1 and reductions and factors and all(map(self.is_constant, factors)):
            reduced = [axis for axis in loops if all(axis in value.args[1] for value in reductions)]
            return (*reduced, *(axis for axis in loops if axis not in reduced))
        return loops
