"""The arguments and results of every engine. One call of an engine runs the one or two directions of one layer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from glassgate.cell import Cell, Weights
from glassgate.engines.torch_names import (
    dispatch_mode_count,
    float32_precision,
    forward_ad,
    is_legacy_batch,
    is_wrapped,
    saved_tensor_hooks,
    top_transform,
    tracing_state,
)


class Steps(NamedTuple):
    """A batch of N sequences as S rows, time-major: step t has the next `batch_sizes[t]` rows, longest sequence first.

    Row r of each step belongs to sequence r, as in torch's `PackedSequence`. The sum of `batch_sizes` may be less than
    S: the remaining rows are padding. They are not computed, and they are zero in every output.
    """

    data: Tensor
    """(S, H_in)"""
    batch_sizes: Tensor | None
    """(L,) int64 on the CPU, never increasing. It may end in zeros. If it is None, each of S / N steps has N rows."""
    resets: Tensor | None
    """(S,) bool: for each row, whether the states of its sequence are reset immediately before the step reads it.

    This holds for both directions. With a reset at step t, the reverse direction runs step t + 1, resets its states,
    and then runs step t.
    """


class Direction(NamedTuple):
    """One direction of a layer in a call: a cell with all of its arguments except the input."""

    cell: Cell
    weights: Weights
    """The parameters by name."""
    initial: tuple[Tensor, ...]
    """The initial states, one row per sequence of `Steps`: (N, H_out) for the output, (N, H_cell) for other states.
    States with several axes are flattened, in calls and results of engines."""
    reverse: bool
    """Whether time runs from the last step to the first."""
    noise: dict[str, Tensor] = {}
    """The cell's random numbers by name: (S, width) if drawn at each step, (N, width) if once per sequence."""
    restart: tuple[Tensor, ...] = ()
    """The states after a reset, in the shapes of `initial`. Empty if they equal `initial`."""


class Reason(NamedTuple):
    """Why an engine cannot run a call."""

    text: str
    is_general: bool = False
    """Whether the engine cannot run any call of this cell, or of any cell. Users are warned once."""

    def __str__(self) -> str:
        return self.text


class Recording:
    """The recorded gates of one direction in one call, and after `backward` the gradients of gates and new states.

    Attributes:
        values: (S, H) by gate. Values with several axes are flattened.
        shapes: the shape within a row, by name, of the values of a cell that declares axes.
        grad: (S, H_out or H_cell) by gate or state. It accumulates over backward passes, like a parameter's `grad`.
        skips_input: whether the backward pass omits the gradient of the input.
        on_gradients: a function that each backward pass calls with the gradients of the output, (S, H_out), and of the
            final states, (N, H_out or H_cell). The gradients may have additional axes. A pass may divide them among
            several calls. A gradient of None is zero, or is passed in another call.
    """

    skips_input = False
    on_gradients: Callable[[Sequence[Tensor | None]], None] | None = None
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    values: Mapping[str, Tensor] = MappingProxyType({})
    grad: Mapping[str, Tensor] = MappingProxyType({})

    def add(self, grad: Mapping[str, Tensor]) -> None:
        """Add the gradients of one backward pass."""
        self.grad = {name: d + self.grad[name] for name, d in grad.items()} if self.grad else grad


class Result(NamedTuple):
    """The results of one direction in a call."""

    states: tuple[Tensor, ...]
    """One tensor (S, H_out or H_cell) per state, output first. Other states may be absent if `all_states` is false."""
    final: tuple[Tensor, ...]
    """One tensor (N, H_out or H_cell) per state: the state after the last step, or the initial state without steps.

    The tensors share no memory with `states`, so users may write to them.
    """


def results_of(
    directions: Sequence[Direction], flat: Iterable[Tensor], has_all: bool, all_states: bool
) -> list[Result]:
    """Group the flat results of a call by direction.

    Args:
        directions: the directions of the call.
        flat: for each direction its states at every step, then its final states.
        has_all: whether `flat` contains every state at every step, or only the output.
        all_states: whether to return every state at every step, or only the output.
    """
    results, remaining = [], iter(flat)
    for direction in directions:
        count = len(direction.initial)
        states = tuple(islice(remaining, count if has_all else 1))
        results.append(Result(states if all_states else states[:1], tuple(islice(remaining, count))))
    return results


PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})
"""The tensor types that do not override operations."""


def is_plain(tensor: Tensor) -> bool:
    """Whether this is a dense `torch.Tensor` on the CPU, and its operations are neither traced nor transformed."""
    is_dense_on_cpu = type(tensor) is Tensor and tensor.is_cpu and tensor.layout is torch.strided
    return is_dense_on_cpu and not tensor.is_nested and not is_intercepted()


def is_batched(gradient: Tensor) -> bool:
    """Whether a gradient represents a batch of gradients."""
    return is_wrapped(gradient) or is_legacy_batch(gradient)


def is_intercepted() -> bool:
    """Whether tensor operations are traced or transformed, so that tensors may have no memory."""
    return is_compiling() or is_transformed() or dispatch_mode_count() > 0


def is_eager() -> bool:
    """Whether tensor operations run eagerly: no compilation, tracing, transform or dispatch mode is active.

    Hooks on tensors that are saved for the backward pass must be absent too. `torch.utils.checkpoint` sets such hooks.
    """
    return not (
        is_compiling()
        or forward_ad._current_level >= 0
        or top_transform()
        or dispatch_mode_count()
        or tracing_state()
        or saved_tensor_hooks(False)
    )


def result_type(dtype: torch.dtype, device: str = "cpu") -> torch.dtype:
    """The dtype of a layer's results: the autocast dtype if autocast is enabled, otherwise the input dtype.

    Args:
        dtype: the dtype of the input.
        device: the device type of the input.
    """
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return dtype


_TERMS = {"medium": 1, "bf16": 1, "high": 3, "tf32": 3}
"""The result of `allowed_bfloat16_terms` for torch's precision settings. For other settings it is 0."""


def allowed_bfloat16_terms() -> int:
    """The number of bfloat16 products that may replace one float32 product, according to torch's precision settings.

    - 0: float32 products are required.
    - 1: operands may be rounded to bfloat16.
    - 3: each operand may be split into a sum of two bfloat16 numbers.

    torch's setting for recurrent layers takes precedence over its setting for matrix products.
    """
    for_rnn = float32_precision("mkldnn", "rnn")
    return _TERMS.get(for_rnn if for_rnn != "none" else torch.get_float32_matmul_precision(), 0)


def is_transformed() -> bool:
    """Whether the caller runs inside a transform of torch.func or in forward-mode differentiation."""
    if is_compiling():
        return False
    return top_transform() is not None or forward_ad._current_level >= 0
