"""The calls with one signature of a layer whose cell declares axes."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.backend import InputProduct
from glassgate.engines.contract import Recording
from glassgate.engines.llvm_cpu.arrays.parameters import parameters_of
from glassgate.engines.llvm_cpu.arrays.rows import Operands, Rows
from glassgate.engines.llvm_cpu.arrays.run import CompiledArrays
from glassgate.engines.memory import LOW_ADDRESS, readable
from glassgate.engines.traced_cells import traced_array_step


class ArrayPlan(NamedTuple):
    """`backend.CallPlan` of a direction.

    Attributes:
        cell: the cell.
        sizes: the input size and the hidden size.
        weights: the names of the parameters.
        state_count: the number of initial states, and of states after a reset if the calls have some.
        compiled: the kernels.
        rows: the rows of each call, without resets.
    """

    cell: Cell
    sizes: tuple[int, int]
    weights: tuple[str, ...]
    state_count: int
    compiled: CompiledArrays
    rows: Rows
    noise: tuple[str, ...] = ()

    @property
    def operand_count(self) -> int:
        """See `CallPlan`."""
        return len(self.weights) + self.state_count

    def describes(self, cell: Cell) -> bool:
        """See `CallPlan`."""
        return traced_array_step(cell, *self.sizes) is self.compiled.program.traced


class PreparedArrays:
    """`backend.PreparedCalls` for cells that declare axes.

    Args:
        plans: the plan of each direction.
        dtype: the dtype of all tensors.
        product: computes the product of the input.
    """

    def __init__(self, plans: tuple[ArrayPlan, ...], dtype: torch.dtype, product: InputProduct) -> None:
        self.plans, self._product = plans, product
        self._nothing = torch.empty(0, dtype=dtype)

    def ragged(self, lengths: Any) -> Any:
        """See `PreparedCalls`."""
        raise AssertionError("calls with lengths are not prepared")

    def forward(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any, recordings: Sequence[Recording] | None
    ) -> tuple[Sequence[Tensor]]:
        """See `PreparedCalls`."""
        return (self.train(ragged, recordings, [], resets, *tensors),)

    def train(
        self,
        ragged: Any,
        recordings: Sequence[Recording] | None,
        saved: list[Tensor],
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> Sequence[Tensor]:
        """See `backend.Train`."""
        if min(map(Tensor.data_ptr, tensors)) < LOW_ADDRESS or (resets is not None and resets.data_ptr() < LOW_ADDRESS):
            tensors = tuple(readable(tensors))
            resets = None if resets is None else readable((resets,))[0]
        remaining = iter(tensors)
        data = next(remaining).flatten(0, -2)
        nothing = self._nothing
        visible: list[Tensor] = []
        final: list[Tensor] = []
        for plan in self.plans:
            program, count = plan.compiled.program, len(plan.cell.state)
            weights = dict(zip(plan.weights, remaining, strict=False))
            weight, features = weights["weight_ih"], data
            if weight.shape[1] < data.shape[1]:  # the cell reads the other columns itself
                features = data[:, : weight.shape[1]].contiguous()
            initial = [*islice(remaining, count)]
            operands_of_step = Operands(
                self._product(features, weight, weights.get("bias_ih")),
                data if program.inputs else nothing,
                nothing,
                initial,
                [*islice(remaining, plan.state_count - count)] or initial,
                parameters_of(program, weights),
            )
            rows = plan.rows if resets is None else plan.rows._replace(resets=resets)
            results = plan.compiled(rows, operands_of_step)
            split = len(program.outputs)
            visible += results[:split]
            final += results[split:]
        return visible + final
