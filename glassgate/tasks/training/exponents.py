"""The largest Lyapunov exponent of each recurrent layer and direction of a network, over the course of its training."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg

_ROWS = 4  # sequences of the dev data
_WARM_UP = 0.2  # fraction of the steps that do not count, while states reach their attractor


class Exponents:
    """Measures exponents on the longest sequences that a network reads inside `inputs`.

    A stack has the exponents of its layers and directions together, because no layer acts on the one below it.

    Args:
        network: whose layers to measure
        steps: the maximum length of a sequence
    """

    def __init__(self, network: nn.Module, steps: int):
        self.layers = {
            name: each for name, each in network.named_modules() if isinstance(each, gg.Recurrent) and each.batch_first
        }
        self.steps = steps
        self._inputs: dict[str, Tensor] = {}

    @contextmanager
    def inputs(self) -> Iterator[None]:
        """Keep some of each layer's input inside the `with`."""
        hooks = [
            layer.register_forward_pre_hook(partial(self._keep, name), with_kwargs=True)
            for name, layer in self.layers.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def values(self) -> dict[str, float]:
        """The largest exponent of each layer and direction in nats per step, for the inputs that `inputs` has kept."""
        found = {}
        with gg.engine("reference"):
            for name, data in self._inputs.items():
                for label, layer, steps in _alone(self.layers[name], data):
                    measured = gg.dynamics.lyapunov(layer, steps, warm_up=int(_WARM_UP * len(steps)))
                    place = label if name == "encoder" else f"{name}.{label}"
                    found[f"lyapunov/{place}"] = float(measured.exponents[0])
        self._inputs.clear()
        return found

    def _keep(self, name: str, _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        data = given[0]
        if not (isinstance(data, Tensor) and data.dim() == 3):
            return
        lengths = named.get("lengths")
        lengths = torch.full((len(data),), data.shape[1]) if lengths is None else torch.as_tensor(lengths).cpu()
        steps = min(self.steps, int(lengths.max()))
        if name not in self._inputs or steps > len(self._inputs[name]):
            rows = (lengths >= steps).nonzero().squeeze(1)[:_ROWS]
            kept = data[rows.to(data.device), :steps].transpose(0, 1)
            self._inputs[name] = kept.detach().to("cpu", torch.float64, copy=True)


@torch.no_grad()
def _alone(layer: gg.Recurrent, data: Tensor) -> Iterator[tuple[str, gg.Recurrent, Tensor]]:
    """Each layer and direction as a separate layer, with its label and its input (L, N, H_in) in the order of steps."""
    stack = deepcopy(layer).to("cpu", torch.float64).eval()
    stack.batch_first = False
    *_, states = stack(data, return_states=True)
    below = [data] * stack.num_directions
    for place, (cell, weights) in enumerate(stack.weights()):
        depth, way = divmod(place, stack.num_directions)
        label, gates = f"layer{depth}.{('forward', 'reverse')[way]}", len(cell.gates)
        alone = gg.Recurrent(
            cell,
            below[way].shape[2],
            len(weights["weight_ih"]) // gates,
            bias=stack.bias,
            proj_size=stack.proj_size,
            dtype=torch.float64,
        )
        for name, weight in weights.items():
            getattr(alone, f"{name}_l0").copy_(weight)
        yield label, alone, below[way].flip(0) if way else below[way]
        if way == stack.num_directions - 1:
            labels = [f"layer{depth}.forward", f"layer{depth}.reverse"][: stack.num_directions]
            below = _merged(stack, [states[f"{each}.{cell.state[0]}"] for each in labels])


def _merged(layer: gg.Recurrent, outputs: list[Tensor]) -> list[Tensor]:
    """The input of each direction of the next layer."""
    if layer.merge == "none":
        return outputs
    if layer.merge == "concat":
        return [torch.cat(outputs, -1)] * len(outputs)
    total = torch.stack(outputs).sum(0)
    return [total if layer.merge == "sum" else total / len(outputs)] * len(outputs)
