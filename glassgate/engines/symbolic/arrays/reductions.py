"""The torch functions on traced tensors that reduce axes: sums, norms, softmax, cumulative sums."""

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.tensor import ROWS, TracedTensor, call
from glassgate.engines.symbolic.arrays.value import Value, as_number, constant, reduce_axes
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.shapes import ShapeError

Dim = int | Sequence[int] | None


def positions_of(x: TracedTensor, dim: Dim) -> list[int]:
    """The positions of a reduction, from 0."""
    if dim is None and ROWS not in x.dims:
        return [*range(x.ndim)]
    if dim is None:
        raise NotTraceable("a reduction over all axes, which mixes the rows of a batch")
    positions = []
    for each in (dim,) if isinstance(dim, int) else tuple(dim or ()):
        if not -x.ndim <= each < x.ndim:
            raise ShapeError(f"dimension {each} of {x.described}, which has {x.ndim} dimensions")
        positions.append(each % x.ndim)
        if x.dims[positions[-1]] == ROWS:
            raise NotTraceable("a reduction over the batch axis, which mixes the rows of a batch")
    return positions


def _reduce(op: type[ops.Sum | ops.Max], x: TracedTensor, dim: Dim, keepdim: bool) -> TracedTensor:
    positions = positions_of(x, dim)
    axes = [axis for position in positions if (axis := x.dims[position]) is not None]
    value = reduce_axes(op, as_number(x.value), axes, x.scope.sizes)
    dims = [None if k in positions else axis for k, axis in enumerate(x.dims) if keepdim or k not in positions]
    return x.replaced(value, dims)


def sum_over(x: TracedTensor, dim: Dim = None, keepdim: bool = False) -> TracedTensor:
    """The function `torch.sum`."""
    return _reduce(ops.Sum, x, dim, keepdim)


def _amax(x: TracedTensor, dim: Dim = None, keepdim: bool = False) -> TracedTensor:
    return _reduce(ops.Max, x, dim, keepdim)


def _amin(x: TracedTensor, dim: Dim = None, keepdim: bool = False) -> Any:
    return -_reduce(ops.Max, -x, dim, keepdim)


def _mean(x: TracedTensor, dim: Dim = None, keepdim: bool = False) -> Any:
    return _reduce(ops.Sum, x, dim, keepdim) / float(prod(x.shape[k] for k in positions_of(x, dim)))


def _var(x: TracedTensor, dim: Dim = None, unbiased: bool = True, keepdim: bool = False, correction: int = 1) -> Any:
    count = prod(x.shape[k] for k in positions_of(x, dim))
    distance = call("sub", x, _mean(x, dim, True))
    return sum_over(distance * distance, dim, keepdim) / float(count - (correction if unbiased else 0))


def _std(x: TracedTensor, dim: Dim = None, unbiased: bool = True, keepdim: bool = False, correction: int = 1) -> Any:
    return _root(_var(x, dim, unbiased, keepdim, correction))


def _root(total: Any) -> Any:
    """The root of a sum of squares. Its gradient at zero is zero, as in torch's norms and standard deviations."""
    is_zero = total == 0.0
    return torch.where(is_zero, 0.0, torch.sqrt(torch.where(is_zero, 1.0, total)))


def _norm(x: TracedTensor, p: Any = 2, dim: Dim = None, keepdim: bool = False, ord: Any = None) -> Any:
    if (p if ord is None else ord) not in (2, 2.0, "fro", None):
        raise NotTraceable(f"a norm of order {p}")
    return _root(sum_over(x * x, dim, keepdim))


def _normalize(x: TracedTensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    return x / call("clamp", _norm(x, p, dim, True), eps)


def _layer_norm(
    x: TracedTensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    positions = [*range(-len(shape), 0)]
    centred = call("sub", x, _mean(x, positions, True))
    return _scaled(centred, positions, weight, bias, eps)


def _rms_norm(x: TracedTensor, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    if eps is None:
        raise NotTraceable("rms_norm without eps, whose value depends on the dtype")
    return _scaled(x, [*range(-len(shape), 0)], weight, None, eps)


def _scaled(x: Any, positions: list[int], weight: Any, bias: Any, eps: float) -> Any:
    """Divide x by the root of its mean square over the positions, and apply weight and bias."""
    x = x * torch.rsqrt(_mean(x * x, positions, True) + eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _softmax(x: TracedTensor, dim: int, dtype: Any = None) -> Any:
    exponentials = torch.exp(call("sub", x, torch.detach(_amax(x, dim, True))))  # type: ignore[arg-type]
    return call("div", exponentials, sum_over(exponentials, dim, True))  # type: ignore[arg-type]


def _log_softmax(x: TracedTensor, dim: int, dtype: Any = None) -> Any:
    distance: Any = call("sub", x, torch.detach(_amax(x, dim, True)))  # type: ignore[arg-type]
    return call("sub", distance, torch.log(sum_over(torch.exp(distance), dim, True)))  # type: ignore[arg-type]


def _logsumexp(x: TracedTensor, dim: Dim, keepdim: bool = False) -> Any:
    largest: Any = torch.detach(_amax(x, dim, True))  # type: ignore[arg-type]
    finite = torch.where(abs(largest) == math.inf, 0.0, largest)
    total = torch.log(sum_over(torch.exp(call("sub", x, finite)), dim, True)) + finite  # type: ignore[arg-type]
    return total if keepdim else call("squeeze", total, dim)


def _cumsum(x: TracedTensor, dim: int, dtype: Any = None) -> TracedTensor:
    (position,) = positions_of(x, dim)
    axis = x.dims[position]
    value = as_number(x.value)
    if axis is None:
        return x.replaced(value)
    if axis not in value.axes:  # constant along the axis
        value = spread(value, axis)
    return x.replaced(Value(ops.CumulativeSum(axis, False), (value,), value.axes))


def spread(value: Value, axis: str) -> Value:
    """The value with one more axis, along which it is constant."""
    return Value("mul", (value, constant(1.0, (axis,))), (*value.axes, axis))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": sum_over, "mean": _mean, "amax": _amax, "amin": _amin, "var": _var, "std": _std, "norm": _norm,
    "linalg_vector_norm": lambda x, ord=2, dim=None, keepdim=False: _norm(x, ord, dim, keepdim),
    "normalize": _normalize, "layer_norm": _layer_norm, "rms_norm": _rms_norm, "softmax": _softmax,
    "log_softmax": _log_softmax, "logsumexp": _logsumexp, "cumsum": _cumsum,
}  # fmt: skip
"""The functions by the names of torch's functions and methods."""
