"""The dynamics of each layer and direction of a network, along windows of the sequences that it reads."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

import glassgate as gg
from glassgate.dynamics.explanations import NotTraceable
from glassgate.dynamics.plot import Plane
from glassgate.glass.dynamics import Dynamics, Points
from glassgate.glass.gradients import evenly_spaced
from glassgate.glass.languages import say
from glassgate.glass.recorded import Recorded
from glassgate.glass.study import Direction
from glassgate.tasks.report.task_view import LAYER

# The number of windows, and the range of their length in steps.
_WINDOWS = 6
_MIN_STEPS, _MAX_STEPS = 8, 24
# The number of small changes of the state that are followed through each window.
_DIFFERENCES = 8
# The search for fixed points: the number of initial states and of steps, and the largest size of a state.
_STARTS = 16
_SEARCH_STEPS = 50
_MAX_STATE_SIZE = 128


def add_dynamics(directions: Sequence[Direction], recording: Recorded) -> str:
    """Add `dynamics` to the directions of the recorded encoder. Return the reason if it is left out, otherwise ""."""
    label, call, _ = next(each for each in recording.directions() if each[0].startswith(f"{LAYER}."))
    steps = call.layout.by_step(call.steps.data.detach())
    windows = _windows(steps, recording.unpadded(label).sum(0).tolist())
    if windows is None:
        return say("dynamics.too_short", steps=_MIN_STEPS)
    try:
        with gg.engine("reference"), torch.no_grad():
            for direction, single in zip(directions, gg.dynamics.separate(call.layer, windows), strict=True):
                direction.dynamics = _dynamics(single.layer, single.inputs)
    except NotTraceable as error:
        return say("dynamics.not_traceable", reason=error)
    return ""


def _windows(steps: Tensor, lengths: Sequence[int]) -> Tensor | None:
    """Return windows of equal length L, (L, number of windows, H_in), from padded sequences, (T, N, H_in).

    L is the largest length that gives `_WINDOWS` windows or, if no length does, the length of the longest sequence.
    L is at most `_MAX_STEPS`. Returns None if the sequences are too short.
    """
    longest = min(_MAX_STEPS, max(lengths))
    sizes = range(longest, _MIN_STEPS - 1, -1)
    size = next((size for size in sizes if sum(each // size for each in lengths) >= _WINDOWS), longest)
    if size < _MIN_STEPS:
        return None
    starts = [(row, start) for row, length in enumerate(lengths) for start in range(0, length - size + 1, size)]
    chosen = [starts[k] for k in evenly_spaced(len(starts), _WINDOWS)]
    return torch.stack([steps[start : start + size, row] for row, start in chosen], 1)


def _dynamics(layer: gg.Recurrent, inputs: Tensor) -> Dynamics:
    survival = gg.dynamics.survival(layer, inputs, differences=_DIFFERENCES)
    *_, states = layer(inputs, return_states=True)
    visited = torch.cat([states[f"layer0.forward.{name}"] for name in layer.cell.state], -1)
    size = visited.shape[2]
    points = partial(_points, layer, inputs, visited) if size <= _MAX_STATE_SIZE else None
    return Dynamics(np.asarray(survival), size, points)


def _points(layer: gg.Recurrent, inputs: Tensor, visited: Tensor) -> Points:
    flat = visited.flatten(0, 1)
    starts = flat[list(evenly_spaced(len(flat), _STARTS))]
    with gg.engine("reference"), torch.no_grad():
        found = gg.dynamics.fixed_points(layer, inputs.flatten(0, 1).mean(0), starts, steps=_SEARCH_STEPS)
    plane = Plane.of(flat)
    states, path = plane.project(found.states), plane.project(visited)
    return Points(*map(np.asarray, (states, found.stable, found.time_constants.amax(1), path, plane.explained)))
