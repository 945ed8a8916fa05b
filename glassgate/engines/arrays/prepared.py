"""The calls with one signature of a layer whose cell declares axes."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.parameters import parameters_of
from glassgate.engines.arrays.rows import Operands, Rows, layout_of
from glassgate.engines.backend import InputProduct, PackedLengths
from glassgate.engines.contract import Recording
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


class RaggedRows(NamedTuple):
    """The rows of sequences of different lengths.

    Attributes:
        rows: the rows of a direction that is not reversed; None for sequences of equal length.
        order: (N,) the index of the sequence at each rank; None if the kernels do not rank the sequences.
        ranks: (N,) the rank of each sequence.
    """

    rows: Rows | None
    order: Tensor | None
    ranks: Tensor | None


_EQUAL_LENGTHS = RaggedRows(None, None, None)


class PreparedArrays:
    """`backend.PreparedCalls` for cells that declare axes.

    Args:
        plans: the plan of each direction.
        dtype: the dtype of all tensors.
        products: for each direction, a function that computes the product of the input.
    """

    def __init__(self, plans: tuple[ArrayPlan, ...], dtype: torch.dtype, products: Sequence[InputProduct]) -> None:
        self.plans, self._products = plans, products
        self._nothing = torch.empty(0, dtype=dtype)

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> RaggedRows:
        """See `PreparedCalls`. The kernels skip the padding of the rows of padded sequences."""
        if not isinstance(lengths, PackedLengths):
            rows = self.plans[0].rows._replace(lengths=torch.tensor(lengths, device="cpu"), is_dense=False)
            return RaggedRows(rows, None, None)
        sizes, order = lengths
        rows = layout_of(sum(sizes), len(order), tuple(sizes))
        if [*order] == [*range(len(order))]:
            return RaggedRows(rows, None, None)
        ranked = torch.tensor(order, device="cpu")
        return RaggedRows(rows, ranked, ranked.argsort())

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: RaggedRows | None,
        recordings: Sequence[Recording] | None,
    ) -> tuple[Sequence[Tensor]]:
        """See `PreparedCalls`."""
        return (self.train(ragged, recordings, [], resets, *tensors),)

    def train(
        self,
        ragged: RaggedRows | None,
        recordings: Sequence[Recording] | None,
        saved: list[Tensor],
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> Sequence[Tensor]:
        """See `backend.Train`."""
        if min(map(Tensor.data_ptr, tensors)) < LOW_ADDRESS or (resets is not None and resets.data_ptr() < LOW_ADDRESS):
            tensors = tuple(readable(tensors))
            resets = None if resets is None else readable((resets,))[0]
        remaining, (given_rows, order, ranks) = iter(tensors), ragged or _EQUAL_LENGTHS
        data = next(remaining).flatten(0, -2)
        nothing = self._nothing
        visible: list[Tensor] = []
        final: list[Tensor] = []
        for plan, product in zip(self.plans, self._products, strict=True):
            program, count = plan.compiled.program, len(plan.cell.state)
            weights = dict(zip(plan.weights, remaining, strict=False))
            weight, features = weights["weight_ih"], data
            if weight.shape[1] < data.shape[1]:  # the cell reads the other columns itself
                features = data[:, : weight.shape[1]].contiguous()
            initial = [*islice(remaining, count)]
            if order is not None:
                initial = [_select(v, order) for v in initial]
            operands_of_step = Operands(
                product(features, weight, weights.get("bias_ih")),
                data if program.inputs else nothing,
                nothing,
                initial,
                [*islice(remaining, plan.state_count - count)] or initial,
                parameters_of(program, weights),
            )
            rows = plan.rows if resets is None else plan.rows._replace(resets=resets)
            if given_rows is not None:
                rows = given_rows._replace(reverse=plan.rows.reverse)
            results = plan.compiled(rows, operands_of_step)
            split = len(program.outputs)
            visible += results[:split]
            final += results[split:] if ranks is None else [_select(v, ranks) for v in results[split:]]
        return visible + final


def _select(state: Tensor, indices: Tensor) -> Tensor:
    """Reorder the sequences of a state, (N, *) or (1, N, *)."""
    return state.index_select(int(len(state) != len(indices)), indices)
