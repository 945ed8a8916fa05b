"""Symbolic values: the operations of a cell's step as a graph that can be simplified, differentiated and printed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.operations import ALIASES, COMPOSED, MASKS, OPERATIONS, REDUCTIONS
from glassgate.engines.symbolic.simplify import simplify
from glassgate.engines.symbolic.values import TRACING, NotTraceable, Symbolic


def _in_place_operator(op: str, sign: str) -> Callable[["Node", Any], "Node"]:
    """The in-place version of an operator."""

    def write(self: "Node", other: Any) -> "Node":
        if self.op not in OPERATIONS or self.op in MASKS or self.op == "detach":
            raise NotTraceable(f"`{sign}` on {self.name or 'a value'}, which a step must not change")
        new = make(op, self, other)
        if new.axis != self.axis:
            raise NotTraceable(f"`{sign}` with a right side that is larger than the left side")
        TRACING.overwritten.add(self)
        return new

    return write


def _refusing_method(operation: str) -> Callable[..., Any]:
    """A method that raises `NotTraceable`, for an operation that nodes do not support."""

    def refuse(self: "Node", *args: Any) -> Any:
        raise NotTraceable(operation)

    return refuse


@dataclass(eq=False, slots=True)
class Call:
    """A call of a function, by torch or by the cell's author, that consists of more than one operation.

    Attributes:
        name: the name of the function.
        args: the arguments of the call: nodes and numbers.
        result_count: the number of its results.
        of_torch: whether the function belongs to torch.
    """

    name: str
    args: tuple[Any, ...]
    result_count: int
    of_torch: bool

    def mark(self, results: "list[Node]") -> None:
        """Set this call as the origin of its results, unless they are arguments or single operations on arguments."""
        arg_ids = set(map(id, self.args))
        for k, node in enumerate(results):
            if id(node) not in arg_ids and any(id(arg) not in arg_ids for arg in node.inputs):
                node.origin = self, k


@dataclass(eq=False, slots=True)
class Node(Symbolic):
    """One value of a step, for each unit or for each row.

    Attributes:
        op: the name of an elementwise operation, or an operation of `ops.py`.
        args: nodes and numbers.
        axis: the axis of the value within a row.
        name: the author's name of the value, unique in its graph; None if the author did not name it.
        serial: a number that increases with every new node.
        origin: the call that returned the value, and the value's index among the results; None for a single operation.
    """

    op: ops.Operation
    args: "tuple[Node | float, ...]"
    axis: Axis
    name: str | None = None
    serial: int = field(default_factory=count().__next__)
    origin: tuple[Call, int] | None = None

    @property
    def form(self) -> tuple[ops.Operation | Axis, ...]:
        """The operation and the axis."""
        return self.op, self.axis

    def with_args(self, args: "tuple[Node | float, ...]") -> "Node":
        """The same operation of other arguments, without a name."""
        return Node(self.op, args, self.axis)

    @property
    def units(self) -> "Node | float":
        """The number of units of the value."""
        return 1.0 if self.axis == PER_ROW else size(self.axis)

    def constant_like(self, value: float) -> "Node":
        """A constant with the shape of this value."""
        return constant(value, self.axis)

    def operation(self, op: str, *args: Any) -> Any:
        """An elementwise operation, see `make`."""
        return make(op, *args)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        name = name[2:-2] if name.startswith("__") and name.endswith("__") else name
        function = _torch_function(name)
        if function is None:
            raise NotTraceable(torch.overrides.resolve_name(func) or name)
        return function(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _torch_function(name)
        if function is None:
            raise NotTraceable(f"torch.Tensor.{name}")
        return partial(function, self)

    def __repr__(self) -> str:
        op, own = (self.op, ()) if isinstance(self.op, str) else (self.op.symbol, self.op.contents)
        args = [str(a) if isinstance(a, float) else a.name or f"_{a.serial}" for a in self.args]
        return f"{self.name or f'_{self.serial}'}[{self.axis}] = {op}({', '.join([*map(str, own), *args])})"

    __bool__ = _refusing_method("a branch on a computed value")
    __iter__ = _refusing_method("iteration over a tensor")
    __contains__ = _refusing_method("`in` on a tensor")
    __len__ = _refusing_method("the length of a tensor")
    __getitem__ = _refusing_method("indexing")
    __setitem__ = __delitem__ = _refusing_method("writing to a part of a tensor")
    __float__ = __int__ = __index__ = __complex__ = _refusing_method("the number inside a tensor")
    __round__ = __floor__ = __ceil__ = __trunc__ = __float__
    __array__ = __array_ufunc__ = __array_function__ = _refusing_method("numpy")
    __divmod__ = __rdivmod__ = _refusing_method("divmod")
    __floordiv__ = __rfloordiv__ = __ifloordiv__ = _refusing_method("`//`")
    __matmul__ = __rmatmul__ = __imatmul__ = _refusing_method("`@`")
    __lshift__ = __rlshift__ = __ilshift__ = __rshift__ = __rrshift__ = __irshift__ = _refusing_method(
        "a shift of bits"
    )

    __iadd__, __isub__ = _in_place_operator("add", "+="), _in_place_operator("sub", "-=")
    __imul__, __itruediv__, __ipow__, __imod__ = (
        _in_place_operator("mul", "*="),
        _in_place_operator("div", "/="),
        _in_place_operator("pow", "**="),
        _in_place_operator("remainder", "%="),
    )
    __iand__ = __ior__ = __ixor__ = _refusing_method("writing to a mask")


def make(op: str, *args: Any) -> Node:
    """Return a node for an elementwise operation, or a simpler node or number with the same value."""
    if TRACING.refusals is not None:
        _check_mode()
    if op in MASK_OPERATORS:
        op, args = MASK_OPERATORS[op][0], tuple([_expect_mask(arg, MASK_OPERATORS[op][1]) for arg in args])
    values = [_operand(arg) for arg in args]
    if op == "where" and isinstance(values[0], Node) and values[0].op not in MASKS:
        raise NotTraceable("torch.where with a condition that is not a mask")
    if op in _LOGICAL:
        values = [v if isinstance(v, Node) and v.op in MASKS else make("ne", v, 0.0) for v in values]
        if any(isinstance(v, float) for v in values):
            raise NotTraceable(f"torch.{op} of a number")
    elif op == "where":
        values = [values[0], *map(_number, values[1:])]
    else:
        values = [_number(v) for v in values]
    simple = simplify(op, *values)
    if simple is not None:
        return simple
    axes = {v.axis for v in values if isinstance(v, Node)} - {PER_ROW}
    if len(axes) > 1:
        raise NotTraceable(f"torch.{op} of a value of the hidden size and one of the projected size")
    return Node(op, tuple(values), axes.pop() if axes else PER_ROW)


_LOGICAL = ("logical_and", "logical_or", "logical_not")
MASK_OPERATORS = {
    "bitwise_and": ("logical_and", "&"), "bitwise_or": ("logical_or", "|"), "bitwise_xor": ("ne", "^"),
    "bitwise_not": ("logical_not", "~"),
}  # fmt: skip
"""For each operator of masks: the operation, and the sign for messages."""


def _expect_mask(value: Any, sign: str) -> "Node":
    if isinstance(value, Node) and value.op in MASKS:
        return value
    raise NotTraceable(f"`{sign}` on a value that is not a mask")


def _check_mode() -> None:
    """Reject a step that disables gradients or enables autocast, because kernels do neither."""
    if not torch.is_grad_enabled():
        raise NotTraceable("torch.no_grad() or a torch.autograd.Function")
    if torch.is_autocast_enabled("cpu"):
        raise NotTraceable("torch.autocast")


def _operand(arg: Any) -> "Node | float":
    if isinstance(arg, Node):
        if arg in TRACING.overwritten:
            raise NotTraceable(f"{arg.name or 'a value'} again after it was written to through another name")
        return arg
    if isinstance(arg, (bool, int, float)):
        return float(arg)
    if isinstance(arg, Tensor) and arg.dim() == 0 and not arg.requires_grad:
        return float(arg)
    raise NotTraceable(f"a {type(arg).__name__} that is neither a number nor one of the cell's parameters")


def check_state(value: Any) -> "Node":
    """Return a new state unchanged, if it is a node that stores one number per unit or per row.

    Raises:
        NotTraceable: the value is anything else, such as a mask or a tensor.
    """
    if not isinstance(value, Node) or value.op in MASKS:
        raise NotTraceable("a value that is not one number per unit")
    _operand(value)
    return value


def _number(value: "Node | float") -> "Node | float":
    """The value itself, or a mask converted to ones and zeros."""
    return make("where", value, 1.0, 0.0) if isinstance(value, Node) and value.op in MASKS else value


def _torch_function(name: str) -> Callable[..., Any] | None:
    """The torch function or method with this name, for nodes; None if nodes do not support it."""
    name = ALIASES.get(name, name)
    function = COMPOSED.get(name) or (partial(make, name) if name in OPERATIONS else None)
    if name == "sum":
        function = _sum
    return function and partial(_call, name, function)


def _call(name: str, function: Callable[..., Any], *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
    if "input" in kwargs:  # torch's name for the first argument
        args = (kwargs.pop("input"), *args)
    if not inplace:
        try:
            result = function(*args, **kwargs)
            if name in COMPOSED and isinstance(result, Node):
                kinds = Node if name in REDUCTIONS else Node | float | int
                arguments = tuple(v for v in (*args, *kwargs.values()) if isinstance(v, kinds))
                Call(name, arguments, 1, of_torch=True).mark([result])
            return result
        except NotTraceable:
            raise
        except (TypeError, AttributeError, ValueError, ArithmeticError):
            pass
    raise NotTraceable(f"torch.{name} with these arguments")


def constant(number: float, axis: Axis) -> Node:
    """A number for every unit or row."""
    return Node(ops.Constant(float(number)), (), axis)


def leaf(op: ops.Leaf, axis: Axis, name: str | None = None) -> Node:
    """A value from outside of the step."""
    return Node(op, (), axis, name)


def gate_of(product: Node) -> str:
    """The gate of a pre-activation with a recurrent product."""
    assert isinstance(product.op, ops.Product)
    return product.op.gate


def size(axis: Axis) -> Node:
    """The number of units along an axis."""
    return Node(ops.Size(axis.name), (), PER_ROW)


def row_sum(x: Node) -> Node:
    """The sum over the units of each row; `x` itself if it has only one number per row."""
    return x if x.axis == PER_ROW else Node(ops.RowSum(), (x,), PER_ROW)


def _sum(x: Node, dim: Any = None, keepdim: bool = False) -> Node:
    if dim not in (-1, 1, (-1,), (1,), [-1], [1]) or not keepdim:
        raise NotTraceable("a reduction without dim=-1 and keepdim=True")
    numbers = _number(x)
    assert isinstance(numbers, Node)
    return row_sum(numbers)


def broadcast(x: Node | float, axis: Axis) -> Node:
    """Broadcast a number, or a value with one number per row, to every unit."""
    if isinstance(x, float):
        return constant(x, axis)
    return x if x.axis == axis else constant(0.0, axis) + x
