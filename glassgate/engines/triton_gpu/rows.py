"""The rows of a batch: for each step, one row per sequence that has this step, longest sequences first."""

from functools import cached_property

import torch
from torch import Tensor

from glassgate.engines.contract import Steps
from glassgate.engines.memory import move_to_device


class Rows:
    """Maps steps and sequences of a batch to its rows.

    Args:
        steps: the batch.
        N: the number of sequences.
    """

    def __init__(self, steps: Steps, N: int) -> None:
        self.N, self.device = N, steps.data.device
        self.ragged = steps.batch_sizes is not None
        if steps.batch_sizes is None:
            self.T = len(steps.data) // max(N, 1)
            self.total = self.T * N
        else:
            self.sizes = steps.batch_sizes[: int((steps.batch_sizes > 0).sum())]
            self.T, self.total = len(self.sizes), int(self.sizes.sum())

    @cached_property
    def _first_rows(self) -> Tensor:
        """(T,) the first row of each step."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def starts(self) -> Tensor | None:
        """(T + 3,) the first row of each step, with an empty step added before the first and after the last."""
        if not self.ragged:
            return None
        end = torch.tensor([self.total])
        return move_to_device(torch.cat([torch.tensor([0]), self._first_rows, end, end]), self.device)

    @cached_property
    def _sequence_on_cpu(self) -> Tensor:
        return torch.arange(self.total) - self._first_rows.repeat_interleave(self.sizes)

    @cached_property
    def sequence(self) -> Tensor:
        """(total,) the index of the sequence of each row."""
        if self.ragged:
            return move_to_device(self._sequence_on_cpu, self.device)
        return torch.arange(self.N, device=self.device).repeat(self.T)

    def expand_to_rows(self, v: Tensor) -> Tensor:
        """Expand values of sequences, (N, ...), to values of rows, (total, ...)."""
        if self.ragged:
            return v.index_select(0, self.sequence)
        return v.expand(self.T, *v.shape).flatten(0, 1)

    def shift(self, x: Tensor, first: Tensor, reverse: bool) -> Tensor:
        """Shift rows by one step: for each row, return the row of the same sequence at the previous step of the loop.

        At the first step of a sequence, the result is the row of the sequence in `first`.
        """
        if not self.ragged:
            last = self.total - self.N
            return torch.cat([x[self.N :], first]) if reverse else torch.cat([first, x[:last]])
        step = torch.arange(self.T).repeat_interleave(self.sizes) + (1 if reverse else -1)
        sizes = torch.cat([self.sizes, torch.tensor([0])])
        first_rows = torch.cat([self._first_rows, torch.tensor([0])])
        exists = self._sequence_on_cpu < sizes[step]
        index = self._sequence_on_cpu + torch.where(exists, self.N + first_rows[step], 0)
        return torch.cat([first, x]).index_select(0, move_to_device(index, self.device))
