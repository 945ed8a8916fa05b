"""Combines the examples of a `torch.func.vmap` into the sequences of one call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Batch:
    """The tensors of all examples of a vmap.

    Args:
        size: the number of examples.
        dims: the batch axis of each tensor; None if all examples share the tensor.
        tensors: (L, N, W) with W numbers per step of a sequence, (N, W) with W numbers per sequence, or parameters.
    """

    def __init__(self, size: int, dims: Sequence[int | None], tensors: Sequence[Tensor | None]) -> None:
        self.size, self.dims, self.tensors = size, dims, tensors

    def has_own_weights(self, is_weight: Sequence[bool]) -> bool:
        """Whether the examples have different parameters."""
        return any(weight and dim is not None for weight, dim in zip(is_weight, self.dims, strict=True))

    def fold(self, is_weight: Sequence[bool]) -> list[Tensor | None]:
        """Return the tensors of one call for all examples. The sequences of an example are adjacent."""
        tensors = []
        for v, dim, weight in zip(self.tensors, self.dims, is_weight, strict=True):
            if v is None or weight:
                tensors.append(v)
                continue
            if dim is None:
                v = v.unsqueeze(0).expand(self.size, *v.shape)
                dim = 0
            axis = v.dim() - 3
            tensors.append(v.movedim(dim, axis).flatten(axis, axis + 1))
        return tensors

    def unfold(
        self, results: Sequence[Tensor], is_weight: Sequence[bool] | None = None, groups: int = 0
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Split the results of one call by example. Return them with an axis of examples, and the index of this axis.

        Args:
            results: (L, N, W), (N, W), or gradients of parameters, (size * max(groups, 1), ...).
            is_weight: whether each result is the gradient of a parameter.
            groups: the number of groups of sequences in one example, with one gradient each; 0 without groups.
        """
        tensors, dims = [], []
        for k, v in enumerate(results):
            if is_weight is not None and is_weight[k]:
                tensors.append(v.unflatten(0, (self.size, groups)) if groups else v)
                dims.append(0)
            else:
                tensors.append(v.unflatten(v.dim() - 2, (self.size, -1)))
                dims.append(v.dim() - 2)
        return tuple(tensors), tuple(dims)

    def run_one_by_one(self, call: Callable[..., Sequence[Tensor]]) -> tuple[tuple[Tensor, ...], Any]:
        """Run one call per example. Return the stacked results, and the index of the axis of examples in each."""
        results = [
            call(
                *[
                    v if dim is None or v is None else v.select(dim, k)
                    for v, dim in zip(self.tensors, self.dims, strict=True)
                ]
            )
            for k in range(self.size)
        ]
        stacked = tuple([torch.stack(examples) for examples in zip(*results, strict=True)])
        return stacked, (0,) * len(stacked)


def flatten_steps(v: Tensor) -> Tensor:
    """Flatten a tensor with a row per step, (L, N, W), to (S, W). Return other tensors unchanged."""
    return v.flatten(0, 1) if v.dim() == 3 else v
