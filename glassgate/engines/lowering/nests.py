"""Divides the graph of one step over named axes into loop nests.

A nest runs over the axes of the values that it computes. It stores results, reductions, and the values that other nests
read: those with other axes, and those that are read at other positions. All other values are computed where they are
needed, again in every nest, because that costs less than writing them to memory.

A *view* is a value whose elements are those of others at other positions, such as a part of an axis. It is never
stored: its elements are read where its roots are stored. Targets decide which values are views.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import ClassVar, NamedTuple

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.values import NotTraceable, topological_order

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Memory(ops.Leaf):
    """An array in memory, and the operation of the values that are read from it.

    Attributes:
        name: the name of the array.
        axes: the names of its axes, in the order of its elements; the last axis is contiguous.
    """

    symbol = "memory"
    axes: Axes


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
        reductions: the reductions over some of these axes.
        kept: the other values that nests read later, which have exactly these axes.
        stores: the results with exactly these axes.
    """

    axes: Axes
    reductions: tuple[Value, ...]
    kept: tuple[Value, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Move:
    """Loops of their own for one item, see `Division.is_single`."""

    item: Value | Store


class Division(ABC):
    """Divides one step into nests, so that few nests have many axes.

    Nests with few axes come first, so a nest with many axes begins when all that it could compute is ready.

    Args:
        stores: the results of the step.
        shared: further values that nests store for others instead of computing them again.

    Attributes:
        stored: the values that nests store for others.
    """

    reductions: ClassVar[UnionType | type[ops.Op]] = ops.Sum
    """The reductions that a nest over the axes of their argument accumulates."""

    def __init__(self, stores: Sequence[Store], shared: Collection[Value] = ()) -> None:
        nodes = topological_order([store.value for store in stores])
        self.stored = {node for node in nodes if self.reduces(node) or self.is_moved(node)} | {*shared}
        for store in stores:
            if self.is_late(store) or {*store.value.axes} != {*store.memory.axes}:
                self.stored |= self.roots(store.value)
        for node in nodes:
            axes, reads_elsewhere = (
                {*self.axes(node)},
                self.is_view(node) or self.is_moved(node) or self.reads_all(node),
            )
            for arg in node.inputs:
                if reads_elsewhere or {*arg.axes} != axes:
                    self.stored |= self.roots(arg)
        self.done = {node for node in nodes if self.is_leaf(node)}
        self.stored -= self.done
        self.pending: list[Value | Store] = [*(node for node in nodes if node in self.stored), *stores]

    @abstractmethod
    def order(self, axes: Sequence[str]) -> Axes:
        """Axes in the order of loops, outermost first."""

    def is_leaf(self, value: Value) -> bool:
        """Whether a value is in memory before the step, or is a constant."""
        return isinstance(value.op, ops.Leaf | ops.Constant)

    def reduces(self, value: Value) -> bool:
        """Whether a value is a reduction that a nest over the axes of its argument accumulates."""
        return isinstance(value.op, self.reductions)

    @abstractmethod
    def is_view(self, value: Value) -> bool:
        """Whether the elements of a value are read where its arguments are stored, at other positions."""

    @abstractmethod
    def is_moved(self, value: Value) -> bool:
        """Whether a stored value is computed from elements of its arguments at other positions."""

    def reads_all(self, value: Value) -> bool:
        """Whether a value reads all elements of its arguments, as a matrix product does, in the nest that reads it."""
        return False

    def is_late(self, store: Store) -> bool:
        """Whether a result is computed completely before the first number is written."""
        return False

    def is_single(self, item: Value | Store) -> bool:
        """Whether an item has a nest of its own."""
        return False

    def roots(self, value: Value) -> set[Value]:
        """The values where the elements of a view are stored, except numbers; of other values themselves."""
        if self.is_view(value):
            return {root for arg in value.inputs for root in self.roots(arg)}
        return set() if isinstance(value.op, ops.Constant) else {value}

    def axes(self, item: Value | Store) -> Axes:
        """The axes of the nest that computes an item, outermost first."""
        if isinstance(item, Store):
            return self.order(item.memory.axes)
        return self.order(item.inputs[0].axes if self.reduces(item) else item.axes)

    def needs(self, item: Value | Store) -> set[Value]:
        """The leaves, and the values in memory, that an item reads."""
        if isinstance(item, Store):
            if self.is_late(item):
                return self.roots(item.value)
            pending = [item.value]
        elif self.is_moved(item) or self.reads_all(item):
            return {root for arg in item.inputs for root in self.roots(arg)}
        else:
            pending = [*item.inputs]
        needs, axes = set[Value](), {*self.axes(item)}
        while pending:
            node = pending.pop()
            is_elsewhere = node in self.done or (node in self.stored and {*node.axes} != axes)
            if is_elsewhere or self.is_view(node) or self.reduces(node) or self.is_moved(node):
                needs |= self.roots(node)
            elif self.reads_all(node):
                needs |= {root for arg in node.inputs for root in self.roots(arg)}
            else:
                pending += node.inputs
        return needs

    def nests(self) -> Iterator[Nest | Move]:
        """Divide the step."""
        while self.pending:
            items = self.next_items()
            chosen = {*items}
            self.pending = [item for item in self.pending if item not in chosen]
            values = [item for item in items if isinstance(item, Value)]
            self.done |= {*values}
            if self.is_single(items[0]):
                yield Move(items[0])
                continue
            reductions = tuple(value for value in values if self.reduces(value))
            kept = tuple(value for value in values if not self.reduces(value))
            stores = tuple(item for item in items if isinstance(item, Store))
            yield Nest(self.axes(items[0]), reductions, kept, stores)

    def next_items(self) -> list[Value | Store]:
        """The items of the next nest."""
        ready = [item for item in self.pending if self.needs(item) <= self.done]
        for item in ready:
            if self.is_single(item) and self.without_early_stores([item]):
                return [item]
        ready = [item for item in ready if not self.is_single(item)]
        for axes in sorted({self.axes(item) for item in ready}, key=lambda axes: (len(axes), axes)):
            if items := self.without_early_stores([item for item in ready if self.axes(item) == axes]):
                return items
        raise NotTraceable("states that exchange their values")

    def without_early_stores(self, items: list[Value | Store]) -> list[Value | Store]:
        """Leave out the stores to memory that another nest reads later."""
        while True:
            chosen = {*items}
            read = {self.memory_of(node) for item in self.pending if item not in chosen for node in self.needs(item)}
            kept = [item for item in items if not (isinstance(item, Store) and item.memory in read)]
            if len(kept) == len(items):
                return items
            items = kept

    def memory_of(self, value: Value) -> Memory | None:
        """The memory from which a value is read, if the step writes to it."""
        return None
