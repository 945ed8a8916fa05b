"""Runs training calls of an RNN on one step of one sequence with torch's own function.

Such a call has so few operations that torch's function is slightly faster than our prepared kernels.
`gg.explain` reports this as the reason for the choice.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.cells import RNN
from glassgate.engines import choose
from glassgate.engines.contract import is_plain
from glassgate.engines.memory import LOW_ADDRESS, in_memory
from glassgate.layers.arguments import checked_weights, current_cell
from glassgate.layers.base import BaseLayer

REASON = "torch runs this call: for one step of one sequence with gradients, its RNN is faster than the kernels"

TorchFunction = Callable[..., Sequence[Tensor]]
"""Takes the input, and a list of all parameters and the state. Returns the output and the final state."""


def run(layer: BaseLayer, input: Any, hx: Any) -> tuple[Tensor, Any] | None:
    """Run a call on torch. Return the output and the final state, or None if the call is not of this kind."""
    function = torch_function(layer, input, hx)
    if function is None:
        return None
    states = zero_states(layer, input) if hx is None else (hx,)
    weights = [weight for weights in checked_weights(layer) for weight in weights.values()]
    output, final = function(input, [*weights, *states])
    return output, final


def torch_function(layer: BaseLayer, input: Any, hx: Any) -> TorchFunction | None:
    """Return the function of torch for calls like this one, or None if the call is not of this kind."""
    cell = current_cell(layer)
    if type(cell) is not RNN or type(input) is not Tensor or not torch.is_grad_enabled() or not is_plain(input):
        return None
    if input.shape != (1, 1, layer.input_size):
        return None
    if not _is_plain_layer(layer) or choose.requested_engine() != "auto" or torch.is_autocast_enabled("cpu"):
        return None
    if input.dtype is not torch.float32 or getattr(layer.weight_ih_l0, "dtype", None) is not torch.float32:
        return None
    if hx is not None and not _is_plain_state(hx, _state_shape(layer)):
        return None
    function: Callable[..., Any] = getattr(torch._VF, _function_name(cell))
    options = (layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, layer.batch_first)

    def compute(input: Tensor, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        if input.data_ptr() < LOW_ADDRESS or min(map(Tensor.data_ptr, tensors)) < LOW_ADDRESS:
            in_memory((input, *tensors))
        results: Sequence[Tensor] = function(input, tensors[-1], tensors[:-1], *options)
        return results

    return compute


class TorchCall(NamedTuple):
    """Runs the calls of a layer that have one signature on torch, as `call.Call` runs them on kernels."""

    function: TorchFunction
    cell: Cell
    function_name: str
    """The name of torch's function, which the equations of the cell determine."""
    default_states: tuple[Tensor, ...]
    """The initial state of a call without `hx`; empty if the signature has `hx`."""

    def is_valid(self) -> bool:
        """Whether the cell still has the equations for which the call was prepared."""
        return _function_name(self.cell) == self.function_name

    def __call__(
        self, layer: BaseLayer, input: Tensor, weights: tuple[Tensor, ...], states: tuple[Tensor, ...], *_: object
    ) -> tuple[Tensor, Tensor]:
        """Run a call; see `Call`."""
        output, final = self.function(input, [*weights, *(states or self.default_states)])
        return output, final


def call(layer: BaseLayer, input: Any, hx: Any) -> TorchCall | None:
    """Prepare calls like this one. Return None if the call is not of this kind."""
    function, cell = torch_function(layer, input, hx), current_cell(layer)
    if function is None:
        return None
    return TorchCall(function, cell, _function_name(cell), zero_states(layer, input) if hx is None else ())


def zero_states(layer: BaseLayer, input: Tensor) -> tuple[Tensor]:
    """Return the initial state of a call without `hx`, in the shape that torch's functions expect."""
    return (input.new_zeros(_state_shape(layer)),)


def _state_shape(layer: BaseLayer) -> tuple[int, int, int]:
    return len(layer.glassgate.parts), 1, layer.glassgate.parts[0].hidden_size


def _is_plain_layer(layer: BaseLayer) -> bool:
    """Return whether `torch.nn` has a layer with these options. Users may change options after construction."""
    return not (
        layer.glassgate.is_observed
        or layer.proj_size
        or layer.residual
        or layer.recompute
        or layer.weight_dropout
        or layer.variational_dropout
        or layer.learn_initial_state
        or layer.merge != "concat"
        or not isinstance(layer.hidden_size, int)
    )


def _is_plain_state(hx: Any, shape: tuple[int, ...]) -> bool:
    """Return whether torch's function supports this state. Otherwise the usual path checks it and reports errors."""
    return type(hx) is Tensor and hx.shape == shape and hx.dtype is torch.float32 and is_plain(hx)


def _function_name(cell: Cell) -> str:
    """Return the name of torch's function."""
    return f"rnn_{getattr(cell, 'nonlinearity', '')}"
