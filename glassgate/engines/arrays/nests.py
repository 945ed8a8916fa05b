"""Divides the graph of one step into loop nests of vectors.

A value whose elements only have other positions than those of its arguments, such as a concatenation, is a nest of its
own, except for parts of axes, which are read in place.
"""

from collections.abc import Iterable, Sequence

from glassgate.engines.lowering.nests import Axes, Division, Memory, Move, Nest, Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value, leaf
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.values import topological_order


def read(memory: Memory) -> Value:
    """A value that is read from a memory."""
    return leaf(memory, memory.axes)


def memory_of(value: Value) -> Memory | None:
    """The memory from which a value is read; None for other values."""
    return value.op if isinstance(value.op, Memory) else None


def is_constant(value: Value) -> bool:
    """Whether a value is a number."""
    return isinstance(value.op, ops.Constant)


def is_sum(value: Value) -> bool:
    """Whether a value is a sum over axes of its argument."""
    return isinstance(value.op, ops.Sum)


def is_view(value: Value) -> bool:
    """Whether a value is read from the memory of its argument, at other positions."""
    return isinstance(value.op, ops.Gather) and all(each.modulus is None for each in value.op.indices)


_MOVES = ops.Max | ops.CumulativeSum | ops.Merge | ops.Concatenate | ops.Scatter | ops.Gather


def is_moved(value: Value) -> bool:
    """Whether a value has a nest of its own, because its elements depend on other positions of its arguments."""
    return isinstance(value.op, _MOVES) and not is_view(value)


def root(value: Value) -> Value:
    """The value in whose memory a view is stored; other values themselves."""
    while is_view(value):
        (value,) = value.inputs
    return value


class Order:
    """The order of loops: that of the elements in a memory with the same axes, if there is one.

    Args:
        stores: the results of the step.
        order: all axes in the order of loops over other axes, outermost first.
    """

    def __init__(self, stores: Sequence[Store], order: Sequence[str]) -> None:
        self._order = {axis: k for k, axis in enumerate(order)}
        nodes = topological_order([store.value for store in stores])
        memories = [memory for node in nodes if (memory := memory_of(node))] + [store.memory for store in stores]
        self._of_memory: dict[frozenset[str], Axes] = {}
        for memory in memories:
            self._of_memory.setdefault(frozenset(memory.axes), memory.axes)

    def __call__(self, axes: Iterable[str]) -> Axes:
        """Axes in the order of loops, outermost first."""
        axes = tuple(axes)
        return self._of_memory.get(frozenset(axes)) or tuple(sorted(axes, key=self._order.__getitem__))


def divide(stores: Sequence[Store], order: Order, costs: Costs) -> list[Nest | Move]:
    """Divide a step into nests.

    Args:
        stores: the results of the step.
        order: the order of loops.
        costs: the costs of operations. Only one nest computes an operation that costs more than `carry`, except in
            values with most axes, which cost more to store.
    """
    return [*_Division(stores, order, costs).nests()]


class _Division(Division):
    """The division of one step. The arguments are those of `divide`."""

    def __init__(self, stores: Sequence[Store], order: Order, costs: Costs) -> None:
        self._order = order
        self._orders: dict[Value, Axes] = {}
        nodes = topological_order([store.value for store in stores])
        most = max([len(node.axes) for node in nodes], default=0)
        shared = {node for node in nodes if costs.of(node.op) > costs.carry and (len(node.axes) < most or most < 2)}
        self._viewed = {memory_of(root(node)) for node in nodes if is_view(node)}
        stores = [_copied(s) if s.memory in self._viewed and memory_of(root(s.value)) else s for s in stores]
        super().__init__(stores, shared)

    def order(self, axes: Sequence[str]) -> Axes:
        """Axes in the order of loops, outermost first."""
        return self._order(axes)

    def memory_of(self, value: Value) -> Memory | None:
        """The memory from which a value is read."""
        return memory_of(value)

    def is_view(self, value: Value) -> bool:
        """Whether a value is a part of an axis."""
        return is_view(value)

    def is_moved(self, value: Value) -> bool:
        """Whether a value has a nest of its own."""
        return is_moved(value)

    def is_late(self, store: Store) -> bool:
        """Whether a result is copied after it is complete: to memory that views read, or with another order of axes."""
        return store.memory in self._viewed or self.is_single(store)

    def is_single(self, item: Value | Store) -> bool:
        """Whether an item is copied to other positions."""
        return self.axes(item) != item.memory.axes if isinstance(item, Store) else is_moved(item)

    def axes(self, item: Value | Store) -> Axes:
        """The axes of the nest that computes an item: for a sum, in the order of a memory that its argument reads."""
        if isinstance(item, Store) or not is_sum(item):
            return super().axes(item)
        if item not in self._orders:
            axes, pending, found = super().axes(item), [*item.inputs], list[Axes]()
            while pending:
                node = pending.pop()
                if (memory := memory_of(node)) and {*memory.axes} == {*axes}:
                    found.append(memory.axes)
                if not (is_sum(node) or is_view(node) or is_moved(node)):
                    pending += node.inputs
            self._orders[item] = axes if not found or axes in found else found[0]
        return self._orders[item]


def _copied(store: Store) -> Store:
    """The store of a copy, for a value that is read from memory and could be overwritten meanwhile."""
    return store._replace(value=Value("add", (store.value, -0.0), store.value.axes))


def with_number_masks(stores: Sequence[Store]) -> list[Store]:
    """The stores, with ones and zeros instead of masks in values that nests with other axes read."""
    new: dict[Value, Value] = {}

    def argument(arg: Value | float, user: Value) -> Value | float:
        if not isinstance(arg, Value):
            return arg
        if new[arg].op not in MASKS or {*arg.axes} == {*user.axes}:
            return new[arg]
        number = Value("where", (new[arg], 1.0, 0.0), arg.axes)
        return Value("ne", (number, 0.0), user.axes)

    for value in topological_order([store.value for store in stores]):
        if (is_view(value) or is_moved(value)) and any(new[arg].op in MASKS for arg in value.inputs):
            numbers = tuple([Value("where", (new[arg], 1.0, 0.0), arg.axes) for arg in value.inputs])
            new[value] = Value("ne", (value.with_args(numbers), 0.0), value.axes)
            continue
        args = tuple([argument(arg, value) for arg in value.args])
        changed = any(a is not b for a, b in zip(args, value.args, strict=True))
        new[value] = value.with_args(args) if changed else value
    return [store._replace(value=new[store.value]) for store in stores]
