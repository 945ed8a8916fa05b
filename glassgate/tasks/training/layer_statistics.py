"""Statistics of each recurrent layer for the log: norm of the gradient, forget bias, saturation of gates."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks.networks.inputs import direction_label, recurrent_layers, watch_inputs

# Saturation is measured on this many sequences of a batch, and on this many of their first steps.
_ROWS, _STEPS = 4, 16
_CLOSED, _OPEN = 0.1, 0.9  # a gate below or above these values is saturated


class LayerStatistics:
    """Measures the recurrent layers of a network. Training calls it only in the steps that are logged.

    - gradient_norm: the gradient norm of each direction of a layer, before clipping
    - forget_bias: the mean over units of the biases (`bias_ih + bias_hh`) of the gate that keeps the state (f or z)
    - saturation: the fraction of that gate's values below 0.1 or above 0.9, in the first 16 steps of 4 sequences

    Args:
        network: the network to measure
    """

    def __init__(self, network: nn.Module):
        self.layers = recurrent_layers(network)
        self._inputs: dict[str, Tensor] = {}

    def store_inputs(self) -> AbstractContextManager[None]:
        """Return a context in which a small part of each layer's input is stored."""
        return watch_inputs(self.layers, self._keep)

    def _keep(self, name: str, data: Tensor, _: Tensor) -> None:
        self._inputs[name] = data.detach()[:_ROWS, :_STEPS].clone()

    def gradient_norms(self) -> dict[str, float]:
        """The gradient norm of each layer and direction."""
        norms = {}
        for label, weights, *_ in self._directions():
            grads = [weight.grad for weight in weights.values() if weight.grad is not None]
            if grads:
                squares = torch.stack([grad.detach().float().square().sum() for grad in grads])
                norms[f"gradient_norm/{label}"] = float(squares.sum().sqrt())
        return norms

    @torch.no_grad()
    def values(self) -> dict[str, float]:
        """The forget biases, and the saturation for the inputs that `store_inputs` has stored."""
        statistics = {}
        for label, weights, cell, gate in self._directions():
            if gate and "bias_ih" in weights:
                biases = [weights[name] for name in ("bias_ih", "bias_hh") if name in weights]
                forget_bias = sum(biases, torch.zeros(())).chunk(len(cell.gates))[cell.gates.index(gate)]
                statistics[f"forget_bias/{label}"] = float(forget_bias.mean())
        for name, inputs in self._inputs.items():
            layer = self.layers[name]
            was_training = layer.training
            inputs = (inputs if layer.batch_first else inputs.transpose(0, 1)).to(layer.weight_ih_l0.dtype)
            with gg.engine("reference"), gg.record(layer.eval()) as tape:
                layer(inputs)
            layer.train(was_training)
            gate = _forget_gate(layer.cell)
            for path, values in tape.items() if gate else ():
                if path.endswith(f".{gate}"):
                    saturation = ((values < _CLOSED) | (values > _OPEN)).float().mean()
                    statistics[f"saturation/{direction_label(name, path.rsplit('.', 1)[0])}"] = float(saturation)
        self._inputs.clear()
        return statistics

    def _directions(self) -> Iterator[tuple[str, dict[str, Tensor], gg.Cell, str]]:
        """Yield the label, parameters by name (such as "bias_ih"), cell and forget gate of each layer and direction."""
        for name, layer in self.layers.items():
            for index, (cell, weights) in enumerate(layer.weights()):
                depth, direction = divmod(index, layer.num_directions)
                label = direction_label(name, f"layer{depth}.{('forward', 'reverse')[direction]}")
                yield label, weights, cell, _forget_gate(cell)


def _forget_gate(cell: gg.Cell) -> str:
    """The gate that keeps the state, f or z; empty if the cell has neither."""
    return next((name for name in ("f", "z") if name in cell.gates), "")
