"""Per-sample gradients of layers for Opacus, a library for training with differential privacy."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from glassgate.layers.base import BaseLayer


def register(layer_class: type) -> None:
    """Register `per_sample_gradients` for a class of layers, if Opacus has been imported."""
    module = sys.modules.get("opacus.grad_sample.grad_sample_module")
    if module is not None:
        for hooks in (module.GradSampleHooks, module.GradSampleModule):
            getattr(hooks, "GRAD_SAMPLERS", {}).setdefault(layer_class, per_sample_gradients)


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
        activations: the input of the layer, (N, L, H_in).
        backprops: the gradient of the output, (N, L, H). Opacus does not pass gradients of final states.

    Raises:
        RuntimeError: the layer draws random numbers in training. The second forward pass in this function would draw
            different ones.
    """
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
