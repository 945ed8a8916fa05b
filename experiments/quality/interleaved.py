"""Interleaved training of both sides of a case in two processes. One trains an epoch while the other waits."""

import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from experiments.quality.case import Case
from experiments.quality.store import Results
from experiments.quality.training import train
from glassgate.tasks.progress import Interrupted


class TrainingError(Exception):
    """A training ended without a result."""


def run_interleaved(
    case: Case, seed: int, sides: Sequence[str], data: Path, runs: Path, store: Results, report: Callable[[str], None]
) -> None:
    """Train the sides and store their results.

    Args:
        case, seed: the case and the seed
        sides: the sides without a result
        data: the folder of data
        runs: the folder of the run folders; an interrupted run continues
        store: the destination of the results
        report: called with a line for each epoch

    Raises:
        TrainingError: a process ended without a result
    """
    context = multiprocessing.get_context("spawn")
    connections: dict[str, Any] = {}  # the type differs between systems
    for side in sides:
        connection, remote_end = context.Pipe()
        context.Process(target=_train, args=(case, seed, side, data, runs, remote_end), daemon=True).start()
        remote_end.close()
        connections[side] = connection
    while connections:
        for side, connection in list(connections.items()):
            try:
                connection.send("continue")
                kind, content = connection.recv()
            except (EOFError, BrokenPipeError):
                raise TrainingError(f"{case.name}, seed {seed}, {side}: the training ended without a result") from None
            if kind == "epoch":
                scores = "  ".join(f"{name} {value:.4g}" for name, value in content.items() if name != "epoch")
                report(f"{case.name:14} seed {seed}  {side:5}  epoch {content['epoch']:3}  {scores}")
            else:
                store.add(case.name, case.key(seed, side), content)
                report(f"{case.name:14} seed {seed}  {side:5}  test {content['test']}")
                del connections[side]


def _train(case: Case, seed: int, side: str, data: Path, runs: Path, parent: Connection) -> None:
    """Train in this process. Wait for a message from the parent after the first step of each epoch and at the end."""

    def report(epoch: Mapping[str, Any]) -> None:
        parent.send(("epoch", dict(epoch)))

    try:
        result = train(case, seed, side, data, runs, report, parent.recv)
        parent.send(("result", result))
        parent.recv()
    except (Interrupted, KeyboardInterrupt, EOFError, BrokenPipeError):
        sys.exit(1)
