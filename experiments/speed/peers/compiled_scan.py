"""An LSTM by torch's `scan` under torch.compile. Nothing is cached from an earlier run."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan
from torch._inductor import config
from torch.nn.functional import linear

from experiments.speed.peers.layer import Layer
from experiments.speed.peers.limit import limited
from experiments.speed.workload import Workload


def lstm(x: Tensor, h_0: Tensor, c_0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Any:
    """Map the input (L, N, H_in) and the states (N, H) to the final states and the output (L, N, H)."""

    def step(state: tuple[Tensor, Tensor], ih: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        i, f, g, o = (ih + linear(state[0], w_hh)).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h.clone(), c.clone()), h.clone()  # without a clone, the gradient of tanh is wrong

    return scan(step, (h_0, c_0), linear(x, w_ih, b_ih + b_hh))


def prepare(workload: Workload) -> Layer:
    """Return the compiled scan. Its first call compiles."""
    config.force_disable_caches, config.compile_threads = True, 1
    layer = nn.LSTM(workload.inputs, workload.H)
    compiled = torch.compile(lstm, fullgraph=True)

    def call(x: Tensor, hx: tuple[Tensor, Tensor], resets: None) -> Any:
        # scan returns wrong gradients of captured parameters, and correct ones of other tensors.
        weights = [v.clone() for v in layer.parameters()]
        (h, c), output = compiled(x, hx[0][0], hx[1][0], *weights)
        return output, (h[None], c[None])

    return limited(Layer(workload, layer, ("h", "c"), call))
