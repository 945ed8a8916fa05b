"""The reference engine: a loop over time in plain torch, differentiable to any order.

It defines the correct results; the tests compare every other engine with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm, Weights, trace_locals
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps


def why_not(steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
    """Return None, because the reference engine can run every call."""
    return None


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording | None] | None = None,
) -> list[Result]:
    """Run the directions of one layer, one after the other. Under autocast, compute in the autocast dtype."""
    device = steps.data.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        steps, directions = _cast(steps, directions, torch.get_autocast_dtype(device))
        with torch.autocast(device, enabled=False):
            return run(steps, directions, all_states, recordings)
    recordings = recordings or [None] * len(directions)
    return [_run(steps, direction, recording) for direction, recording in zip(directions, recordings, strict=True)]


def _cast(steps: Steps, directions: list[Direction], dtype: torch.dtype) -> tuple[Steps, list[Direction]]:
    """Cast all float32 tensors of a call to the autocast dtype, as the layers of torch.nn do."""

    def cast(v: Tensor) -> Tensor:
        return v.to(dtype) if v.dtype == torch.float32 else v

    return steps._replace(data=cast(steps.data)), [
        direction._replace(
            weights={name: cast(v) for name, v in direction.weights.items()},
            initial=tuple(map(cast, direction.initial)),
            noise={name: cast(v) for name, v in direction.noise.items()},
            restart=tuple(map(cast, direction.restart)),
        )
        for direction in directions
    ]


def _run(steps: Steps, direction: Direction, recording: Recording | None) -> Result:
    """Run one direction over the rows of `steps`. Rows after the last step are padding; their results are zero."""
    cell, weights, initial, reverse, noise, restart = direction
    row_count, N, units = steps.data.shape[0], initial[0].shape[0], weights["weight_ih"].shape[0] // len(cell.gates)
    batch_sizes = [N] * (row_count // max(N, 1)) if steps.batch_sizes is None else steps.batch_sizes.tolist()
    batch_sizes = batch_sizes or [0]  # without a step, the results of an empty batch would not be in the autograd graph
    padding = row_count - sum(batch_sizes)
    row_counts = [*batch_sizes, padding]
    ih = linear(steps.data, weights["weight_ih"], weights.get("bias_ih")).split(row_counts)
    resets = None if steps.resets is None else steps.resets[:, None].split(row_counts)
    noise_by_step = {
        name: v.split(row_counts) if cell.noise[name].per_step else [v] * len(row_counts) for name, v in noise.items()
    }
    state, new_states = initial, [initial] * len(batch_sizes)
    for t in reversed(range(len(batch_sizes))) if reverse else range(len(batch_sizes)):
        n = batch_sizes[t]
        previous = tuple(v[:n] for v in state)
        if resets is not None:
            previous = tuple(
                torch.where(resets[t], v_0[:n], v) for v_0, v in zip(restart or initial, previous, strict=True)
            )
        noise_of_step = {name: v[t][:n] for name, v in noise_by_step.items()}
        if recording is None:
            new_states[t] = advance(cell, weights, ih[t], previous, noise_of_step)
        else:
            start = sum(batch_sizes[:t])
            with _record_step(recording, cell, row_count, units, slice(start, start + n)) as store:
                new_states[t] = advance(cell, weights, ih[t], previous, noise_of_step)
                store(new_states[t])
        state = tuple(new if n == N else torch.cat([new, v[n:]]) for new, v in zip(new_states[t], state, strict=True))
    zeros = tuple(v.new_zeros(padding, v.shape[1]) for v in initial)
    states = tuple(torch.cat(blocks) for blocks in zip(*new_states, zeros, strict=True))
    result = Result(states, tuple(v.clone() for v in state))
    if recording is not None:
        _register_gradient_hooks(recording, result)
    return result


def _register_gradient_hooks(recording: Recording, result: Result) -> None:
    """Register a hook on the output and on each final state. Each hook passes one gradient to `recording`."""
    outputs = result.states[0], *result.final

    def pass_gradient(k: int, d: Tensor | None) -> None:
        if recording.on_gradients is not None:
            recording.on_gradients([d if index == k else None for index in range(len(outputs))])

    for k, value in enumerate(outputs):
        if value.requires_grad:
            value.register_hook(partial(pass_gradient, k))


class Stepper:
    """Runs one direction one step at a time.

    Args:
        direction: the cell, the weights and the states before the first step.
    """

    def __init__(self, direction: Direction) -> None:
        self._cell, self._weights = direction.cell, {name: w.detach().clone() for name, w in direction.weights.items()}
        self.states: Sequence[Tensor] = tuple(v.clone() for v in direction.initial)

    def __call__(self, x: Tensor) -> Tensor:
        """Run one step: from the input (N, H_in) to the output (N, H_out)."""
        ih = linear(x, self._weights["weight_ih"], self._weights.get("bias_ih"))
        self.states = advance(self._cell, self._weights, ih, tuple(self.states))
        return self.states[0]


@contextmanager
def _record_step(
    recording: Recording, cell: Cell, row_count: int, units: int, rows_of_step: slice
) -> Iterator[Callable[[tuple[Tensor, ...]], None]]:
    """Record the gates of one step by name and, in the backward pass, the gradients of gates and new states.

    Args:
        recording: receives the values and gradients.
        cell: the cell.
        row_count: the number of rows of all steps, with padding.
        units: the number of units.
        rows_of_step: the rows of this step.

    Yields:
        a function that takes the new states and stores everything in the recording.
    """
    gates: dict[str, Tensor] = {}

    def note_gate(name: str, value: Any) -> None:
        if name in cell.gates and name not in cell.state and isinstance(value, Tensor):
            gates.setdefault(name, value)

    def store(states: tuple[Tensor, ...]) -> None:
        # Only a value with one number per row and unit can be the value of a gate.
        shape = rows_of_step.stop - rows_of_step.start, units
        gate_values = {name: gates[name] for name in cell.gates if name in gates and gates[name].shape == shape}
        for name, value in gate_values.items():
            if name not in recording.values:
                recording.values = {**recording.values, name: value.new_zeros(row_count, units)}
            recording.values[name][rows_of_step] = value.detach()
        recorded = gate_values | dict(zip(cell.state, states, strict=True))
        widths = {name: v.shape[1] for name, v in recorded.items()}
        for name, value in recorded.items():
            if value.requires_grad:
                value.register_hook(partial(add_gradient, name, widths))

    def add_gradient(name: str, widths: Mapping[str, int], d: Tensor | None) -> None:
        if d is None:  # torch passes None if every operation that reads the value is detached
            return
        if not recording.grad:
            recording.grad = {name: d.new_zeros(row_count, width) for name, width in widths.items()}
        recording.grad[name][rows_of_step] += d.detach()

    with trace_locals(note_gate):
        yield store


def advance(
    cell: Cell,
    weights: Weights,
    ih: Tensor,
    state: tuple[Tensor, ...],
    noise: dict[str, Tensor] | None = None,
    detach_recurrent: bool = False,
) -> tuple[Tensor, ...]:
    """Return the states after one step.

    Leading axes of `ih` and `state` broadcast. The recurrent matrix products are computed before broadcasting.

    Args:
        cell: the cell with the equations.
        weights: the parameters of the cell.
        ih: `W_ih x + b_ih`, the contribution of the input to the pre-activations, (..., gates * H_cell).
        state: the states before the step.
        noise: the cell's random numbers by name. The default is the mean of each.
        detach_recurrent: whether to block gradients through the recurrent matrix products. Gradients then flow from a
            state to the next only where the step reads the state directly, such as c in `f * c` of an LSTM.
    """

    def by_gate(v: Tensor) -> Named:
        return Named(cell.gates, v.chunk(len(cell.gates), -1))

    def product(u: Tensor) -> Named:
        units = ih.shape[-1] // len(cell.gates)
        u = u.detach() if detach_recurrent else u
        return by_gate(recurrent_product(u, weights["weight_hh"], weights.get("bias_hh"), cell.heads, units))

    def projection(h: Tensor) -> Tensor:
        return linear(h, weights["weight_hr"])

    p = Named(
        cell.parameters,
        (by_gate(weights[name]) if spec.per_gate else weights[name] for name, spec in cell.parameters.items()),
    )
    hh = RecurrentTerm(product, state[0]) if cell.recurrent else None
    noise_or_mean = {name: noise.mean for name, noise in cell.noise.items()} | (noise or {})
    a = PreActivations(by_gate(ih), hh, Named(noise_or_mean, noise_or_mean.values()))
    if ih.shape[:-1] != state[0].shape[:-1]:
        rows = torch.broadcast_shapes(ih.shape[:-1], state[0].shape[:-1])
        state = tuple(v.expand(*rows, -1) for v in state)
    return cell.new_state(a, Named(cell.state, state), p, projection if "weight_hr" in weights else None)


def recurrent_product(u: Tensor, weight: Tensor, bias: Tensor | None, heads: int, units: int | None = None) -> Tensor:
    """Return `W_hh u + b_hh`. With several heads, the units of head k of each gate read only block k of `u`.

    Args:
        u: the vector, (..., H_out).
        weight: `weight_hh`, (gates * H_cell, H_out / heads).
        bias: `bias_hh`, or None.
        heads: the number of heads, which is also the number of blocks of `u`.
        units: H_cell; None if it equals H_out, which is the case without a projection.
    """
    if heads == 1:
        return linear(u, weight, bias)
    blocks = weight.unflatten(0, (-1, heads, (units or u.shape[-1]) // heads))
    out = torch.einsum("...ki,gkoi->...gko", u.unflatten(-1, (heads, -1)), blocks).flatten(-3)
    return out if bias is None else out + bias
