"""The eager loop under torch.compile, which unrolls it, with nothing cached from an earlier run."""

import torch
from torch._inductor import config

from benchmarks.peers.layer import Layer
from benchmarks.peers.loop import Loop
from benchmarks.work import Work


def prepare(work: Work) -> Layer:
    """The compiled subject; its first call compiles."""
    loop = Loop(work)
    config.force_disable_caches = True
    compiled = torch.compile(loop, fullgraph=True)
    return Layer(work, loop, loop.cell.state, lambda x, hx, resets: compiled(x, hx))
