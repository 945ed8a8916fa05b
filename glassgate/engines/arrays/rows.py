"""The rows and the operands of a call of kernels for cells that declare axes."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.contract import is_transformed


class Rows(NamedTuple):
    """The rows of a call. The row of step t of sequence n is `starts[t] + n`.

    Attributes:
        starts: (L,) the index of the first row of each step.
        lengths: (N,) the number of steps of each sequence.
        reverse: whether time runs backwards.
        resets: (S,) the mask of rows before which the states are reset; None without resets.
        is_dense: whether every row belongs to a sequence.
        shape: the shape of the rows in the results of each step: (S,), or (L, N) for sequences of equal length.
    """

    starts: Tensor
    lengths: Tensor
    reverse: bool
    resets: Tensor | None
    is_dense: bool
    shape: tuple[int, ...]

    @property
    def is_equal(self) -> bool:
        """Whether all sequences have the same length, and at least one step."""
        return self.is_dense and 0 < prod(self.shape) == len(self.starts) * len(self.lengths)

    @property
    def sequences(self) -> Tensor:
        """The sequence of each row, without padding, which must follow the rows of all sequences."""
        counts = self._counts
        return torch.arange(int(counts.sum())) - self.starts.repeat_interleave(counts)

    @property
    def previous(self) -> Tensor:
        """For each row of a sequence, the row that is computed before it; -1 for its first."""
        sequences, counts, steps = self.sequences, self._counts, torch.arange(len(self.starts))
        before = steps.repeat_interleave(counts) + (1 if self.reverse else -1)
        exists = (before >= 0) & (before < self.lengths[sequences])
        return torch.where(exists, self.starts[before.clamp(0, len(steps) - 1)] + sequences, -1)

    @property
    def _counts(self) -> Tensor:
        """The number of rows of each step."""
        return (self.lengths > torch.arange(len(self.starts))[:, None]).sum(1)


class Operands(NamedTuple):
    """The operands of a call; all are contiguous and have the dtype of the kernels.

    Attributes:
        gates: (*rows, width) the pre-activations of all rows. Here (*rows,) is `Rows.shape`.
        inputs: (*rows, H_in) the inputs of a cell that reads them; otherwise (0,).
        noise: (S, width) the random numbers of all rows; otherwise (0,).
        initial, restart: (N, width) the states before the first step, and after a reset, by state. They may have the
            axes of the state instead of its width, and other axes of size 1.
        parameters: the parameters of the cell.
    """

    gates: Tensor
    inputs: Tensor
    noise: Tensor
    initial: Sequence[Tensor]
    restart: Sequence[Tensor]
    parameters: Sequence[Tensor]

    @property
    def flat(self) -> list[Tensor]:
        """All operands, in order."""
        return [self.gates, self.inputs, self.noise, *self.initial, *self.restart, *self.parameters]


def layout_of(row_count: int, N: int, batch_sizes: tuple[int, ...] | None) -> Rows:
    """The rows of a call with these batch sizes, or with N rows in each step."""
    # Tensors that are created inside a transform are only valid there.
    return (_new_layout if is_transformed() else _cached_layout)(row_count, N, batch_sizes)


def _new_layout(row_count: int, N: int, batch_sizes: tuple[int, ...] | None) -> Rows:
    with torch.inference_mode(False):  # later calls may differentiate
        sizes = torch.tensor([N] * (row_count // max(N, 1)) if batch_sizes is None else batch_sizes, dtype=torch.int64)
        lengths = (sizes[:, None] > torch.arange(N)).sum(0)
        is_dense = int(sizes.sum()) == row_count
        return Rows(sizes.cumsum(0) - sizes, lengths, False, None, is_dense, (row_count,))


_cached_layout = lru_cache(256)(_new_layout)
