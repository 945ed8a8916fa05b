"""Measures of the gates and states of one direction: ranges, saturation, half-life and memory."""

import math
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.cell_locals import trace_locals
from glassgate.cell_shapes import example_sizes, state_shapes
from glassgate.engines.reference_step import advance
from glassgate.glass.recorded import Recorded
from glassgate.layers.regularisers import without_noise
from glassgate.layers.stack import LayerCall

# A gate is closed below the first number and open above the second (Karpathy, Johnson and Fei-Fei 2015,
# arXiv:1506.02078).
CLOSED, OPEN = 0.1, 0.9
# The quantiles of a memory are computed from at most this number of evenly spaced values per lag.
_MAX_VALUES = 200_000
# Pre-activations of this magnitude and both signs drive every gate to its limits.
_EXTREME_PREACTIVATION = 1e4


class Saturation(NamedTuple):
    """The fractions of steps at which a gate is below `CLOSED` (low) and above `OPEN` (high), (H,) each.

    For values between -1 and 1, such as tanh, the limits are -0.9 and 0.9.
    """

    low: Tensor
    high: Tensor


class Memory(NamedTuple):
    """The fraction of a state that remains after k steps, as quantiles over all starting steps and units.

    Attributes:
        steps: (K,), the values of k.
        median, low, high: (K,) each, the quantiles 0.5, 0.1 and 0.9 of the fraction.
    """

    steps: Tensor
    median: Tensor
    low: Tensor
    high: Tensor


def ranges(cell: Cell, hidden_size: int = 8) -> dict[str, str]:
    """The range of each gate, by its name in `step`: "gate" (0 to 1), "signed" (-1 to 1) or "unbounded".

    Example:
        >>> import glassgate as gg
        >>> ranges(gg.cells.GRU())
        {'r': 'gate', 'z': 'gate', 'n': 'signed'}
    """
    input_size, hidden_size = example_sizes(cell, 1, hidden_size)
    random = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in cell.shapes(input_size, hidden_size).items():
        weights[name] = torch.randn(shape, generator=random)
    shape = 64, len(weights["weight_ih"])
    signs = torch.randint(2, shape, generator=random) * 2.0 - 1
    # A normalised vector has no negative number at the limits of its pre-activations, but some between them.
    ih = torch.cat([_EXTREME_PREACTIVATION * signs, torch.randn(shape, generator=random)])
    rows = len(ih)
    shapes = state_shapes(cell, input_size, hidden_size).values()
    states = tuple(torch.randn(rows, prod(shape), generator=random) for shape in shapes)
    x = torch.randn(rows, input_size, generator=random) if cell.inputs else None
    gates: dict[str, Tensor] = {}

    def take(name: str, value: object) -> None:
        if name in cell.gates and name not in cell.state and isinstance(value, Tensor):
            gates.setdefault(name, value)

    with torch.no_grad(), trace_locals(take):
        advance(without_noise(cell), weights, ih, states, x=x)
    return {name: _range(gates[name]) for name in cell.gates if name in gates}


def _range(values: Tensor) -> str:
    if not bool((values.abs() <= 1).all()):
        return "unbounded"
    return "gate" if bool((values >= 0).all()) else "signed"


def saturation_of(tape: Recorded, label: str, call: LayerCall) -> dict[str, Saturation]:
    """The saturation of each gate of a recorded direction, by its name in `step`. Unbounded values are omitted."""
    result, unpadded = {}, tape.unpadded(label)
    for name, kind in ranges(call.layer.cell).items():
        if kind != "unbounded" and f"{label}.{name}" in tape:
            values = tape[f"{label}.{name}"][unpadded].flatten(1)
            low = CLOSED if kind == "gate" else -OPEN
            result[name] = Saturation((values < low).double().mean(0), (values > OPEN).double().mean(0))
    return result


def half_life_of(retained: Tensor) -> Tensor:
    """The half-life of each unit. `retained` (S, H) is the fraction of the state that each of S steps keeps."""
    mean = retained.double().abs().log().mean(0)
    return torch.where(mean < 0, math.log(0.5) / mean, torch.inf)


def lags(longest: int) -> list[int]:
    """Lags from 0 to `longest`: first with a spacing of 1, then with a growing spacing.

    Example:
        >>> lags(30)[-3:]
        [25, 28, 30]
    """
    chosen, lag = [], 0.0
    while round(lag) < longest:
        chosen.append(round(lag))
        lag = max(lag + 1, lag * 1.12)
    return [*chosen, longest]


def memory_of(retained: Tensor, unpadded: Tensor, reverse: bool, longest: int) -> Memory:
    """The memory of a state. `retained` (L, N, H) is the fraction of the state that each step keeps."""
    rows = [retained[unpadded[:, n], n].double().abs() for n in range(unpadded.shape[1])]
    rows = [row.flip(0) if reverse else row for row in rows]
    longest = min(longest, max(len(row) for row in rows) - 1)
    steps = lags(max(longest, 1))
    sums = [torch.cat([row.new_zeros(1, row.shape[1]), row.clamp(min=1e-300).log().cumsum(0)]) for row in rows]
    levels = torch.tensor([0.5, 0.1, 0.9], dtype=torch.float64)
    quantiles = []
    for k in steps:
        logs = torch.cat([(s[k:] - s[: len(s) - k]).flatten() for s in sums if len(s) > k])
        logs = logs[:: 1 + len(logs) // _MAX_VALUES]
        quantiles.append(logs.exp().quantile(levels) if k else torch.ones(3, dtype=torch.float64))
    median, low, high = torch.stack(quantiles, 1)
    return Memory(torch.tensor(steps), median, low, high)
