"""The calls with one signature of a layer whose cell declares axes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.arrays.parameters import parameters_of
from glassgate.engines.arrays.passes import ArrayPasses, noise_rows
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.recorder import Recorder
from glassgate.engines.arrays.rows import Rows, layout_of
from glassgate.engines.backend import InputProduct, PackedLengths, RunPasses
from glassgate.engines.contract import Direction, Recording
from glassgate.engines.memory import LOW_ADDRESS, move_to_device, readable
from glassgate.engines.symbolic.arrays.cell import Sizes
from glassgate.engines.traced_cells import traced_array_step


class ArrayPlan(NamedTuple):
    """`backend.CallPlan` of a direction.

    Attributes:
        cell: the cell.
        sizes: the sizes of the layer.
        weights, noise: the names of the parameters and of the noise.
        passes: the passes of the recurrence.
    """

    cell: Cell
    sizes: Sizes
    weights: tuple[str, ...]
    noise: tuple[str, ...]
    passes: ArrayPasses

    @property
    def program(self) -> ArrayProgram:
        """The passes of a step."""
        return self.passes.compiled.program

    @property
    def operand_count(self) -> int:
        """See `CallPlan`."""
        return len(self.weights) + (1 + self.passes.restarts) * len(self.cell.state) + len(self.noise)

    def describes(self, cell: Cell) -> bool:
        """See `CallPlan`."""
        return traced_array_step(cell, *self.sizes) is self.program.traced


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
        products: for each direction, a function that computes the product of the input.
        run_passes: runs passes in autograd; None if no backward pass follows.
    """

    def __init__(
        self, plans: tuple[ArrayPlan, ...], products: Sequence[InputProduct], run_passes: RunPasses | None
    ) -> None:
        self.plans, self._products, self._run_passes = plans, products, run_passes

    by_address, depends_on_threads = None, True
    """See `PreparedCalls`."""

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> RaggedRows:
        """See `PreparedCalls`. The kernels skip the padding of the rows of padded sequences."""
        if not isinstance(lengths, PackedLengths):
            rows = self._rows._replace(lengths=torch.tensor(lengths, device="cpu"), is_dense=False)
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
        return (self._run(None, ragged, recordings, resets, tensors),)

    def train(
        self,
        ragged: RaggedRows | None,
        recordings: Sequence[Recording] | None,
        saved: list[Tensor],
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> Sequence[Tensor]:
        """See `backend.Train`."""
        return self._run(self._run_passes, ragged, recordings, resets, tensors)

    @property
    def _rows(self) -> Rows:
        """The rows of a call with sequences of equal length."""
        rows = self.plans[0].passes.rows
        assert rows is not None
        return rows

    def _run(
        self,
        run_passes: RunPasses | None,
        ragged: RaggedRows | None,
        recordings: Sequence[Recording] | None,
        resets: Tensor | None,
        tensors: Sequence[Tensor],
    ) -> Sequence[Tensor]:
        if min(map(Tensor.data_ptr, tensors)) < LOW_ADDRESS or (resets is not None and resets.data_ptr() < LOW_ADDRESS):
            tensors = readable(tensors)
            resets = None if resets is None else readable((resets,))[0]
        remaining, (rows, order, ranks) = iter(tensors), ragged or _EQUAL_LENGTHS
        data = next(remaining)
        visible: list[Tensor] = []
        final: list[Tensor] = []
        for k, (plan, product) in enumerate(zip(self.plans, self._products, strict=True)):
            passes, program = plan.passes, plan.program
            weights = dict(zip(plan.weights, remaining, strict=False))
            states = [*islice(remaining, plan.operand_count - len(plan.weights) - len(plan.noise))]
            noise = dict(zip(plan.noise, remaining, strict=False))
            weight, features = weights["weight_ih"], data.flatten(0, -2)
            if weight.shape[1] < features.shape[1]:  # the cell reads the other columns itself
                features = features[:, : weight.shape[1]].contiguous()
            if order is not None:
                order = move_to_device(order, data.device)
                states = [_select(v, order) for v in states]
            gates = product(features, weight, weights.get("bias_ih"))
            operands = [gates, *parameters_of(program, weights), *states]
            if program.inputs:
                operands.append(data)
            if program.noise:
                operands.append(noise_rows(program.noise_widths, plan.cell, noise, gates, len(self._rows.lengths)))
            if recordings:
                count = len(plan.cell.state)
                flat = [v.reshape(len(self._rows.lengths), -1) for v in states]
                direction = Direction(
                    plan.cell, weights, tuple(flat[:count]), passes.reverse, noise, tuple(flat[count:])
                )
                passes = replace(passes, recorder=Recorder(recordings[k], direction))
            if run_passes is None:
                results, _ = passes.forward(operands, resets, rows)
            else:
                results = run_passes(passes, rows, None, [], resets, *operands)
            split = len(program.outputs)
            visible += results[:split]
            if ranks is not None:
                ranks = move_to_device(ranks, data.device)
                results = [*results[:split], *(_select(v, ranks) for v in results[split:])]
            final += results[split:]
        return visible + final


def _select(state: Tensor, indices: Tensor) -> Tensor:
    """Reorder the sequences of a state, (N, *) or (1, N, *)."""
    return state.index_select(int(len(state) != len(indices)), indices)
