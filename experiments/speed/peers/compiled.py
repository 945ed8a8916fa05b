"""The eager loop under torch.compile, which unrolls the loop. Nothing is cached from an earlier run."""

import torch
from torch._inductor import config

from experiments.speed.peers.layer import Layer
from experiments.speed.peers.loop import Loop
from experiments.speed.workload import Workload


def prepare(workload: Workload) -> Layer:
    """Return the compiled loop. Its first call compiles."""
    loop = Loop(workload)
    config.force_disable_caches = True
    compiled = torch.compile(loop, fullgraph=True)
    return Layer(workload, loop, loop.cell.state, lambda x, hx, resets: compiled(x, hx))
