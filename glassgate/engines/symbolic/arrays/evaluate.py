"""Evaluates a graph of values over named axes with torch, for tests and as the specification of kernels."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.evaluate import compute_elementwise
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.values import topological_order

Leaves = Mapping[ops.Leaf, Tensor]
"""The values of leaves by their operations, (N, *axes). Parameters have a leading axis of size 1."""
Products = Callable[[Value, Tensor], Tensor]
"""Computes a recurrent product, its transpose or a projection, from the value and the tensor of its argument."""


class Evaluation:
    """The values of a graph, each as a tensor (N or 1, *axes) in the order of the axes of the value.

    Args:
        sizes: the size of each axis.
        leaves: the leaves.
        products: computes recurrent products. None if the graph has none.
        like: a tensor with the dtype and device of constants; None for those of the first leaf.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        leaves: Leaves,
        products: Products | None = None,
        like: Tensor | None = None,
    ) -> None:
        self.sizes, self.leaves, self.products = sizes, leaves, products
        self._like = next(iter(leaves.values())) if like is None else like
        self._values: dict[Value, Tensor] = {}

    def __call__(self, results: Iterable[Value]) -> list[Tensor]:
        """Compute values."""
        results = list(results)
        self.compute(topological_order(results))
        return [self._values[value] for value in results]

    def compute(self, order: Iterable[Value]) -> None:
        """Compute values that are in an order in which each follows its inputs."""
        for value in order:
            if value not in self._values:
                self._values[value] = self._compute(value)

    def replace(self, value: Value, tensor: Tensor, axes: tuple[str | None, ...]) -> None:
        """Compute all that depends on a computed value from a tensor with equal numbers, (N, *axes).

        The tensor may have more axes than the value, along which it is constant.
        """
        tensor = tensor[(slice(None), *(slice(None) if axis in value.axes else 0 for axis in axes))]
        order = [axis for axis in axes if axis in value.axes]
        self._values[value] = tensor.permute(0, *(1 + order.index(axis) for axis in value.axes))

    def over(self, value: Value, axes: tuple[str, ...]) -> Tensor:
        """A computed value over more axes, in this order. Along an axis that it lacks, it has size 1."""
        if axes == value.axes:
            return self._values[value]
        order = [axis for axis in axes if axis in value.axes]
        tensor = self._values[value].permute(0, *(1 + value.axes.index(axis) for axis in order))
        for k, axis in enumerate(axes):
            if axis not in value.axes:
                tensor = tensor.unsqueeze(k + 1)
        return tensor

    def _compute(self, value: Value) -> Tensor:
        match value.op:
            case str(op):
                operands = [self.over(arg, value.axes) if isinstance(arg, Value) else arg for arg in value.args]
                result: Tensor = compute_elementwise(op, tuple(operands), self._like.dtype)
                return result
            case ops.Constant(number):
                return self._like.new_full((1, *self._shape(value.axes)), number)
            case ops.Leaf():
                return self.leaves[value.op]
            case ops.Concatenate(axis, parts):
                return self._concatenate(value, axis, parts)
        (x,) = value.inputs
        tensor = self._values[x]
        match value.op:
            case ops.RecurrentHalf() | ops.RecurrentTranspose() | ops.Projection():
                assert self.products is not None
                return self.products(value, tensor)
            case ops.Sum(axes):
                return tensor.sum([1 + x.axes.index(axis) for axis in axes])
            case ops.Max(axes):
                return tensor.amax([1 + x.axes.index(axis) for axis in axes])
            case ops.CumulativeSum(axis, reverse):
                dim = 1 + x.axes.index(axis)
                return tensor.flip(dim).cumsum(dim).flip(dim) if reverse else tensor.cumsum(dim)
            case ops.Gather(indices):
                positions: Any = slice(None), *(self._position(each, value.axes) for each in indices)
                return tensor[positions]
            case ops.Scatter(indices, axes):
                return self._scatter(x, indices, axes)
            case ops.Merge(axes, into):
                rest = tuple(axis for axis in value.axes if axis != into)
                return self.over(x, (*rest, *axes)).flatten(1 + len(rest))
        raise AssertionError(f"a graph has no {value.op}")

    def _shape(self, axes: Iterable[str]) -> list[int]:
        return [self.sizes[axis] for axis in axes]

    def _scatter(self, x: Value, indices: tuple[Index, ...], axes: tuple[str, ...]) -> Tensor:
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

    def _concatenate(self, value: Value, axis: str, parts: tuple[str, ...]) -> Tensor:
        rest = tuple(a for a in value.axes if a != axis)
        tensors = [self.over(v, (*rest, part)) for v, part in zip(value.inputs, parts, strict=True)]
        rows = max(len(tensor) for tensor in tensors)
        sizes = [[rows, *self._shape((*rest, part))] for part in parts]
        return torch.cat([t.expand(size) for t, size in zip(tensors, sizes, strict=True)], -1)


def evaluate(
    sizes: Mapping[str, int], results: Iterable[Value], leaves: Leaves, like: Tensor | None = None
) -> list[Tensor]:
    """Compute values of a graph without recurrent products; see `Evaluation`."""
    return Evaluation(sizes, leaves, like=like)(results)


def new_states(step: ArrayStep, leaves: Leaves, rows: int) -> list[Tensor]:
    """Compute the states after a step, each (rows, *axes) over the declared axes of the state."""
    evaluation = Evaluation(step.sizes, leaves)
    evaluation(step.states)
    pairs = zip(step.states, step.state.values(), strict=True)
    return [evaluation.over(v, axes).expand(rows, *(step.sizes[axis] for axis in axes)) for v, axes in pairs]
