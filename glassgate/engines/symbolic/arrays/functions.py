"""The torch functions on traced tensors that depend on positions: reductions, products, shapes, indexing."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.reductions import REDUCTIONS, Dim, positions_of, spread, sum_over
from glassgate.engines.symbolic.arrays.tensor import ROWS, RowCount, Scope, TracedTensor, align, call
from glassgate.engines.symbolic.arrays.value import Value, as_number, index, make, part_axis
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.shapes import ShapeError


def _unsqueeze(x: TracedTensor, dim: int) -> TracedTensor:
    at = dim % (x.ndim + 1)
    return x.replaced(dims=(*x.dims[:at], None, *x.dims[at:]))


def _squeeze(x: TracedTensor, dim: Dim = None) -> TracedTensor:
    chosen = range(x.ndim) if dim is None else {k % x.ndim for k in ((dim,) if isinstance(dim, int) else dim)}
    return x.replaced(dims=[axis for k, axis in enumerate(x.dims) if axis is not None or k not in chosen])


def _permute(x: TracedTensor, *dims: Any) -> TracedTensor:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if sorted(k % x.ndim for k in order) != list(range(x.ndim)):
        raise ShapeError(f"permute({', '.join(map(str, order))}) of {x.described}, which has {x.ndim} dimensions")
    return x.replaced(dims=[x.dims[k] for k in order])


def _transpose(x: TracedTensor, a: int, b: int) -> TracedTensor:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return _permute(x, order)


def _expand(x: TracedTensor, *sizes: Any) -> TracedTensor:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    padded = [None] * (len(sizes) - x.ndim) + [*x.dims]
    dims: list[str | None] = []
    for size, axis in zip(sizes, padded, strict=True):
        is_new = axis is None and size not in (1, -1)
        if not is_new and size not in (-1, 1 if axis is None else x._size(axis)):
            raise ShapeError(f"expand{sizes} of {x.described}")
        dims.append((ROWS if isinstance(size, RowCount) else x.scope.new_axis(f"size{size}", size)) if is_new else axis)
    return x.replaced(dims=dims)


def _matmul(a: Any, b: Any) -> TracedTensor:
    if not isinstance(a, TracedTensor) or not isinstance(b, TracedTensor) or not a.ndim or not b.ndim:
        raise NotTraceable("`@` with a tensor that is not one of the cell's values")
    left = a if a.ndim > 1 else _unsqueeze(a, 0)
    right = b if b.ndim > 1 else _unsqueeze(b, 1)
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"`@` combines {a.described} and {b.described}: the last dimension of the left side is "
            f"{left.shape[-1]} and the matching one of the right side {right.shape[-2]}; transpose one with .mT"
        )
    batch = [t.replaced(dims=(*t.dims[:-2], None, None)) for t in (left, right)]
    try:
        align("matmul", batch)
    except ShapeError:
        raise ShapeError(
            f"`@` combines {a.described} and {b.described}, and the dimensions before the last two do not fit; insert "
            "an axis with [..., None] or [..., None, :]"
        ) from None
    product = call("mul", _unsqueeze(left, -1), _unsqueeze(right, -3))  # (..., i, j, 1) * (..., 1, j, k)
    result = sum_over(product, -2)
    dims = list(result.dims)
    if b.ndim == 1:
        del dims[-1]
    if a.ndim == 1:
        del dims[-1 if b.ndim == 1 else -2]
    return result.replaced(dims=dims)


def _linear(x: TracedTensor, weight: TracedTensor, bias: Any = None) -> Any:
    product = _matmul(x, weight.mT)
    return product if bias is None else call("add", product, bias)


def _einsum(equation: str, *operands: Any) -> TracedTensor:
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if "..." in equation or not _ or len(letters) != len(tensors):
        raise NotTraceable(f"einsum({equation!r}), which must name every axis and the result")
    order = [*output, *sorted(set(inputs) - {*output, ","})]
    placed = []
    for own, tensor in zip(letters, tensors, strict=True):
        if len(set(own)) != len(own) or len(own) != tensor.ndim:
            raise ShapeError(f"einsum({equation!r}): {own!r} must have one letter for each axis of {tensor.described}")
        dims = [tensor.dims[own.index(letter)] if letter in own else None for letter in order]
        placed.append(tensor.replaced(dims=dims))
    try:
        values, dims_of_product = align("einsum", placed)
    except ShapeError:
        operands_text = " and ".join(tensor.described for tensor in tensors)
        sizes = [(letter, t.shape[k]) for own, t in zip(letters, tensors, strict=True) for k, letter in enumerate(own)]
        two = {letter: dict.fromkeys(s for each, s in sizes if each == letter) for letter, _ in sizes}
        faults = ", ".join(f"{k!r} has the sizes {' and '.join(map(str, v))}" for k, v in two.items() if len(v) > 1)
        raise ShapeError(
            f"einsum({equation!r}) combines {operands_text}, and {faults or 'an axis has two letters'}; use one letter "
            "for each axis, in the order of the axes"
        ) from None
    value = values[0]
    for other in values[1:]:
        value = make("mul", value, other)
    result = tensors[0].replaced(value, dims_of_product)
    count = len(order) - len(output)
    return sum_over(result, [-k - 1 for k in range(count)]) if count else result


def _getitem(x: TracedTensor, key: Any) -> TracedTensor:
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        at = next(n for n, k in enumerate(keys) if k is Ellipsis)
        count = sum(k is not None and k is not Ellipsis for k in keys)
        keys[at : at + 1] = [slice(None)] * (x.ndim - count)
    dims, indices, position = list[str | None](), dict[str, Index](), 0
    for each in keys:
        if each is None:
            dims.append(None)
            continue
        if position >= x.ndim:
            raise ShapeError(f"too many indices for {x.described}")
        axis, size = x.dims[position], x.shape[position]
        position += 1
        if isinstance(each, slice) and each == slice(None):
            dims.append(axis)
        elif axis == ROWS or isinstance(each, bool) or not isinstance(each, int | slice):
            raise NotTraceable("indexing of the batch axis, or by something other than integers and slices")
        elif isinstance(each, int):
            if not -size <= each < size:
                raise ShapeError(f"index {each} of {x.described} at an axis of size {size}")
            if axis is not None:
                indices[axis] = Index((), each % size)
        else:
            start, stop, step = each.indices(size)
            length = len(range(start, stop, step))
            new = None if length == 1 else _sliced(x.scope, axis, start, length, step)
            dims.append(new)
            if axis is not None:
                indices[axis] = Index(((new, step),) if new is not None else (), start)
    return x.replaced(
        index(x.value, {k: v for k, v in indices.items() if k in x.value.axes}), [*dims, *x.dims[position:]]
    )


def _sliced(scope: Scope, axis: str | None, start: int, length: int, step: int) -> str:
    if axis is None or not length:
        raise NotTraceable("an empty slice")
    return scope.new_axis(f"{axis.rstrip(chr(39))}_{start}_{length}" + (f"_{step}" if step != 1 else ""), length)


def _split(x: TracedTensor, sizes: Any, dim: int = 0) -> tuple[TracedTensor, ...]:
    (position,), total = positions_of(x, dim), x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    if sum(sizes) != total:
        raise ShapeError(f"split into {list(sizes)} of {x.described} along an axis of size {total}")
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    before = (slice(None),) * position
    return tuple(_getitem(x, (*before, slice(a, a + n))) for a, n in zip(starts, sizes, strict=True))


def _chunk(x: TracedTensor, chunks: int, dim: int = 0) -> tuple[TracedTensor, ...]:
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _unbind(x: TracedTensor, dim: int = 0) -> tuple[TracedTensor, ...]:
    (position,) = positions_of(x, dim)
    return tuple(_getitem(x, (*(slice(None),) * position, k)) for k in range(x.shape[position]))


def _select(x: TracedTensor, dim: int, k: int) -> TracedTensor:
    return _getitem(x, (*(slice(None),) * (dim % x.ndim), k))


def _cat(tensors: Sequence[TracedTensor], dim: int = 0) -> TracedTensor:
    scope, ndim = tensors[0].scope, tensors[0].ndim
    (position,) = positions_of(tensors[0], dim)
    sizes = [tensor.shape[position] for tensor in tensors]
    axis = scope.new_axis("cat" + "_".join(map(str, sizes)), sum(sizes))
    # Align all positions except the one of the parts.
    flat = [t.replaced(dims=[*t.dims[:position], *t.dims[position + 1 :]]) for t in tensors]
    if any(t.ndim != ndim for t in tensors):
        operands = " and ".join(t.described for t in tensors)
        raise ShapeError(
            f"`cat` combines {operands}, with different numbers of dimensions; insert an axis of size 1 "
            "with [:, None], or join axes with flatten"
        )
    parts, own = [], [t.dims[position] for t in tensors]
    renamed = []
    for k, (tensor, part) in enumerate(zip(flat, own, strict=True)):
        new = scope.new_axis(part_axis(axis, k), sizes[k])
        value = tensor.value if part is None else index(tensor.value, {part: Index(((new, 1),))})
        renamed.append(tensor.replaced(value))
        parts.append(new)
    values, dims = align("cat", renamed)
    axes = dict.fromkeys(a for value in values for a in value.axes if a not in parts)
    value = Value(ops.Concatenate(axis, tuple(parts)), tuple(map(as_number, values)), (*axes, axis))
    return tensors[0].replaced(value, (*dims[:position], axis, *dims[position:]))


def _stack(tensors: Sequence[TracedTensor], dim: int = 0) -> TracedTensor:
    at = dim % (tensors[0].ndim + 1)
    return _cat([_unsqueeze(tensor, at) for tensor in tensors], at)


def _roll(x: TracedTensor, shifts: Any, dims: Any = None) -> TracedTensor:
    if dims is None:
        raise NotTraceable("torch.roll without dims")
    pairs = [(shifts, dims)] if isinstance(dims, int) else list(zip(shifts, dims, strict=True))
    value = x.value
    for shift, dim in pairs:
        (position,) = positions_of(x, dim)
        axis, size = x.dims[position], x.shape[position]
        if axis is not None and axis in value.axes:
            value = index(value, {axis: Index(((axis, 1),), (-shift) % size, size)})
    return x.replaced(value)


def _flip(x: TracedTensor, *dims: Any) -> TracedTensor:
    value = x.value
    for position in positions_of(x, dims[0] if len(dims) == 1 else dims):
        axis = x.dims[position]
        if axis is not None and axis in value.axes:
            value = index(value, {axis: Index(((axis, -1),), x.shape[position] - 1)})
    return x.replaced(value)


def _flatten(x: TracedTensor, start_dim: int = 0, end_dim: int = -1) -> TracedTensor:
    start, end = start_dim % x.ndim, end_dim % x.ndim
    if x.dims[start] == ROWS and end > start:
        raise NotTraceable("flatten of the batch axis; flatten(1) keeps it")
    merged = [axis for axis in x.dims[start : end + 1] if axis is not None]
    if len(merged) < 2:
        return x.replaced(dims=(*x.dims[:start], merged[0] if merged else None, *x.dims[end + 1 :]))
    value = x.value
    for axis in merged:
        if axis not in value.axes:
            value = spread(value, axis)
    size = prod(x.scope.sizes[axis] for axis in merged)
    new = x.scope.new_axis("_".join(axis.rstrip("'") for axis in merged), size)
    axes = (*(axis for axis in value.axes if axis not in merged), new)
    value = Value(ops.Merge(tuple(merged), new), (value,), axes)
    return x.replaced(value, (*x.dims[:start], new, *x.dims[end + 1 :]))


def _unflatten(x: TracedTensor, dim: int, sizes: Sequence[int]) -> TracedTensor:
    (position,) = positions_of(x, dim)
    axis, total = x.dims[position], x.shape[position]
    known = prod(size for size in sizes if size != -1)
    sizes = [total // known if size == -1 else size for size in sizes]
    if prod(sizes) != total:
        raise ShapeError(f"unflatten of {x.described} into {tuple(sizes)}: an axis has size {total}")
    base = "" if axis is None else axis.rstrip("'")
    new = [None if size == 1 else x.scope.new_axis(f"{base}_{k}_{size}", size) for k, size in enumerate(sizes)]
    terms = tuple((a, prod(sizes[k + 1 :])) for k, a in enumerate(new) if a is not None)
    value = x.value if axis is None or axis not in x.value.axes else index(x.value, {axis: Index(terms)})
    return x.replaced(value, (*x.dims[:position], *new, *x.dims[position + 1 :]))


def _reshape(x: TracedTensor, *sizes: Any) -> TracedTensor:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if not x.ndim or x.dims[0] != ROWS:
        flat, rest, leading = x, sizes, 0
    else:
        if not sizes or not (isinstance(sizes[0], RowCount) or sizes[0] == -1):
            raise NotTraceable("a reshape of the batch axis; begin with x.shape[0], or use flatten(1) and unflatten")
        flat, rest, leading = x, sizes[1:], 1
    flat = _flatten(x, leading) if x.ndim - leading > 1 else x
    if x.ndim == leading:
        flat = x.replaced(dims=(*x.dims, None))
    if len(rest) != 1:
        return _unflatten(flat, leading, rest)
    if rest[0] not in (-1, flat.shape[leading]):
        raise ShapeError(f"reshape of {x.described} to {rest[0]} numbers per row, which has {flat.shape[leading]}")
    return flat


def _outer(a: TracedTensor, b: TracedTensor) -> Any:
    return call("mul", _unsqueeze(a, -1), _unsqueeze(b, -2))


def _movedim(x: TracedTensor, source: int, destination: int) -> TracedTensor:
    order = [k for k in range(x.ndim) if k != source % x.ndim]
    order.insert(destination % x.ndim, source % x.ndim)
    return _permute(x, order)


def _same(x: TracedTensor, *_: Any, **__: Any) -> TracedTensor:
    return x


def _to(x: TracedTensor, *args: Any, **kwargs: Any) -> TracedTensor:
    raise NotTraceable("a change of dtype or device")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **REDUCTIONS, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "permute": _permute, "transpose": _transpose,
    "swapaxes": _transpose, "movedim": _movedim, "expand": _expand, "matmul": _matmul,
    "bmm": _matmul, "linear": _linear, "einsum": _einsum, "getitem": _getitem, "select": _select, "split": _split,
    "split_with_sizes": _split, "chunk": _chunk, "unbind": _unbind, "cat": _cat, "concat": _cat, "concatenate": _cat,
    "stack": _stack, "roll": _roll, "flip": _flip, "flatten": _flatten, "unflatten": _unflatten, "reshape": _reshape,
    "view": _reshape, "contiguous": _same, "clone": _same, "t": lambda x: x.mT, "outer": _outer,
    "expand_as": lambda x, other: _expand(x, *other.shape), "to": _to, "narrow":
    lambda x, dim, start, length: _getitem(x, (*(slice(None),) * (dim % x.ndim), slice(start, start + length))),
    "zeros_like": lambda x: x.constant_like(0.0), "ones_like": lambda x: x.constant_like(1.0),
    "full_like": lambda x, number: x.constant_like(number),
}  # fmt: skip
"""The functions by the names of torch's functions and methods."""
