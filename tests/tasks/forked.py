"""Processes that start with the libraries loaded, because loading takes longer than training in tests."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext

_LOADED = [
    "glassgate.cli.train",
    "glassgate.tasks.forecasting.task",
    "glassgate.tasks.tagging.task",
    "torch._dynamo",  # loaded by each optimizer
    "torch.utils.tensorboard",
    "torchmetrics",
]


def forked() -> ForkServerContext:
    """Return the context whose processes are copies of a process that has loaded the libraries."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context
