"""What a kernel is called with: one direction's inputs, the buffers of its passes, and which rows each step has."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.trace import Trace


class Inputs(NamedTuple):
    """One direction of a layer, all tensors contiguous and of one dtype. W is H, or P for a projected output."""

    cell: Cell
    trace: Trace
    hidden_size: int
    reverse: bool
    batch_sizes: Tensor | None
    """(L,) int64, or None where each step has all N rows."""
    resets: Tensor | None
    """(S,) bool."""
    data: Tensor
    """(rows, D): the input of every step."""
    weight_ih: Tensor
    weight_hh: Tensor | None
    weight_hr: Tensor | None
    bias_ih: Tensor | None
    """(n * H,) for the gates `trace.ih`, with what belongs to `bias_hh` where both halves are one; None if zero."""
    bias_hh: Tensor | None
    """(n * H,) for the products `trace.hh_only`."""
    parameters: Sequence[Tensor]
    """(H,) each, in the order of `trace.parameters`."""
    noise: dict[str, Tensor]
    """(S, W), or (N, W) for a factor that is one a sequence."""
    initial: Sequence[Tensor]
    """(N, W) a state."""
    restart: Sequence[Tensor] = ()
    """(N, W) a state: what resets fall back to, if not to `initial`."""


class Kept(NamedTuple):
    """The buffers of a forward pass."""

    ih: Tensor
    """(S, n * H): the input half of each gate; in training its shared columns become whole pre-activations."""
    states: Sequence[Tensor | None]
    """(S, W) a state, the output first; None for one that nobody asks for."""
    hh: Tensor | None
    """(S, n * H) products of `trace.hh_only`; None, as the following, in inference or where there are none."""
    row: Tensor | None
    hr: Tensor | None
    recorded: Mapping[str, Tensor] = {}
    """(S, H) for each output "gate_f" and the like of the trace."""


class Gradients(NamedTuple):
    """The buffers of a backward pass: what reaches the states, and what comes out."""

    d_states: Sequence[Tensor | None]
    """(S, W) a state; None for zero."""
    d_next: Sequence[Tensor]
    """(N, W) a state: comes in as the gradient of the final state, goes out as that of the first state."""
    d_initial: Sequence[Tensor]
    """(N, W) a state, zero at first: what resets hand to the initial state; without resets anything."""
    d_pre: Tensor
    d_parameter: Tensor | None
    """(N, n * H), zero at first."""
    left: Tensor | None
    raw: Tensor | None
    d_hr: Tensor | None
    recorded: Mapping[str, Tensor] = {}
    """(S, W) for each output "d_gate_f", "d_new_c" and the like of the trace."""


def tensors(
    inputs: Inputs, kept: Kept, gradients: Gradients | None, states: Sequence[Tensor], panels: Sequence[Tensor]
) -> list[Tensor | None]:
    """All that a kernel reads and writes, but for noise and what is recorded.

    Args:
        states: those of `kept`, or where two steps of one take turns.
        panels: the packed matrices.
    """
    start = (inputs.initial, inputs.restart or inputs.initial, inputs.parameters)
    found = [*panels, kept.ih, kept.hh, kept.row, kept.hr, inputs.resets, inputs.bias_ih, inputs.bias_hh, *states]
    found += [v for group in start for v in group]
    if gradients is not None:
        found += [gradients.d_pre, gradients.left, gradients.raw, gradients.d_hr, gradients.d_parameter]
        found += [*gradients.d_states, *gradients.d_next, *gradients.d_initial]
    return found


def tensor_words(cell: Cell, trace: Trace, products: int) -> list[str]:
    """The words for the addresses of `tensors`, in the same order."""
    words = [f"weights_{k}" for k in range(products)]
    words += ["ih_rows", "hh_rows", "row_rows", "hr_rows", "resets", "bias_ih", "bias_hh"]
    words += [f"{name}_{what}" for what in ("rows", "0", "restart") for name in cell.state]
    words += [f"{name}_{gate}_values" if gate else f"{name}_values" for name, gate in trace.parameters]
    words += ["d_pre_rows", "left_rows", "raw_rows", "d_hr_rows", "d_parameter_ranks"]
    return words + [f"d_{name}_{what}" for what in ("rows", "next_ranks", "0_ranks") for name in cell.state]


class Timetable(NamedTuple):
    """Which rows each step has."""

    sizes: Tensor
    """(L + 2,) int64: rows of each step, with a zero before and behind."""
    starts: Tensor
    """(L + 2,) int64: the first row of each step."""
    rows: int
    steps: int


@lru_cache(256)
def even_timetable(steps: int, N: int) -> Timetable:
    """Every step has all rows."""
    return timetable(torch.full((steps,), N))


def timetable(batch_sizes: Tensor) -> Timetable:
    """The rows of each step, (L,), as `Steps` has them."""
    zero = batch_sizes.new_zeros(1)
    sizes = torch.cat([zero, batch_sizes, zero])
    ends = sizes.cumsum(0)
    return Timetable(sizes, ends - sizes, int(ends[-1]), len(batch_sizes))


@lru_cache(256)
def two_turns(steps: int, N: int, reverse: bool) -> Tensor:
    """The first row of each step, (L + 2,), in a buffer of two steps that take turns; the last one taken lies first."""
    return (torch.arange(steps + 2) + (1 if reverse else steps)) % 2 * N
