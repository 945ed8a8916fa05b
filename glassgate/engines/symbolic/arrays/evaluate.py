"""Evaluates a graph of values over named axes with torch, for tests and as the specification of kernels."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Index, Value
from glassgate.engines.symbolic.evaluate import compute_elementwise
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.values import topological_order

Key = tuple[Any, ...]
"""A leaf: its operation and its arguments, such as ("state", "S") or ("ih", "k")."""


class Evaluation:
    """The values of a graph, each as a tensor (N or 1, *axes) in the order of the axes of the value.

    Args:
        sizes: the size of each axis.
        leaves: the leaves by key, (N, *axes). Parameters have a leading axis of size 1.
        products: computes "hh" and "hh_t", from the value and its argument. None if the graph has none.
    """

    def __init__(self, sizes: Mapping[str, int], leaves: Mapping[Key, Tensor], products: Any = None) -> None:
        self.sizes, self.leaves, self.products = sizes, leaves, products
        self._like = next(iter(leaves.values()))
        self._values: dict[Value, Tensor] = {}

    def __call__(self, results: Iterable[Value]) -> list[Tensor]:
        """Compute values."""
        results = list(results)
        for value in topological_order(results):
            if value not in self._values:
                self._values[value] = self._compute(value)
        return [self._values[value] for value in results]

    def over(self, value: Value, axes: tuple[str, ...]) -> Tensor:
        """A computed value over more axes, in this order. Along an axis that it lacks, it has size 1."""
        order = [axis for axis in axes if axis in value.axes]
        tensor = self._values[value].permute(0, *(1 + value.axes.index(axis) for axis in order))
        for k, axis in enumerate(axes):
            if axis not in value.axes:
                tensor = tensor.unsqueeze(k + 1)
        return tensor

    def _compute(self, value: Value) -> Tensor:
        op, args = value.op, value.args
        if op in OPERATIONS:
            operands = tuple(self.over(arg, value.axes) if isinstance(arg, Value) else arg for arg in args)
            return compute_elementwise(op, operands, self._like.dtype)
        if op == "constant":
            return self._like.new_full((1, *self._shape(value.axes)), args[0])
        if op in ("hh", "hh_t"):
            return self.products(value, self._values[args[1]])
        if not value.inputs:
            return self.leaves[op, *args]
        return getattr(self, f"_{op}")(value, *args)

    def _shape(self, axes: Iterable[str]) -> list[int]:
        return [self.sizes[axis] for axis in axes]

    def _sum(self, value: Value, x: Value, axes: tuple[str, ...]) -> Tensor:
        return self._values[x].sum([1 + x.axes.index(axis) for axis in axes])

    def _max(self, value: Value, x: Value, axes: tuple[str, ...]) -> Tensor:
        return self._values[x].amax([1 + x.axes.index(axis) for axis in axes])

    def _cumsum(self, value: Value, x: Value, axis: str, reverse: bool) -> Tensor:
        tensor, dim = self._values[x], 1 + x.axes.index(axis)
        return tensor.flip(dim).cumsum(dim).flip(dim) if reverse else tensor.cumsum(dim)

    def _index(self, value: Value, x: Value, indices: tuple[Index, ...]) -> Tensor:
        positions = [self._position(each, value.axes) for each in indices]
        key: Any = slice(None), *positions
        return self._values[x][key]

    def _scatter(self, value: Value, x: Value, indices: tuple[Index, ...], axes: tuple[str, ...]) -> Tensor:
        tensor = self._values[x]
        own = dict.fromkeys(axis for each in indices for axis, _ in each.terms)
        over = (*own, *(axis for axis in x.axes if axis not in own))
        tensor = self.over(x, over).expand(-1, *self._shape(over))
        result = tensor.new_zeros(len(tensor), *self._shape(axes))
        positions = [self._position(each, over) for each in indices]
        rows = torch.arange(len(tensor), device=tensor.device).view(-1, *(1,) * len(over))
        return result.index_put((rows, *positions), tensor, accumulate=True)

    def _position(self, each: Index, axes: tuple[str, ...]) -> Tensor:
        """The positions of an index, broadcast over the axes."""
        position = torch.full((1,) * len(axes), each.offset, device=self._like.device)
        for axis, factor in each.terms:
            count = torch.arange(self.sizes[axis], device=self._like.device)
            position = position + factor * count.view([-1 if a == axis else 1 for a in axes])
        return position if each.modulus is None else position % each.modulus

    def _merge(self, value: Value, x: Value, axes: tuple[str, ...], new: str) -> Tensor:
        rest = tuple(axis for axis in value.axes if axis != new)
        return self.over(x, (*rest, *axes)).flatten(1 + len(rest))

    def _cat(self, value: Value, *args: Any) -> Tensor:
        *values, axis, parts = args
        rest = tuple(a for a in value.axes if a != axis)
        tensors = [self.over(v, (*rest, part)) for v, part in zip(values, parts, strict=True)]
        rows = max(len(tensor) for tensor in tensors)
        sizes = [[rows, *self._shape((*rest, part))] for part in parts]
        return torch.cat([t.expand(size) for t, size in zip(tensors, sizes, strict=True)], -1)


def evaluate(
    sizes: Mapping[str, int], results: Iterable[Value], leaves: Mapping[Key, Tensor], products: Any = None
) -> list[Tensor]:
    """Compute values of a graph; see `Evaluation`."""
    return Evaluation(sizes, leaves, products)(results)


def new_states(step: ArrayStep, leaves: Mapping[Key, Tensor], rows: int) -> list[Tensor]:
    """Compute the states after a step, each (rows, *axes) over the declared axes of the state."""
    evaluation = Evaluation(step.sizes, leaves)
    evaluation(step.states)
    pairs = zip(step.states, step.state.values(), strict=True)
    return [evaluation.over(v, axes).expand(rows, *(step.sizes[axis] for axis in axes)) for v, axes in pairs]
