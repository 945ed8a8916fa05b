"""Scores and outputs of a task's network on encoded examples, in one process or in several."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from glassgate.tasks.data.batches import ALL_ROWS, Batch, Encoded, Loader, Shard, is_idle, lengths, to_device
from glassgate.tasks.data.batching import Batches, Piece
from glassgate.tasks.definition import Definition
from glassgate.tasks.training.processes.group import Group

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

AnyTask = Definition[Any, Any, Any]


def score(
    task: AnyTask, encoded: Sequence[Encoded], at_a_glance: bool = False, processes: Group | None = None
) -> dict[str, float]:
    """Return the scores on encoded examples.

    Args:
        task: the task with its network
        encoded: the examples
        at_a_glance: whether to use the cheaper `Definition.glance`; training does so between epochs
        processes: the processes that divide the examples; None for this process only
    """
    return scores_of(compute_metrics(task, encoded, at_a_glance, processes.shard if processes else ALL_ROWS), processes)


def compute_metrics(
    task: AnyTask, encoded: Sequence[Encoded], at_a_glance: bool = False, shard: Shard = ALL_ROWS
) -> "MetricCollection":
    """Return the task's metrics, updated with the rows of a shard of each batch of encoded examples; see `score`."""
    observe = task.glance if at_a_glance else task.observe
    metrics = task.metrics().to(_device(task))
    for output, batch, _ in outputs(task, encoded, shard=shard):
        metrics.update(**observe(output, batch))
    return metrics


@torch.inference_mode()
def outputs(
    task: AnyTask, encoded: Sequence[Encoded], batches: Batches | None = None, shard: Shard = ALL_ROWS
) -> Iterator[tuple[Any, Batch, list[Piece]]]:
    """Yield the network's output for each batch, the batch, and the pieces in its rows.

    Args:
        batches: the batches; None for the batches of `Batching.evaluation`
        shard: the rows of each batch to read
    """
    batches = task.batching().evaluation(lengths(encoded)) if batches is None else batches
    device = _device(task)
    task.network.eval()
    for pieces, batch in zip(batches, Loader(encoded, batches, task.padding, shard=shard), strict=True):
        if not is_idle(batch):
            batch = to_device(batch, device)
            yield task.network(batch), batch, shard.of(pieces)


def _device(task: AnyTask) -> torch.device:
    """The device of the network's parameters; the CPU if it has no parameters, only `FrozenLayer`s."""
    return next((each.device for each in task.network.parameters()), torch.device("cpu"))


def scores_of(metrics: "MetricCollection", processes: Group | None = None) -> dict[str, float]:
    """Return the scores, computed from the metrics of all processes; scores that are NaN are left out."""
    for each in metrics.values():
        each.distributed_available_fn = bool  # it returns False: torchmetrics does not communicate
    if processes and processes.size > 1:
        own_metrics = {name: copy.deepcopy(each).cpu() for name, each in metrics.items(keep_base=True)}
        for other_metrics in processes.gather(own_metrics)[1:]:
            for name, each in metrics.items(keep_base=True):
                each.merge_state(other_metrics[name].to(each.device))
        if not processes.is_main:
            return processes.broadcast({})
    scores = {name: float(value) for name, value in metrics.compute().items()}
    scores = {name: score for name, score in scores.items() if not math.isnan(score)}
    return processes.broadcast(scores) if processes else scores
