"""Divides the graph of one step into loop nests.

A nest runs over the axes of the values that it computes. Values of more than one axis are computed where they are
needed, again in every nest, because that costs less than writing them to memory. A nest stores results, sums, and the
values that nests with other axes read.
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


def divide(stores: Sequence[Store], order: Sequence[str]) -> list[Nest]:
    """Divide a step into nests, so that few nests have many axes.

    Nests with few axes come first, so a nest with many axes begins when all that it could compute is ready.

    Args:
        stores: the results of the step.
        order: the axes in the order of loops, outermost first.
    """
    return _Division(stores, order).run()


class _Division:
    """The division of one step. The arguments are those of `divide`."""

    def __init__(self, stores: Sequence[Store], order: Sequence[str]) -> None:
        self._order = {axis: k for k, axis in enumerate(order)}
        self._pending: list[Value | Store] = []
        self._done: set[Value] = set()
        nodes = topological_order([store.value for store in stores])
        narrow = {store.value for store in stores if {*store.value.axes} != {*store.memory.axes}}
        separate = {arg for node in nodes for arg in node.inputs if set(arg.axes) != set(self._axes(node))}
        for node in nodes:
            if memory_of(node):
                self._done.add(node)
            elif node.op != "constant" and (is_sum(node) or node in separate or node in narrow):
                self._pending.append(node)
        self._kept = set(self._pending)
        self._pending += stores

    def _axes(self, item: Value | Store) -> tuple[str, ...]:
        """The axes of the nest that computes an item, outermost first."""
        if isinstance(item, Store):
            axes: Iterable[str] = item.memory.axes
        else:
            axes = item.inputs[0].axes if is_sum(item) else item.axes
        return tuple(sorted(axes, key=self._order.__getitem__))

    def _needs(self, item: Value | Store) -> set[Value]:
        """The leaves, sums and kept values that an item reads."""
        needs, pending = set(), [item.value] if isinstance(item, Store) else list(item.inputs)
        axes = set(self._axes(item))
        while pending:
            node = pending.pop()
            is_read = memory_of(node) or is_sum(node) or node in self._done
            if is_read or (node in self._kept and set(node.axes) != axes):
                needs.add(node)
            else:
                pending += node.inputs
        return needs

    def run(self) -> list[Nest]:
        """Divide the step."""
        nests = []
        while self._pending:
            axes, items = self._next_items()
            chosen = set(items)
            self._pending = [item for item in self._pending if item not in chosen]
            values = [item for item in items if isinstance(item, Value)]
            self._done |= set(values)
            sums, kept = [v for v in values if is_sum(v)], [v for v in values if not is_sum(v)]
            stores = [item for item in items if isinstance(item, Store)]
            nests.append(Nest(axes, tuple(sums), tuple(kept), tuple(stores)))
        return nests

    def _next_items(self) -> tuple[tuple[str, ...], list[Value | Store]]:
        """The axes and the items of the next nest."""
        ready = [item for item in self._pending if self._needs(item) <= self._done]
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
