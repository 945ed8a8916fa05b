"""Divides the graph of one step over named axes into loop nests, for C and JavaScript."""

from collections import Counter
from collections.abc import Sequence

from glassgate.engines.lowering.nests import Axes, Division, Memory, Nest, Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.export.weighted_step import Affine, Fixed, WeightedStep


class Nests(Division):
    """The nests of a step, in order. A result is stored in a memory of its name.

    Args:
        step: the step.
    """

    reductions = ops.Sum | ops.Max

    def __init__(self, step: WeightedStep) -> None:
        blocks = sorted(step.state.values(), key=len, reverse=True)
        order = dict.fromkeys([*(axis for axes in blocks for axis in axes), *step.sizes])
        self._order = {axis: k for k, axis in enumerate(order)}
        stores = [Store(Memory(name, step.state[name]), value) for name, value in step.states.items()]
        shared, needless = set[Value](), set[Value]()
        while True:
            super().__init__(stores, shared)
            self.all = [nest for nest in self.nests() if isinstance(nest, Nest)]
            needless |= shared - self._read_by_others()
            new = (shared | self._repeated()) - needless
            if new == shared:
                break
            shared = new

    def order(self, axes: Sequence[str]) -> Axes:
        """Axes in the order of loops and of elements in memory, if no nest needs another order."""
        return tuple(sorted(axes, key=self._order.__getitem__))

    def is_view(self, value: Value) -> bool:
        """Whether a value is a part of an axis, a merged axis or a concatenation."""
        return isinstance(value.op, ops.Gather | ops.Merge | ops.Concatenate)

    def is_moved(self, value: Value) -> bool:
        """Whether a value is a cumulative sum."""
        return isinstance(value.op, ops.CumulativeSum)

    def reads_all(self, value: Value) -> bool:
        """Whether a value is a sum of matrix products."""
        return isinstance(value.op, Affine)

    def roots_of(self, nest: Nest) -> list[Value]:
        """The values that a nest stores or reduces."""
        reduced = [arg for value in nest.reductions for arg in value.inputs]
        return [*reduced, *(v for v in nest.kept if not self.is_moved(v)), *(store.value for store in nest.stores)]

    def inside(self, nest: Nest) -> list[Value]:
        """The values that a nest computes, each after its inputs."""
        inside, own, pending = set[Value](), {*nest.reductions, *nest.kept}, self.roots_of(nest)
        while pending:
            value = pending.pop()
            is_read = value in self.stored and value not in own
            is_sum = self.reads_all(value)
            if (is_sum or isinstance(value.op, str)) and not is_read and value not in inside:
                inside.add(value)
                pending += () if is_sum else value.inputs
        return sorted(inside, key=lambda value: value.serial)

    def _repeated(self) -> set[Value]:
        """The vectors that several nests compute, and that such a nest reads for a value which only this nest computes.

        Values with more axes are computed again, because that costs less than writing them to memory.
        """
        inside = {nest: self.inside(nest) for nest in self.all}
        count = Counter(value for values in inside.values() for value in values)
        repeated = {value for value in count if count[value] > 1 and (len(value.axes) == 1 or self.reads_all(value))}
        found = set[Value]()
        for nest, values in inside.items():
            readers = [value for value in values if value not in repeated and not self.reads_all(value)]
            found |= repeated.intersection(arg for value in readers for arg in value.inputs)
            found |= repeated.intersection(self.roots_of(nest))
        return found

    def _read_by_others(self) -> set[Value]:
        """The stored values that a nest reads which does not compute them."""
        found = set[Value]()
        for nest in self.all:
            read = {arg for value in self.inside(nest) for arg in value.inputs} | {*self.roots_of(nest)}
            read |= {arg for value in nest.kept if self.is_moved(value) for arg in value.inputs}
            found |= {root for value in read for root in self.roots(value)} - {*nest.kept}
        return found

    def can_replace(self, state: str, at_once: bool = False) -> bool:
        """Whether a new state can be written over the old one: nothing reads an element of it afterwards.

        Args:
            state: the name of the state.
            at_once: whether the nest that stores the state computes all matrix products before it.
        """
        leaf_op = ops.State(state)
        storing = next(k for k, nest in enumerate(self.all) if any(s.memory.name == state for s in nest.stores))
        if any(s.value.op == leaf_op and s.memory.name != state for s in self.all[storing].stores):
            return False
        for nest in self.all[storing:]:
            is_storing = nest is self.all[storing]
            for leaf, is_moved in self._leaves(nest, with_products=not (is_storing and at_once)):
                is_own = leaf.op == leaf_op
                if is_own and (not is_storing or is_moved or {*leaf.axes} != {*nest.axes}):
                    return False
        return True

    def _leaves(self, nest: Nest, with_products: bool) -> set[tuple[Value, bool]]:
        """The leaves that a nest reads, each with whether it is read at other positions."""
        found, own = set[tuple[Value, bool]](), {*nest.reductions, *nest.kept}
        pending = [(value, False) for value in (*own, *(store.value for store in nest.stores))]
        while pending:
            value, is_moved = pending.pop()
            reads_all = self.reads_all(value)
            if self.is_leaf(value):
                found.add((value, is_moved))
            elif (value not in self.stored or value in own) and (with_products or not reads_all):
                is_moved = is_moved or reads_all or self.is_view(value) or self.is_moved(value)
                pending += [(arg, is_moved) for arg in value.inputs]
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
