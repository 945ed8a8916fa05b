"""`TracedTensor`: the argument of a step that is traced. It has positions, like a tensor, and refers to a `Value`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from glassgate.engines.symbolic.arrays.value import Value, elementwise_function, index, make
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.values import NotTraceable, Symbolic
from glassgate.shapes import ShapeError

ROWS = "N"
"""The batch axis. It is an axis of traced tensors, but not of values."""


class RowCount(int):
    """The size of the batch axis. A step may use it only to describe a shape."""

    def _refuse(self, *_: Any) -> Any:
        raise NotTraceable("the number of sequences")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __float__ = _refuse


N = RowCount(1_000_003)


class Scope:
    """The axes of one trace, and the functions that a step may call.

    Attributes:
        sizes: the size of each axis.
        functions: the functions that are not elementwise, by the names of torch's functions and methods.
        joined: pairs of axes with different names that the step combines, although only their sizes are equal.
    """

    def __init__(self, sizes: dict[str, int], functions: Mapping[str, Callable[..., Any]]) -> None:
        self.sizes, self.functions = dict(sizes), functions
        self.joined: set[tuple[str, str]] = set()

    def new_axis(self, name: str, size: int) -> str:
        """Return an axis with this size: `name`, or the first of name', name'' ... that has it or is new."""
        while self.sizes.setdefault(name, size) != size:
            name += "'"
        return name

    def another(self, axis: str, taken: set[str | None]) -> str:
        """Return another axis of the same size that is not in `taken`."""
        size = self.sizes[axis]
        while axis in taken or self.sizes.setdefault(axis, size) != size:
            axis += "'"
        return axis


class TracedTensor(Symbolic):
    """A value with the positions of its axes.

    Args:
        scope: the axes of the trace.
        value: the value.
        dims: the axis at each position; None for an axis of size 1.
    """

    def __init__(self, scope: Scope, value: Value, dims: Sequence[str | None]) -> None:
        self.scope, self.value, self.dims = scope, value, tuple(dims)

    # --- the interface of torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The size at each position."""
        return tuple(self._size(axis) for axis in self.dims)

    @property
    def ndim(self) -> int:
        """The number of positions."""
        return len(self.dims)

    def dim(self) -> int:
        """The number of positions."""
        return len(self.dims)

    def size(self, dim: int | None = None) -> Any:
        """The size at one position, or at all."""
        return self.shape if dim is None else self.shape[dim]

    def _size(self, axis: str | None) -> int:
        return 1 if axis is None else N if axis == ROWS else self.scope.sizes[axis]

    @property
    def described(self) -> str:
        """The axes with their sizes, for messages: "(N, heads, key) = (N, 2, 4)"."""
        names = ", ".join("1" if axis is None else axis.rstrip("'") for axis in self.dims)
        sizes = ", ".join("N" if axis == ROWS else str(self._size(axis)) for axis in self.dims)
        return f"({names}) = ({sizes})"

    @property
    def mT(self) -> "TracedTensor":
        """The last two positions exchanged."""
        return self.replaced(dims=(*self.dims[:-2], self.dims[-1], self.dims[-2]))

    T = mT

    def replaced(self, value: Value | None = None, dims: Sequence[str | None] | None = None) -> "TracedTensor":
        """A tensor with another value or other positions."""
        return TracedTensor(self.scope, self.value if value is None else value, self.dims if dims is None else dims)

    def constant_like(self, number: float) -> "TracedTensor":
        """A constant with the shape of this tensor."""
        return self.replaced(self.value.constant_like(number))

    def operation(self, op: str, *args: Any) -> Any:
        """An elementwise operation, see `make_tensor`."""
        return make_tensor(op, *args)

    def __matmul__(self, other: Any) -> Any:
        return call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return call("matmul", other, self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return call(getattr(func, "__name__", str(func)), *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(call, name, self)

    def __getitem__(self, key: Any) -> "TracedTensor":
        result: TracedTensor = call("getitem", self, key)
        return result

    def _refuse_use(self, *_: Any) -> Any:
        raise NotTraceable("a branch on a value, iteration over a tensor, or the number inside a tensor")

    __bool__ = __iter__ = __len__ = __contains__ = __float__ = __int__ = __index__ = __setitem__ = _refuse_use
    __array__ = __iadd__ = __isub__ = __imul__ = __itruediv__ = _refuse_use

    def __repr__(self) -> str:
        return f"TracedTensor{self.described}"


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a torch function or method on traced tensors."""
    name = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    if kwargs.pop("inplace", False) or (name.endswith("_") and not name.startswith("_")):
        raise NotTraceable(f"torch.{name} in place")
    if "input" in kwargs:
        args = (kwargs.pop("input"), *args)
    scope = next(_scopes((*args, *kwargs.values())))
    function = scope.functions.get(name) or elementwise_function(name, make_tensor)
    try:
        return function(*args, **kwargs)
    except (NotTraceable, ShapeError):
        raise
    except (TypeError, AttributeError, ValueError, ArithmeticError, LookupError) as error:
        raise NotTraceable(f"torch.{name} with these arguments ({error})") from None


def _scopes(args: Sequence[Any]) -> Iterator[Scope]:
    for arg in args:
        if isinstance(arg, TracedTensor):
            yield arg.scope
        elif isinstance(arg, list | tuple):
            yield from _scopes(arg)


def make_tensor(op: str, *args: Any) -> Any:
    """Return a tensor for an elementwise operation. The arguments broadcast by position."""
    tensors = [arg for arg in args if isinstance(arg, TracedTensor)]
    for arg in args:
        if not isinstance(arg, TracedTensor | bool | int | float) and not _is_number(arg):
            raise NotTraceable(f"a {type(arg).__name__} that is neither a number nor one of the cell's parameters")
    if not tensors:
        return make(op, *map(float, args))
    aligned, dims = align(op, tensors)
    values = iter(aligned)
    result = make(op, *[next(values) if isinstance(arg, TracedTensor) else float(arg) for arg in args])
    result = tensors[0].value.constant_like(result) if isinstance(result, float) else result
    return TracedTensor(tensors[0].scope, result, dims)


def _is_number(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.dim() == 0 and not arg.requires_grad


def align(operation: str, tensors: Sequence[TracedTensor]) -> tuple[list[Value], tuple[str | None, ...]]:
    """Broadcast tensors by position. Return their values over common axes, and the positions of the result.

    Raises:
        ShapeError: the sizes at a position differ.
    """
    scope, count = tensors[0].scope, max(len(tensor.dims) for tensor in tensors)
    padded: list[list[str | None]] = [[*[None] * (count - len(t.dims)), *t.dims] for t in tensors]
    dims: list[str | None] = []
    for position in range(count):
        axes = [own[position] for own in padded]
        first = next((axis for axis in axes if axis is not None), None)
        for k, axis in enumerate(axes):
            if axis is not None and tensors[k]._size(axis) != tensors[k]._size(first):
                raise mismatch(operation, tensors, position - count)
        if first in dims and first is not None:
            first = scope.another(first, {*dims, *(axis for own in padded for axis in own)})
        dims.append(first)
    values = []
    for tensor, own in zip(tensors, padded, strict=True):
        values.append(_over(scope, tensor.value, own, dims))
    return values, tuple(dims)


def _over(scope: Scope, value: Value, own: Sequence[str | None], dims: Sequence[str | None]) -> Value:
    """The value with the axis at each position of `own` renamed to the axis at this position of `dims`."""
    new = {axis: to for axis, to in zip(own, dims, strict=True) if axis is not None and to is not None and axis != to}
    for axis, to in new.items():
        names = axis.rstrip("'"), to.rstrip("'")
        if names[0] != names[1]:
            scope.joined.add((min(names), max(names)))
    return index(value, {axis: Index(((to, 1),)) for axis, to in new.items() if axis in value.axes})


def mismatch(operation: str, tensors: Sequence[TracedTensor], position: int) -> ShapeError:
    """The error for tensors that do not broadcast at a position, counted from the end."""
    operands = " and ".join(tensor.described for tensor in tensors)
    has = [tensor for tensor in tensors if len(tensor.dims) >= -position]
    sizes = " and ".join(f"{_name(t.dims[position])} ({_size_text(t, position)})" for t in has)
    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**", "lt": "<", "le": "<="}
    return ShapeError(
        f"`{signs.get(operation, operation)}` combines {operands}, and dimension {position} is {sizes}; insert an axis "
        "of size 1 with [..., None], or exchange axes with .mT or permute, so that equal axes have equal positions"
    )


def _name(axis: str | None) -> str:
    return "1" if axis is None else axis.rstrip("'")


def _size_text(tensor: TracedTensor, position: int) -> str:
    axis = tensor.dims[position]
    return "N" if axis == ROWS else str(tensor._size(axis))
