"""The fraction of each state that a step keeps: the diagonal of ds_t/ds_{t-1} at recorded values, by autograd.

The direct path is the path from a state to its next value without the recurrent weights, for example through the forget
gate of an LSTM. The cell's random numbers are replaced by their means.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Weights
from glassgate.engines.reference_step import advance
from glassgate.layers.base import weights_of
from glassgate.layers.levels import Level, walk
from glassgate.layers.regularisers import without_noise
from glassgate.layers.stack import LayerCall


class Retention(NamedTuple):
    """The fraction of a state that one step keeps.

    Attributes:
        by_step: the derivative of each unit's new state with respect to its old one, (L, N, H); zero where padded.
        direct: whether `by_step` is the derivative along the direct path only. For a cell without a direct path, it is
            the complete derivative.
    """

    by_step: Tensor
    direct: bool


def retentions(call: LayerCall, index: int) -> dict[str, Retention]:
    """The retention in one direction: of each state with a direct path, or of the output without a direct path."""
    layer, part = call.layer, call.layer.glassgate.parts[index]
    cell, weights = without_noise(layer.cell), {name: w.detach() for name, w in weights_of(layer, part).items()}
    ih = linear(direction_inputs(call, index), weights["weight_ih"], weights.get("bias_ih"))
    before = states_before(call, index)
    diagonals = {
        name: Retention(diagonal, True)
        for k, name in enumerate(cell.state)
        if bool((diagonal := _diagonal(cell, weights, ih, before, k, direct=True)).any())
    }
    if not diagonals:
        diagonals = {cell.state[0]: Retention(_diagonal(cell, weights, ih, before, 0, direct=False), False)}
    return {name: Retention(pad_rows(call, each), direct) for name, (each, direct) in diagonals.items()}


def pad_rows(call: LayerCall, rows: Tensor) -> Tensor:
    """Convert rows without padding to (L, N, H). Padded positions are zero."""
    return call.layout.by_step(torch.cat([rows, rows.new_zeros(len(call.steps.data) - len(rows), *rows.shape[1:])]))


def _diagonal(cell: Cell, weights: Weights, ih: Tensor, before: tuple[Tensor, ...], index: int, direct: bool) -> Tensor:
    """The diagonal d new_j / d old_j of one state, (S, H).

    Args:
        cell: the cell.
        weights: the weights of the direction.
        ih: W_ih x + b_ih of each gate.
        before: the states before each step.
        index: the index of the state.
        direct: whether matrix products with the states are constants, so that only the direct path remains.
    """
    with torch.enable_grad():
        old = [state.detach().requires_grad_(k == index) for k, state in enumerate(before)]
        new = advance(cell, weights, ih, tuple(old), detach_recurrent=direct)[index]
        if not new.requires_grad:
            return torch.zeros_like(new)

        def vjp(vector: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(new, old[index], vector, retain_graph=True, allow_unused=True)
            return torch.zeros_like(new) if gradient is None else gradient

        diagonal = vjp(torch.ones_like(new))
        if direct:
            signs = torch.ones(new.shape[1], dtype=new.dtype, device=new.device)
            signs[1::2] = -1
            if torch.allclose(vjp(signs.expand_as(new)) * signs, diagonal, atol=1e-6):
                return diagonal  # no unit depends on another unit, so one backward pass was enough
        for unit in range(new.shape[1]):
            one_hot = torch.zeros_like(new)
            one_hot[:, unit] = 1
            diagonal[:, unit] = vjp(one_hot)[:, unit]
        return diagonal


def direction_inputs(call: LayerCall, index: int) -> Tensor:
    """The input rows of one direction of one layer, (S, H_in), without padding and without dropout."""
    part, levels = call.layer.glassgate.parts[index], call.layer.glassgate.levels

    def outputs_of(level: Level, _: list[Tensor]) -> list[Tensor]:
        own = call.results[level.start : level.start + len(level.parts)]
        return [result.states[0].detach() for result in own]

    inputs = walk(levels[: part.layer], call.steps.data.detach(), outputs_of)
    computed = None if call.steps.batch_sizes is None else int(call.steps.batch_sizes.sum())
    return inputs[part.direction % len(inputs)][:computed]


def states_before(call: LayerCall, index: int) -> tuple[Tensor, ...]:
    """The states before the step of each row, (S, H) each, without padding."""
    part, steps, initial = call.layer.glassgate.parts[index], call.steps, call.initial[index]
    N = len(initial[0])
    sizes = torch.full((len(steps.data) // max(N, 1),), N) if steps.batch_sizes is None else steps.batch_sizes
    starts = sizes.cumsum(0) - sizes
    step = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    rank = torch.arange(len(step)) - starts[step]
    earlier = step + 1 if part.direction else step - 1
    has_earlier = (earlier >= 0) & (earlier < len(sizes))
    has_earlier &= rank < sizes[earlier.clamp(0, len(sizes) - 1)]
    source = (starts[earlier.clamp(0, len(sizes) - 1)] + rank).where(has_earlier, torch.zeros_like(rank))
    if steps.resets is not None:
        has_earlier &= ~steps.resets[: len(step)].cpu()
    result = []
    for first, after in zip(initial, call.results[index].states, strict=True):
        result.append(torch.where(has_earlier[:, None], after.detach()[source], first.detach()[rank]))
    return tuple(result)
