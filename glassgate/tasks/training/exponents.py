"""The largest Lyapunov exponent of each recurrent layer and direction of a network, over the course of its training."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks.networks.inputs import direction_label, recurrent_layers, watch_inputs

_ROWS = 4  # the maximum number of sequences
_WARM_UP = 0.2  # fraction of the steps that are not counted, because states have not reached their attractor


class Exponents:
    """Measures exponents on the longest sequences that a network reads while the context `inputs` is open.

    Args:
        network: the network that contains the layers
        steps: the maximum number of steps of a sequence
    """

    def __init__(self, network: nn.Module, steps: int):
        self.layers = recurrent_layers(network)
        self.steps = steps
        self._inputs: dict[str, Tensor] = {}

    def inputs(self) -> AbstractContextManager[None]:
        """Return a context in which the longest inputs of each layer are kept."""
        return watch_inputs(self.layers, self._keep)

    def values(self) -> dict[str, float]:
        """The largest exponent of each layer and direction in nats per step, for the inputs that `inputs` has kept."""
        exponents = {}
        with gg.engine("reference"):
            for name, data in self._inputs.items():
                for label, layer, inputs in gg.dynamics.separate(self.layers[name], data):
                    measured = gg.dynamics.lyapunov(layer, inputs, warm_up=int(_WARM_UP * len(inputs)))
                    exponents[f"lyapunov/{direction_label(name, label)}"] = float(measured.exponents[0])
        self._inputs.clear()
        return exponents

    def _keep(self, name: str, data: Tensor, lengths: Tensor) -> None:
        steps = min(self.steps, max(lengths.tolist(), default=0))
        if steps > len(self._inputs.get(name, ())):
            rows = (lengths >= steps).nonzero().squeeze(1)[:_ROWS]
            kept = data[rows.to(data.device), :steps].transpose(0, 1)
            self._inputs[name] = kept.detach().to("cpu", torch.float64, copy=True)
