"""Calls of one or a few steps of few rows, where packing large weights for a kernel takes longer than the steps.

Reinforcement learning and decoders call a layer once a step. There torch's own operations read weights as they are
stored, and are faster where weights are large and rows few; `gg.explain` says so.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.cells import GRU, LSTM, RNN
from glassgate.engines import choose
from glassgate.engines.contract import is_plain

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent

REASON = "a call of so few rows is over on torch's kernels before weights of this size are packed for ours"

Run = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
"""Gives output and final states for an input, and for parameters and states in order."""


def answer(layer: "Recurrent", input: Any, hx: Any) -> tuple[Tensor, Any] | None:
    """Output and final states by torch, if the call is plain and that short; else None, for the usual way."""
    run = torchs(layer, input, hx)
    if run is None:
        return None
    states = resting(layer, input) if hx is None else hx if isinstance(hx, tuple) else (hx,)
    weights = [weight for weights in layer.checked_weights() for weight in weights.values()]
    output, *final = run(input, [*weights, *states])
    return output, tuple(final) if len(final) > 1 else final[0]


def torchs(layer: "Recurrent", input: Any, hx: Any) -> Run | None:
    """What has torch compute such calls, if they are plain and that short."""
    cell = layer._noisy_cell if layer.training else layer._calm_cell
    kind: type = type(cell)
    if kind not in _NAMES or type(input) is not Tensor or input.dim() != 3 or not is_plain(input):
        return None
    first, second, features = input.shape
    N, L = (first, second) if layer.batch_first else (second, first)
    H = layer._parts[0].hidden_size
    if not 0 < L * N <= rows(kind, H) or features != layer.input_size:
        return None
    if not _is_plain_layer(layer) or choose.wanted() != "auto" or torch.is_autocast_enabled("cpu"):
        return None
    if input.dtype is not torch.float32 or getattr(layer.weight_ih_l0, "dtype", None) is not torch.float32:
        return None
    D = layer.num_layers * layer.num_directions
    if hx is not None and not _fit((hx,) if kind is not LSTM else hx, (D, N, H), 2 if kind is LSTM else 1):
        return None
    function: Callable[..., Any] = getattr(torch._VF, _name(cell))
    rest = (layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, layer.batch_first)
    count = len(cell.state)

    def run(input: Tensor, given: Sequence[Tensor]) -> Sequence[Tensor]:
        states = given[-count:] if count > 1 else given[-1]
        found: Sequence[Tensor] = function(input, states, given[:-count], *rest)
        return found

    return run


def means(cell: Cell) -> Callable[[], bool]:
    """Whether the cell is still the one that torch has now."""
    name = _name(cell)
    return lambda: _name(cell) == name


def resting(layer: "Recurrent", input: Tensor) -> tuple[Tensor, ...]:
    """The states that sequences start from where none are given, as torch takes them."""
    D, N = layer.num_layers * layer.num_directions, input.shape[0 if layer.batch_first else 1]
    return (input.new_zeros(D, N, layer._parts[0].hidden_size),) * len(layer.cell.state)


def _is_plain_layer(layer: "Recurrent") -> bool:
    """Whether `torch.nn` has a layer of these options; they may have been changed since the layer was made."""
    return not (
        layer.is_observed
        or layer.proj_size
        or layer.residual
        or layer.recompute
        or layer.weight_dropout
        or layer.variational_dropout
        or layer.learn_initial_state
        or layer.merge != "concat"
        or not isinstance(layer.hidden_size, int)
    )


def _fit(states: Any, shape: tuple[int, ...], count: int) -> bool:
    """Whether hx is what torch takes as it is; what is wrong with it is said elsewhere."""
    return (
        isinstance(states, tuple)
        and len(states) == count
        and all([type(v) is Tensor and v.shape == shape and v.dtype is torch.float32 and is_plain(v) for v in states])
    )


_NAMES = {RNN: "rnn_{}", GRU: "gru", LSTM: "lstm"}


def _name(cell: Cell) -> str:
    return _NAMES[type(cell)].format(getattr(cell, "nonlinearity", ""))


_BYTES: dict[type, int] = {RNN: 260_000, GRU: 350_000}
"""Of weights, for each of which torch is ahead by one row of a step longer: as measured, see `benchmarks.short`.

An LSTM of torch packs its weights as ours does.
"""


def rows(kind: type, H: int) -> int:
    """Up to how many rows of all steps a call is torch's."""
    gates = len(kind.gates)  # type: ignore[attr-defined]
    return 8 * gates * H * H // _BYTES[kind] if kind in _BYTES else 0
