"""torch.nn.LSTM under torch.compile with `allow_rnn`. Nothing is cached from an earlier run."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import config

from experiments.speed.peers.layer import Layer
from experiments.speed.peers.limit import limited
from experiments.speed.workload import Workload


def prepare(workload: Workload) -> Layer:
    """Return the compiled layer. Its first call compiles."""
    torch._dynamo.config.allow_rnn = True
    config.force_disable_caches, config.compile_threads = True, 1
    layer = nn.LSTM(workload.inputs, workload.H)
    compiled = torch.compile(layer, fullgraph=True)

    def call(x: Tensor, hx: tuple[Tensor, Tensor], resets: None) -> Any:
        return compiled(x, hx)

    return limited(Layer(workload, layer, ("h", "c"), call))
