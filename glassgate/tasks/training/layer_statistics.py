"""Statistics of each recurrent layer for the log: gradient, forget bias, saturation; see `Watch`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg

# So much of a batch is read again, outside the training step, to see how far gates are saturated.
_ROWS, _STEPS = 4, 16
_CLOSED, _OPEN = 0.1, 0.9


class Watch:
    """Looks at the recurrent layers of a network, in the steps whose row is logged alone.

    - gradient_norm: of the parameters of one direction of a layer, before it is clipped
    - forget_bias: mean over units of both biases of the gate that keeps the state, f or z
    - saturation: the fraction of that gate's values below 0.1 or above 0.9, in 16 steps of 4 sequences of the batch

    Args:
        network: whose layers to look at
    """

    def __init__(self, network: nn.Module):
        self.layers = {name: each for name, each in network.named_modules() if isinstance(each, gg.Recurrent)}
        self._inputs: dict[str, Tensor] = {}

    @contextmanager
    def inputs(self) -> Iterator[None]:
        """Keep a small part of each layer's input inside the `with`."""

        def keep(name: str, given: tuple[Any, ...]) -> None:
            if given and isinstance(given[0], Tensor) and given[0].dim() == 3:
                self._inputs[name] = given[0].detach()[:_ROWS, :_STEPS].clone()

        hooks = [
            layer.register_forward_pre_hook(lambda _, given, name=name: keep(name, given))
            for name, layer in self.layers.items()
            if layer.batch_first
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def gradients(self) -> dict[str, float]:
        """The norm of the gradient of each layer and direction."""
        found = {}
        for label, weights, _ in self._parts():
            grads = [weight.grad for weight in weights.values() if weight.grad is not None]
            if grads:
                squares = torch.stack([grad.detach().float().square().sum() for grad in grads])
                found[f"gradient_norm/{label}"] = float(squares.sum().sqrt())
        return found

    @torch.no_grad()
    def values(self) -> dict[str, float]:
        """Forget biases, and the saturation for the inputs that `inputs` has kept."""
        found = {}
        for label, weights, (cell, gate) in self._parts():
            if gate and "bias_ih" in weights:
                biases = [weights[name] for name in ("bias_ih", "bias_hh") if name in weights]
                rows = sum(biases, torch.zeros(())).chunk(len(cell.gates))[cell.gates.index(gate)]
                found[f"forget_bias/{label}"] = float(rows.mean())
        for name, given in self._inputs.items():
            layer = self.layers[name]
            training = layer.training
            with gg.engine("reference"), gg.record(layer.eval()) as tape:
                layer(given.to(layer.weight_ih_l0.dtype))
            layer.train(training)
            gate = _gate(layer.cell)
            for each, values in tape.items() if gate else ():
                if each.endswith(f".{gate}"):
                    stuck = ((values < _CLOSED) | (values > _OPEN)).float().mean()
                    found[f"saturation/{_label(name, each.rsplit('.', 1)[0])}"] = float(stuck)
        self._inputs.clear()
        return found

    def _parts(self) -> Iterator[tuple[str, dict[str, Tensor], tuple[gg.Cell, str]]]:
        """Each layer and direction: its label, its parameters by short name, its cell and the gate that keeps."""
        for name, layer in self.layers.items():
            for place, (cell, weights) in enumerate(layer.weights()):
                depth, way = divmod(place, layer.num_directions)
                label = _label(name, f"layer{depth}.{('forward', 'reverse')[way]}")
                yield label, weights, (cell, _gate(cell))


def _label(name: str, part: str) -> str:
    return part if name == "encoder" else f"{name}.{part}"


def _gate(cell: gg.Cell) -> str:
    return next((name for name in ("f", "z") if name in cell.gates), "")
