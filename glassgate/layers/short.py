"""Calls of a few steps, where packing weights for a kernel takes longer than the steps: they go straight to torch.

Reinforcement learning and decoders call a layer once a step. There torch's own operations, which read weights as they
are stored, are faster up to a number of steps that depends on the sizes; `gg.explain` says where.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassgate.cells import GRU, LSTM, RNN
from glassgate.engines import choose
from glassgate.engines.contract import is_plain

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent

REASON = "a call of so few steps is over on torch's kernels before weights are packed for ours"


def answer(layer: "Recurrent", input: Any, hx: Any) -> tuple[Tensor, Any] | None:
    """Output and final states by torch, if the call is plain and that short; else None, for the usual way."""
    cell = layer._noisy_cell if layer.training else layer._calm_cell
    kind: type = type(cell)
    if kind not in _STEPS or type(input) is not Tensor or input.dim() != 3 or not is_plain(input):
        return None
    first, second, features = input.shape
    N, L = (first, second) if layer.batch_first else (second, first)
    H = layer._parts[0].hidden_size
    if not 0 < L <= _STEPS[kind](N, H, False) or not N or features != layer.input_size:
        return None
    if not _is_plain_layer(layer) or choose.wanted() != "auto" or torch.is_autocast_enabled("cpu"):
        return None
    if input.dtype is not torch.float32 or not isinstance(layer.weight_ih_l0, Tensor):
        return None
    D = layer.num_layers * layer.num_directions
    states = (hx,) if kind is not LSTM else hx
    if hx is None:
        states = (input.new_zeros(D, N, H),) * (2 if kind is LSTM else 1)
    elif not _fit(states, (D, N, H), 2 if kind is LSTM else 1):
        return None
    every = [list(weights.values()) for weights in layer.checked_weights()]
    flat = [weight for weights in every for weight in weights]
    learns = torch.is_grad_enabled() and any([v.requires_grad for v in (input, *states, *flat)])
    if flat[0].dtype is not torch.float32 or _STEPS[kind](N, H, learns) < L:
        return None
    function: Callable[..., Any] = getattr(torch._VF, _NAMES[kind].format(getattr(cell, "nonlinearity", "")))
    given = states if kind is LSTM else states[0]
    rest = (layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, layer.batch_first)
    output, *final = function(input, given, flat, *rest)
    return output, tuple(final) if kind is LSTM else final[0]


def _is_plain_layer(layer: "Recurrent") -> bool:
    """Whether `torch.nn` has a layer of these options; they may have been changed since the layer was made."""
    return not (
        layer._watchers
        or layer._edits is not None
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

# Where both take as long, on one AVX-512 core; a call costs ours 60 to 80 microseconds and the packing of H x H
# matrices, torch the operations of each step, and the more multiplications a step has, the sooner ours are ahead.
# oneDNN's LSTM cannot be differentiated twice: training stays with ours.
_STEPS: dict[type, Callable[[int, int, bool], float]] = {
    RNN: lambda N, H, learns: 8 / (1 + _work(N, H) / 250_000) if learns else 12 / (1 + _work(N, H) / 130_000),
    GRU: lambda N, H, learns: (
        2.5 / (1 + _work(N, H) / 400_000) if learns else (5.5 + H * H / 30_000) / (1 + _work(N, H) / 100_000)
    ),
    LSTM: lambda N, H, learns: 0 if learns or H > 64 else 20,
}


def _work(N: int, H: int) -> int:
    """Multiplications of a gate and step beyond the first row's, which read every weight anyway."""
    return (N - 1) * H * H
