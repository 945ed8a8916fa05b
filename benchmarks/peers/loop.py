"""The same cell as an eager torch loop over time: one layer in one direction."""

from typing import Any

from torch import Tensor, nn

from benchmarks.peers.layer import Layer
from benchmarks.peers.ours import layer_of
from benchmarks.work import Work
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Steps


class Loop(nn.Module):
    """A module with the loop, which torch.compile can compile."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        layer = layer_of(work)
        self.cell, self.names = layer.cell, list(next(layer.weights())[1])
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, x: Tensor, hx: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(L, N, H_in) and states (1, N, H) to output and states."""
        states = hx if isinstance(hx, tuple) else (hx,)
        weights = {name: getattr(self, f"{name}_l0") for name in self.names}
        direction = Direction(self.cell, weights, tuple(v[0] for v in states), False)
        (result,) = reference.run(Steps(x.flatten(0, 1), None, None), [direction])
        return result.states[0].view(*x.shape[:2], -1), tuple(v[None] for v in result.final)


def prepare(work: Work) -> Layer:
    """The eager subject."""
    loop = Loop(work)
    return Layer(work, loop, loop.cell.state, lambda x, hx, resets: loop(x, hx))
