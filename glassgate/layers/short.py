"""Training steps of one row, on which torch's own operations spend less.

One step of one sequence is over before a pass back that is made for any number of them has begun: it packs the weights
once more, and sums gradients over rows of which there is one. `gg.explain` says so.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.cells import GRU, RNN
from glassgate.engines import choose
from glassgate.engines.contract import is_plain

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent

REASON = "torch is faster for one row with gradients: it does not pack the weights for the backward pass"

Run = Callable[..., Sequence[Tensor]]
"""Gives output and final states for an input, and for parameters and states in order."""


def answer(layer: "Recurrent", input: Any, hx: Any) -> tuple[Tensor, Any] | None:
    """Output and final states by torch, if the call is plain and for one row; else None, for the usual way."""
    run = torchs(layer, input, hx)
    if run is None:
        return None
    states = resting(layer, input) if hx is None else (hx,)
    weights = [weight for weights in layer.checked_weights() for weight in weights.values()]
    output, final = run(input, [*weights, *states])
    return output, final


def torchs(layer: "Recurrent", input: Any, hx: Any) -> Run | None:
    """What has torch compute such calls, if they are plain and for one row."""
    cell = layer._noisy_cell if layer.training else layer._calm_cell
    kind: type = type(cell)
    if kind not in _NAMES or type(input) is not Tensor or not torch.is_grad_enabled() or not is_plain(input):
        return None
    if input.shape != (1, 1, layer.input_size):
        return None
    if not _is_plain_layer(layer) or choose.wanted() != "auto" or torch.is_autocast_enabled("cpu"):
        return None
    if input.dtype is not torch.float32 or getattr(layer.weight_ih_l0, "dtype", None) is not torch.float32:
        return None
    D = layer.num_layers * layer.num_directions
    if hx is not None and not _fits(hx, (D, 1, layer._parts[0].hidden_size)):
        return None
    function: Callable[..., Any] = getattr(torch._VF, _name(cell))
    rest = (layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, layer.batch_first)

    def run(input: Tensor, given: Sequence[Tensor], resets: Any = None, lengths: Any = None) -> Sequence[Tensor]:
        found: Sequence[Tensor] = function(input, given[-1], given[:-1], *rest)
        return found

    return run


def means(cell: Cell) -> Callable[[], bool]:
    """Whether the cell is still the one that torch has now."""
    name = _name(cell)
    return lambda: _name(cell) == name


def resting(layer: "Recurrent", input: Tensor) -> tuple[Tensor]:
    """The state that a sequence starts from where none is given, as torch takes it."""
    D = layer.num_layers * layer.num_directions
    return (input.new_zeros(D, 1, layer._parts[0].hidden_size),)


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


def _fits(hx: Any, shape: tuple[int, ...]) -> bool:
    """Whether torch takes the states as they are. Other functions report faults."""
    return type(hx) is Tensor and hx.shape == shape and hx.dtype is torch.float32 and is_plain(hx)


_NAMES = {RNN: "rnn_{}", GRU: "gru"}
"""Of torch's functions. An LSTM of torch packs its weights as ours does."""


def _name(cell: Cell) -> str:
    return _NAMES[type(cell)].format(getattr(cell, "nonlinearity", ""))
