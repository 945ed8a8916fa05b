"""The engine "torch": the kernels of torch itself (oneDNN, cuDNN, MIOpen) for LSTM, GRU and RNN."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.cells import GRU, LSTM, RNN
from glassgate.engines.contract import Direction, Reason, Result, Steps, is_transformed


def why_not(steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
    """Why torch's kernels cannot run this call; None if they can."""
    text = _why_not(steps, directions, all_states)
    return None if text is None else Reason(text)


def _why_not(steps: Steps, directions: list[Direction], all_states: bool) -> str | None:
    cell, weights = directions[0].cell, directions[0].weights
    if type(cell) not in (LSTM, GRU, RNN):
        inner = getattr(cell, "cell", cell)  # a cell with noise wraps another cell
        noise = "" if inner is cell else " with zoneout or recurrent dropout"
        return f"torch has kernels only for LSTM, GRU and RNN, and this cell is {type(inner).__name__}{noise}"
    if is_transformed():
        return "torch's kernels do not support vmap and jvp"
    if steps.resets is not None:
        return "torch's kernels do not support resets"
    if all_states and len(cell.state) > 1:
        return "torch's kernels return only the output at every step, not the other states"
    if "weight_hr" in weights and type(cell) is not LSTM:
        return f"torch does not support a projection for {type(cell).__name__}"
    if directions[0].initial[0].shape[0] == 0 or (steps.batch_sizes is not None and not steps.batch_sizes.any()):
        return "torch's kernels need at least one sequence and one step"
    if len(directions) == 2 and _shapes(directions[0]) != _shapes(directions[1]):
        return "torch's kernels need two directions of the same size"
    if len(directions) == 1 and directions[0].reverse and steps.batch_sizes is not None:
        return "torch's kernels do not run a single reverse direction over sequences of unequal length"
    return None


def is_persistent(
    cell: Cell,
    dtype: torch.dtype,
    sizes: tuple[int, int, int],
    directions: int,
    packed: bool,
    projected: bool,
    train: bool,
) -> bool:
    """Whether cuDNN has a persistent kernel for a call. Otherwise cuDNN runs the call with its standard algorithm.

    A persistent kernel runs all steps in one launch, and keeps the weights on the chip.

    Args:
        cell: the cell.
        dtype: the dtype of the results.
        sizes: the batch size, the width of the input and the hidden size.
        directions: the number of directions.
        packed: whether the lengths of sequences may differ.
        projected: whether the output goes through `weight_hr`.
        train: whether a backward pass follows.
    """
    rows, width, units = sizes
    if packed or projected or type(cell) not in (LSTM, GRU, RNN):
        return False
    max_small_units = 128 if train else 192
    if type(cell) is not RNN and units <= max_small_units:
        return True
    fits = directions == 1 and units <= 1024 and units % 128 == 0 and width % 128 == 0 and rows <= 128 and rows % 8 == 0
    return dtype == torch.float16 and type(cell) is not GRU and fits


def _shapes(direction: Direction) -> list[tuple[int, ...]]:
    return [tuple(w.shape) for w in direction.weights.values()]


def run(steps: Steps, directions: list[Direction], all_states: bool = False) -> list[Result]:
    """Run one layer with `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu`."""
    flipped = len(directions) == 1 and directions[0].reverse
    N = directions[0].initial[0].shape[0]
    weights = [w for d in directions for w in d.weights.values()]
    options = ("bias_ih" in directions[0].weights, 1, 0.0, torch.is_grad_enabled(), len(directions) == 2)
    function = _sequence_function(directions[0])
    if steps.batch_sizes is None:
        data = steps.data.view(-1, N, steps.data.shape[1])
        states = _stack_states(directions, N)
        output, *final = function(data.flip(0) if flipped else data, states, weights, *options, False)
        output = (output.flip(0) if flipped else output).flatten(0, 1)
    else:
        sizes = steps.batch_sizes[steps.batch_sizes > 0]
        nonempty, total = int(sizes[0]), int(sizes.sum())
        output, *final = function(steps.data[:total], sizes, _stack_states(directions, nonempty), weights, *options)
        final = [
            torch.cat([f, torch.stack([d.initial[k][nonempty:] for d in directions])], 1) for k, f in enumerate(final)
        ]
        output = torch.cat([output, output.new_zeros(steps.data.shape[0] - total, output.shape[1])])
    outputs = output.chunk(len(directions), 1)
    return [Result((outputs[k],), tuple(f[k] for f in final)) for k in range(len(directions))]


def step_function(cell: Cell) -> Callable[..., Any] | None:
    """torch's function for one step of a cell; None if torch has none."""
    return _STEPS.get((type(cell), getattr(cell, "nonlinearity", None)))


_STEPS: dict[tuple[type[Cell], str | None], Callable[..., Any]] = {
    (LSTM, None): torch.lstm_cell,
    (GRU, None): torch.gru_cell,
    (RNN, "tanh"): torch.rnn_tanh_cell,
    (RNN, "relu"): torch.rnn_relu_cell,
}


def _stack_states(directions: list[Direction], rows: int) -> list[Tensor] | Tensor:
    """The initial states of all directions, stacked in the format of torch's functions."""
    by_state = zip(*(d.initial for d in directions), strict=True)
    stacked = [torch.stack([v[:rows] for v in states]) for states in by_state]
    return stacked if len(stacked) > 1 else stacked[0]


def _sequence_function(direction: Direction) -> Callable[..., Any]:
    cell = direction.cell
    return getattr(torch, {LSTM: "lstm", GRU: "gru", RNN: f"rnn_{getattr(cell, 'nonlinearity', '')}"}[type(cell)])
