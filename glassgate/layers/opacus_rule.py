"""Per-sample gradients of layers for Opacus, a library for training with differential privacy."""

import sys
from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from glassgate.layers.base import BaseLayer

_COUNTER = "_forward_counter"
"""The attribute of each trainable parameter of a model that Opacus wraps."""


def register(layer_class: type) -> None:
    """Register `per_sample_gradients` for a class of layers, if Opacus has been imported.

    Opacus keeps its rules in `GradSampleModule` up to version 1.5, and also in `GradSampleHooks` from 1.6 on. Versions
    without such a table are left alone.
    """
    module = sys.modules.get("opacus.grad_sample.grad_sample_module")
    for name in ("GradSampleModule", "GradSampleHooks"):
        rules = getattr(getattr(module, name, None), "GRAD_SAMPLERS", None)
        if isinstance(rules, MutableMapping):
            rules.setdefault(layer_class, per_sample_gradients)


def check_call(layer: BaseLayer, lengths: Any, resets: Any, restart: Any, return_states: bool) -> None:
    """Raise if Opacus computes per-sample gradients of a call with keyword arguments, which it does not pass on.

    Args:
        layer, lengths, resets, restart, return_states: the layer, and the arguments of its call.

    Raises:
        RuntimeError: the call has such an argument, and the layer is wrapped by Opacus.
    """
    if torch.compiler.is_compiling() or not (layer.training and torch.is_grad_enabled()) or "opacus" not in sys.modules:
        return
    if lengths is None and resets is None and restart is None and not return_states:
        return
    if any(hasattr(weight, _COUNTER) for weight in layer._parameters.values()):
        raise RuntimeError(
            f"{type(layer).__name__}: Opacus passes only the input to the rule for per-sample gradients, so a call "
            "must not have lengths, resets, restart or return_states; pass a padded batch, and mask the loss at padded "
            "steps"
        )


class _WithoutHooks(nn.Module):
    """Runs a layer without its hooks. With hooks, Opacus would count another call of the model."""

    def __init__(self, layer: BaseLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, input: Tensor) -> Tensor:
        """Return the output."""
        output: Tensor = self.layer.forward(input)[0]
        return output


def per_sample_gradients(layer: BaseLayer, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
    """Return the gradient of each parameter for each sequence, (N, *shape of the parameter).

    Args:
        layer: the layer.
        activations: the input of the layer, (N, L, H_in), as the only item.
        backprops: the gradient of the output, (N, L, H). Opacus does not pass gradients of final states.

    Raises:
        RuntimeError: the call had initial states, or the layer draws random numbers in training. The second forward
            pass in this function would draw different ones.
    """
    if len(activations) != 1:
        raise RuntimeError(
            f"{type(layer).__name__}: per-sample gradients need a call with the input alone, got "
            f"{len(activations)} tensors; omit hx"
        )
    draws_noise = (
        layer.glassgate.training_cell.noise or layer.weight_dropout or (layer.dropout and layer.num_layers > 1)
    )
    if layer.training and draws_noise:
        raise RuntimeError(
            f"{type(layer).__name__}: per-sample gradients need a layer without dropout, zoneout and noise, got "
            f"{layer!r}; apply dropout outside of the layer"
        )
    parameters = {name: weight.detach() for name, weight in layer.named_parameters()}
    batch_axis = 0 if layer.batch_first else 1

    def weighted_output(weights: dict[str, Tensor], sequence: Tensor, d_output: Tensor) -> Tensor:
        named: Any = {f"layer.{name}": weight for name, weight in weights.items()}
        return (
            functional_call(_WithoutHooks(layer), named, (sequence.unsqueeze(batch_axis),)).squeeze(batch_axis)
            * d_output
        ).sum()

    with torch.enable_grad():
        gradients = vmap(grad(weighted_output), (None, 0, 0))(parameters, activations[0], backprops)
    return {weight: gradients[name] for name, weight in layer.named_parameters()}
