"""A cell in an eager torch loop over time: one layer in one direction."""

from typing import Any

from torch import Tensor, nn

from benchmarks.peers.layer import Layer
from benchmarks.peers.ours import layer_of, shapes_of_states
from benchmarks.workload import Workload
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


def prepare(workload: Workload) -> Layer:
    """Return the eager loop."""
    loop = Loop(workload)
    return Layer(workload, loop, loop.cell.state, lambda x, hx, resets: loop(x, hx), loop.shapes)
