"""Divides the graph of one step into loop nests.

A nest runs over the axes of the values that it computes. Values of more than one axis are computed where they are
needed, again in every nest, because that costs less than writing them to memory. A nest stores results, sums, and the
values that other nests read: those with other axes, and those that are read at other positions. A value whose elements
only have other positions than those of its arguments, such as a concatenation, is a nest of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassgate.engines.symbolic.arrays.value import Value, topological_order
from glassgate.engines.symbolic.graph import NotTraceable


class Memory(NamedTuple):
    """An array in memory.

    Attributes:
        name: the name of the array.
        axes: the names of its axes, in the order of its elements; the last axis is contiguous.
    """

    name: str
    axes: tuple[str, ...]


def leaf(memory: Memory) -> Value:
    """A value that is read from a memory."""
    return Value("memory", (memory,), memory.axes)


def memory_of(value: Value) -> Memory | None:
    """The memory from which a value is read; None for other values."""
    return value.args[0] if value.op == "memory" else None


def is_sum(value: Value) -> bool:
    """Whether a value is a sum over axes of its argument."""
    return value.op == "sum"


def is_view(value: Value) -> bool:
    """Whether a value is read from the memory of its argument, at other positions."""
    return value.op == "index" and all(each.modulus is None for each in value.args[1])


def is_moved(value: Value) -> bool:
    """Whether a value has a nest of its own, because its elements depend on other positions of its arguments."""
    return value.op in ("max", "cumsum", "merge", "cat", "scatter") or (value.op == "index" and not is_view(value))


def root(value: Value) -> Value:
    """The value in whose memory a view is stored; other values themselves."""
    while is_view(value):
        value = value.args[0]
    return value


class Store(NamedTuple):
    """A result of the step.

    Attributes:
        memory: the memory that the value is written to. It may be the memory of a leaf.
        value: the value.
        adds: whether the value is added to the memory, instead of replacing its content.
    """

    memory: Memory
    value: Value
    adds: bool = False


@dataclass(frozen=True)
class Nest:
    """Loops over some axes.

    Attributes:
        axes: the axes, outermost first. Without axes, the nest is straight-line code.
        sums: the reductions over some of these axes.
        kept: the values that other nests read, which have exactly these axes.
        stores: the results with exactly these axes.
    """

    axes: tuple[str, ...]
    sums: tuple[Value, ...]
    kept: tuple[Value, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Move:
    """Loops that write one value at other positions than those of its arguments.

    Attributes:
        item: a value for which `is_moved` is true, or a result in a memory whose axes have another order.
    """

    item: Value | Store


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
        self._of_memory: dict[frozenset[str], tuple[str, ...]] = {}
        for memory in memories:
            self._of_memory.setdefault(frozenset(memory.axes), memory.axes)

    def __call__(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes in the order of loops, outermost first."""
        axes = tuple(axes)
        return self._of_memory.get(frozenset(axes)) or tuple(sorted(axes, key=self._order.__getitem__))


def divide(stores: Sequence[Store], order: Order) -> list[Nest | Move]:
    """Divide a step into nests, so that few nests have many axes.

    Nests with few axes come first, so a nest with many axes begins when all that it could compute is ready.

    Args:
        stores: the results of the step.
        order: the order of loops.
    """
    return _Division(stores, order).run()


class _Division:
    """The division of one step. The arguments are those of `divide`."""

    def __init__(self, stores: Sequence[Store], order: Order) -> None:
        self._order = order
        self._orders: dict[Value, tuple[str, ...]] = {}
        self._pending: list[Value | Store] = []
        self._done: set[Value] = set()
        nodes = topological_order([store.value for store in stores])
        viewed = {memory_of(root(node)) for node in nodes if is_view(node)}
        stores = [_copied(s) if s.memory in viewed and memory_of(root(s.value)) else s for s in stores]
        nodes = topological_order([store.value for store in stores])
        self._late = {store for store in stores if store.memory in viewed or self._is_transposed(store)}
        """The results that are computed completely before the first number is written."""
        separate = {root(s.value) for s in stores if s in self._late or {*s.value.axes} != {*s.memory.axes}}
        for node in nodes:
            axes = set(self._axes(node))
            has_own_nest = is_view(node) or is_moved(node)
            separate |= {root(arg) for arg in node.inputs if has_own_nest or set(arg.axes) != axes}
        for node in nodes:
            if memory_of(node):
                self._done.add(node)
            elif node.op != "constant" and (is_sum(node) or is_moved(node) or node in separate):
                self._pending.append(node)
        self._kept = set(self._pending)
        self._pending += stores

    def _axes(self, item: Value | Store) -> tuple[str, ...]:
        """The axes of the nest that computes an item, outermost first."""
        if isinstance(item, Store):
            return self._order(item.memory.axes)
        return self._order_of_sum(item) if is_sum(item) else self._order(item.axes)

    def _order_of_sum(self, item: Value) -> tuple[str, ...]:
        """The order of the axes of a sum's argument: that of a memory with these axes that the argument reads."""
        if item not in self._orders:
            axes, pending, found = self._order(item.inputs[0].axes), [*item.inputs], list[tuple[str, ...]]()
            while pending:
                node = pending.pop()
                if (memory := memory_of(node)) and {*memory.axes} == {*axes}:
                    found.append(memory.axes)
                if not (is_sum(node) or is_view(node) or is_moved(node)):
                    pending += node.inputs
            self._orders[item] = axes if not found or axes in found else found[0]
        return self._orders[item]

    def _is_transposed(self, store: Store) -> bool:
        return self._axes(store) != store.memory.axes

    def _needs(self, item: Value | Store) -> set[Value]:
        """The leaves, sums and kept values that an item reads."""
        if isinstance(item, Store):
            if item in self._late and item.value.op != "constant":
                return {root(item.value)}
            pending = [item.value]
        elif is_moved(item):
            return {root(arg) for arg in item.inputs if root(arg).op != "constant"}
        else:
            pending = [*item.inputs]
        needs, axes = set(), set(self._axes(item))
        while pending:
            node = pending.pop()
            is_elsewhere = node in self._done or (node in self._kept and set(node.axes) != axes)
            if is_view(node) or memory_of(node) or is_sum(node) or is_moved(node) or is_elsewhere:
                needs.add(root(node))
            else:
                pending += node.inputs
        return needs

    def run(self) -> list[Nest | Move]:
        """Divide the step."""
        nests: list[Nest | Move] = []
        while self._pending:
            axes, items = self._next_items()
            chosen = set(items)
            self._pending = [item for item in self._pending if item not in chosen]
            values = [item for item in items if isinstance(item, Value)]
            self._done |= set(values)
            if self._is_single(items[0]):
                nests.append(Move(items[0]))
                continue
            sums, kept = [v for v in values if is_sum(v)], [v for v in values if not is_sum(v)]
            stores = [item for item in items if isinstance(item, Store)]
            nests.append(Nest(axes, tuple(sums), tuple(kept), tuple(stores)))
        return nests

    def _is_single(self, item: Value | Store) -> bool:
        return self._is_transposed(item) if isinstance(item, Store) else is_moved(item)

    def _next_items(self) -> tuple[tuple[str, ...], list[Value | Store]]:
        """The axes and the items of the next nest."""
        ready = [item for item in self._pending if self._needs(item) <= self._done]
        for item in ready:
            if self._is_single(item) and self._without_early_stores([item]):
                return (), [item]
        ready = [item for item in ready if not self._is_single(item)]
        for axes in sorted({self._axes(item) for item in ready}, key=lambda axes: (len(axes), axes)):
            items = self._without_early_stores([item for item in ready if self._axes(item) == axes])
            if items:
                return axes, items
        raise NotTraceable("states that exchange their values")

    def _without_early_stores(self, items: list[Value | Store]) -> list[Value | Store]:
        """Leave out the stores to memory that another nest reads later."""
        while True:
            chosen = set(items)
            later = [item for item in self._pending if item not in chosen]
            read = {memory_of(node) for item in later for node in self._needs(item)}
            kept = [item for item in items if not (isinstance(item, Store) and item.memory in read)]
            if len(kept) == len(items):
                return items
            items = kept


def _copied(store: Store) -> Store:
    """The store of a copy, for a value that is read from memory and could be overwritten meanwhile."""
    return store._replace(value=Value("add", (store.value, -0.0), store.value.axes))
