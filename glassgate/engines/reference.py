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

from glassgate.cell import Named
from glassgate.cell_locals import trace_locals
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps
from glassgate.engines.reference_step import Step, hidden_size
from glassgate.engines.torch_names import has_autocast, to_list


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
    if has_autocast(device) and torch.is_autocast_enabled(device):
        steps, directions = _cast(steps, directions, torch.get_autocast_dtype(device))
        with torch.autocast(device, enabled=False):
            return run(steps, directions, all_states, recordings)
    recordings = recordings or [None] * len(directions)
    pairs = zip(directions, recordings, strict=True)
    return [_run(steps, direction, all_states, recording) for direction, recording in pairs]


def flat_results(steps: Steps, directions: list[Direction]) -> list[Tensor]:
    """Run a call. Return every state at every step and every final state of each direction."""
    return [v for result in run(steps, directions, all_states=True) for v in (*result.states, *result.final)]


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


def step_of(direction: Direction) -> Step:
    """The step of a direction."""
    cell, weights, width = direction.cell, direction.weights, direction.initial[0].shape[1]
    return Step(cell, weights, hidden_size(cell, weights, len(weights["weight_ih"]), width))


def _run(steps: Steps, direction: Direction, all_states: bool, recording: Recording | None) -> Result:
    """Run one direction over the rows of `steps`. Rows after the last step are padding; their results are zero."""
    cell, weights, initial, reverse, noise, restart = direction
    operands: list[Tensor] = []
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        operands = [v for v in (*weights.values(), *initial, *restart) if v.requires_grad]
    if recording is not None:  # values that depend on no parameter have a gradient too
        leaves = [*operands, steps.data] if steps.data.requires_grad else operands
        data, *states = _connected((steps.data, *initial, *restart), leaves)
        initial, restart = tuple(states[: len(initial)]), tuple(states[len(initial) :])
        steps = steps._replace(data=data)
    row_count, N = steps.data.shape[0], initial[0].shape[0]
    step = step_of(direction)
    batch_sizes = [N] * (row_count // max(N, 1)) if steps.batch_sizes is None else to_list(steps.batch_sizes)
    batch_sizes = batch_sizes or [0]  # without a step, the results of an empty batch would not be in the autograd graph
    padding = row_count - sum(batch_sizes)
    row_counts = [*batch_sizes, padding]
    ih = linear(step.gated_features(steps.data), weights["weight_ih"], weights.get("bias_ih"))
    ih_by_step, input_by_step = _by_step(step.gates(ih), row_counts), _by_step(step.input(steps.data), row_counts)
    noise_by_step = {
        name: v.split(row_counts) if cell.noise[name].per_step else [v] * len(row_counts) for name, v in noise.items()
    }
    resets = None if steps.resets is None else steps.resets.split(row_counts)
    state, at_reset = step.with_axes(initial), step.with_axes(restart or initial)
    new_states = [state] * len(batch_sizes)
    for t in reversed(range(len(batch_sizes))) if reverse else range(len(batch_sizes)):
        n = batch_sizes[t]
        previous = state if n == N else tuple([v[:n] for v in state])
        if resets is not None:
            previous = _reset(resets[t], previous, at_reset)
        noise_of_step = {name: v[t][:n] for name, v in noise_by_step.items()}
        if recording is None:
            new_states[t] = step(ih_by_step[t], previous, noise_of_step, input_by_step[t])
        else:
            start = sum(batch_sizes[:t])
            with record_step(recording, step, row_count, slice(start, start + n)) as store:
                new_states[t] = step(ih_by_step[t], previous, noise_of_step, input_by_step[t])
                store(new_states[t])
        state = new_states[t] if n == N else _with_other_rows(new_states[t], state, n)
    count = len(initial) if all_states else 1
    zeros = [v.new_zeros(padding, *v.shape[1:]) for v in state]
    by_state = list(zip(*new_states, zeros, strict=True))[:count]
    flat = step.flat([torch.cat(by_state[k]) if k < count else v for k, v in enumerate(state)])
    # Operands that the step does not read have a gradient of zero.
    flat = _connected((*flat[:count], *[v.clone() for v in step.flat(state)]), operands)
    result = Result(flat[:count], flat[count:])
    if recording is not None:
        _register_gradient_hooks(recording, result)
    return result


def _connected(values: Sequence[Tensor], operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The values, in whose graph are all operands. They get gradients of zero from this."""
    if not operands:
        return tuple(values)
    total = torch.stack([v.sum().to(values[0].dtype) for v in operands]).sum()
    never = total.new_zeros((), dtype=torch.bool)
    return tuple([torch.where(never, total, v) for v in values])


def _by_step(values: Named | None, row_counts: list[int]) -> list[Any]:
    """Split values of all rows into the values of each step."""
    if values is None:
        return [None] * len(row_counts)
    names, blocks = list(values.__dict__), [v.split(row_counts) for v in values]
    return [Named(names, [block[t] for block in blocks]) for t in range(len(row_counts))]


def _reset(mask: Tensor, states: tuple[Tensor, ...], at_reset: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Replace the states of the rows in the mask (n,)."""
    masks = {v.dim(): mask.view(-1, *(1,) * (v.dim() - 1)) for v in states}
    pairs = zip(at_reset, states, strict=True)
    return tuple([torch.where(masks[v.dim()], start[: len(mask)], v) for start, v in pairs])


def _with_other_rows(new: tuple[Tensor, ...], old: tuple[Tensor, ...], n: int) -> tuple[Tensor, ...]:
    """The new states of the first n rows and the old states of the other rows."""
    return tuple([torch.cat([v, w[n:]]) for v, w in zip(new, old, strict=True)])


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
        weights = {name: w.detach().clone() for name, w in direction.weights.items()}
        self._step = step_of(direction._replace(weights=weights))
        self.states: Sequence[Tensor] = tuple(v.clone() for v in direction.initial)

    def __call__(self, x: Tensor) -> Tensor:
        """Run one step: from the input (N, H_in) to the output (N, H_out)."""
        step, weights = self._step, self._step.weights
        ih = linear(step.gated_features(x), weights["weight_ih"], weights.get("bias_ih"))
        new = step(step.gates(ih), step.with_axes(self.states), {}, step.input(x))
        self.states = step.flat(new)
        return self.states[0]


@contextmanager
def record_step(
    recording: Recording, step: Step, row_count: int, rows_of_step: slice
) -> Iterator[Callable[[tuple[Tensor, ...]], None]]:
    """Record the gates of one step by name and, in the backward pass, the gradients of gates and new states.

    Of a cell that declares axes, every named value of the step with a row per sequence is recorded.

    Args:
        recording: receives the values and gradients.
        step: the step.
        row_count: the number of rows of all steps, with padding.
        rows_of_step: the rows of this step.

    Yields:
        a function that takes the new states and stores everything in the recording.
    """
    cell, n = step.cell, rows_of_step.stop - rows_of_step.start
    values: dict[str, Tensor] = {}

    def note(name: str, value: Any) -> None:
        if isinstance(value, Tensor) and name not in cell.state and (name in cell.gates or step.shapes is not None):
            values.setdefault(name, value)

    def is_recorded(value: Tensor) -> bool:
        if step.shapes is None:  # only a value with one number per row and unit can be the value of a gate
            return value.shape == (n, step.hidden_size)
        return value.is_floating_point() and value.dim() > 0 and value.shape[0] == n

    def store(states: tuple[Tensor, ...]) -> None:
        names = [name for name in (*cell.gates, *values) if name in values and is_recorded(values[name])]
        recorded = {name: values[name] for name in dict.fromkeys(names)}
        if step.shapes is not None:
            recording.shapes = {name: tuple(v.shape[1:]) for name, v in recorded.items()}
        for name, value in recorded.items():
            if name not in recording.values:
                recording.values = {**recording.values, name: value.new_zeros(row_count, value.shape[1:].numel())}
            recording.values[name][rows_of_step] = value.detach().flatten(1) if value.dim() > 1 else value[:, None]
        recorded |= dict(zip(cell.state, states, strict=True))
        widths = {name: v.shape[1:].numel() for name, v in recorded.items()}
        for name, value in recorded.items():
            if value.requires_grad:
                value.register_hook(partial(add_gradient, name, widths))

    def add_gradient(name: str, widths: Mapping[str, int], d: Tensor | None) -> None:
        if d is None:  # torch passes None if every operation that reads the value is detached
            return
        if not recording.grad:
            recording.grad = {name: d.new_zeros(row_count, width) for name, width in widths.items()}
        recording.grad[name][rows_of_step] += d.detach().reshape(n, widths[name])

    with trace_locals(note):
        yield store
