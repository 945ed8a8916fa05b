"""Symbolic values: what a cell's step computes, as a graph that can be simplified, differentiated and printed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.symbolic.operations import ALIASES, COMPOSED, MASKS, OPERATIONS, REDUCTIONS
from glassgate.engines.symbolic.simplify import simpler


class NotTraceable(TypeError):
    """A step does something that no kernel has; the message names it."""


Key = tuple[str, int]
"""A column of a buffer: the buffer's name and which of its columns, each as wide as a state."""


def _binary(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator and its reflection."""
    return lambda a, b: make(op, a, b), lambda a, b: make(op, b, a)


@dataclass(eq=False, slots=True)
class Call:
    """A function of torch, or of the cell's author, whose results take more than one operation to compute.

    Attributes:
        name: the function's.
        args: what it was given: nodes and numbers.
        results: how many values it gave.
        of_torch: whether it is torch's.
    """

    name: str
    args: tuple[Any, ...]
    results: int
    of_torch: bool

    def mark(self, results: "list[Node]") -> None:
        """Notes this call as the origin of its results, where it says more than their own operations do."""
        given = set(map(id, self.args))
        for k, node in enumerate(results):
            if id(node) not in given and any(id(arg) not in given for arg in node.inputs):
                node.origin = self, k


@dataclass(eq=False, slots=True)
class Node:
    """One value of a step: an elementwise operation of `OPERATIONS`, a row-wide operation, or a leaf.

    Row-wide operations:
        row_sum (x): the sum over the units of a row, one number a row.
        hh (gate, u): `W_hh u + b_hh`, the rows of that gate.
        sum (gate, u): `W_ih x + b_ih + W_hh u + b_hh`, the rows of that gate.
        hr (u): `W_hr u`, to the projected size.
        hh_t (gates, d, d, ...): the sum over the gates of the transposed product of the gate's rows with its `d`.
        hr_t (d): the transposed product of `W_hr`.
    Leaves:
        ih (gate): `W_ih x + b_ih`; state (name): before the step; parameter (name, gate or None); noise (name).
        saved (buffer, column): in a backward graph, what the forward pass has kept.
        grad (name): in a backward graph, the whole gradient that reaches a new state.
        size (axis): the number of units as a float; constant (value).

    Attributes:
        op: the operation's name.
        args: nodes, numbers and names.
        axis: "H" one value a unit, "P" one a projected unit, "1" one a row.
        name: the author's name for it, unique in its graph; None for what the author left unnamed.
        serial: grows with every node made.
        origin: in a graph as its author wrote it, the call that gave the value, and as which of its results.
    """

    op: str
    args: tuple[Any, ...]
    axis: str
    name: str | None = None
    serial: int = field(default_factory=count().__next__)
    origin: tuple[Call, int] | None = None

    @property
    def inputs(self) -> tuple["Node", ...]:
        """The arguments that are nodes."""
        return tuple(arg for arg in self.args if isinstance(arg, Node))

    @property
    def units(self) -> "Node":
        """How many units the value has."""
        return Node("size", (self.axis,), "1")

    def filled(self, value: float) -> "Node":
        """A constant of the same shape."""
        return Node("constant", (float(value),), self.axis)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        name = name[2:-2] if name.startswith("__") and name.endswith("__") else name
        function = _function(name)
        if function is None:
            raise NotTraceable(torch.overrides.resolve_name(func) or name)
        return function(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _function(name)
        if function is None:
            raise NotTraceable(f"torch.Tensor.{name}")
        return partial(function, self)

    def __repr__(self) -> str:
        args = ", ".join((a.name or a.op) if isinstance(a, Node) else str(a) for a in self.args)
        return f"{self.name or '_'}[{self.axis}] = {self.op}({args})"

    def __bool__(self) -> bool:
        raise NotTraceable("a branch on a computed value")

    def __iter__(self) -> Iterator[Any]:
        raise NotTraceable("iteration over a tensor")

    def __getitem__(self, index: Any) -> Any:
        raise NotTraceable("indexing")

    def __float__(self) -> float:
        raise NotTraceable("the number inside a tensor")

    def __neg__(self) -> "Node":
        return make("neg", self)

    def __abs__(self) -> "Node":
        return make("abs", self)

    def __invert__(self) -> "Node":
        return make("logical_not", self)

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __pow__, __rpow__ = _binary("pow")
    __and__, __rand__ = _binary("logical_and")
    __or__, __ror__ = _binary("logical_or")
    __lt__, __gt__ = _binary("lt")
    __le__, __ge__ = _binary("le")
    __eq__, _ = _binary("eq")
    __ne__, _ = _binary("ne")
    __hash__ = object.__hash__


def make(op: str, *args: Any) -> Node:
    """The node of an elementwise operation, or something simpler that equals it."""
    values = [_value(arg) for arg in args]
    if op not in MASKS and op != "where":
        values = [_number(v) for v in values]
    simple = simpler(op, *values)
    if simple is not None:
        return simple
    axes = {v.axis for v in values if isinstance(v, Node)} - {"1"}
    if len(axes) > 1:
        raise NotTraceable(f"torch.{op} of a value of the hidden size and one of the projected size")
    return Node(op, tuple(values), axes.pop() if axes else "1")


def _value(arg: Any) -> "Node | float":
    if isinstance(arg, Node):
        return arg
    if isinstance(arg, (bool, int, float)):
        return float(arg)
    if isinstance(arg, Tensor) and arg.dim() == 0 and not arg.requires_grad:
        return float(arg)
    raise NotTraceable(f"a {type(arg).__name__} of its own that is neither a number nor one of its parameters")


def _number(value: "Node | float") -> "Node | float":
    """A mask as ones and zeros."""
    return make("where", value, 1.0, 0.0) if isinstance(value, Node) and value.op in MASKS else value


def _function(name: str) -> Callable[..., Any] | None:
    """What torch's function of that name does to nodes; None for one that is not in the table."""
    name = ALIASES.get(name, name)
    function = COMPOSED.get(name) or (partial(make, name) if name in OPERATIONS else None)
    if name == "sum":
        function = _sum
    return function and partial(_call, name, function)


def _call(name: str, function: Callable[..., Any], *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
    first = (kwargs.pop("input"),) if "input" in kwargs else ()
    if not inplace:
        try:
            result = function(*first, *args, **kwargs)
            if name in COMPOSED and isinstance(result, Node):
                kinds = Node if name in REDUCTIONS else Node | float | int
                given = tuple(v for v in (*first, *args, *kwargs.values()) if isinstance(v, kinds))
                Call(name, given, 1, of_torch=True).mark([result])
            return result
        except TypeError as error:
            if isinstance(error, NotTraceable):
                raise
    raise NotTraceable(f"torch.{name} with these arguments")


def row_sum(x: Node) -> Node:
    """The sum over the units of each row."""
    return x if x.axis == "1" else Node("row_sum", (x,), "1")


def _sum(x: Node, dim: Any = None, keepdim: bool = False) -> Node:
    if dim not in (-1, 1, (-1,), (1,), [-1], [1]) or not keepdim:
        raise NotTraceable("a reduction over anything but the last dimension with keepdim=True")
    return row_sum(x)


def spread(x: Node | float, axis: str) -> Node:
    """A number, or one number a row, as a value of every unit."""
    if isinstance(x, float):
        return Node("constant", (x,), axis)
    return x if x.axis == axis else Node("constant", (0.0,), axis) + x


@dataclass(frozen=True)
class Graph:
    """Results by the column that they go to."""

    outputs: dict[Key, Node]

    @property
    def nodes(self) -> list[Node]:
        """All nodes that the results need, each after its inputs."""
        return ordered(self.outputs.values())


def ordered(results: Iterable[Node]) -> list[Node]:
    """All nodes that the results need, in the order of their making, which puts each after its inputs."""
    found: set[Node] = set()
    open_ = list(results)
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_ += node.inputs
    return sorted(found, key=lambda node: node.serial)
