"""A cell in an eager torch loop over time: one layer in one direction."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from experiments.speed.peers.layer import Layer, Stream
from experiments.speed.peers.ours import layer_of, shapes_of_states
from experiments.speed.workload import Workload
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Steps


class Loop(nn.Module):
    """The loop as a module, which torch.compile can compile."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        layer = layer_of(workload)
        self.shapes = shapes_of_states(layer)
        self.cell, self.names = layer.cell, list(next(layer.weights())[1])
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, x: Tensor, hx: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the input (L, N, H_in) and the states (1, N, H) to the output and the final states."""
        states = hx if isinstance(hx, tuple) else (hx,)
        weights = {name: getattr(self, f"{name}_l0") for name in self.names}
        direction = Direction(self.cell, weights, tuple(v[0].flatten(1) for v in states), False)
        (result,) = reference.run(Steps(x.flatten(0, 1), None, None), [direction])
        final = tuple(v.view_as(initial) for v, initial in zip(result.final, states, strict=True))
        return result.states[0].view(*x.shape[:2], -1), final


def _start(loop: Loop, N: int) -> Callable[[Tensor], Tensor]:
    """Return the function that computes the next step from zero states."""
    weights = {name: getattr(loop, f"{name}_l0") for name in loop.names}
    initial = tuple([next(loop.parameters()).new_zeros(N, prod(shape)) for shape in loop.shapes])
    step = reference.Stepper(Direction(loop.cell, weights, initial, False))
    return torch.no_grad()(step)


def prepare(workload: Workload) -> Layer | Stream:
    """Return the eager loop, or its steps one at a time."""
    loop = Loop(workload)
    layer = Layer(workload, loop, loop.cell.state, lambda x, hx, resets: loop(x, hx), loop.shapes)
    return Stream(workload, loop, lambda: _start(loop, workload.N)) if workload.do == "step" else layer
