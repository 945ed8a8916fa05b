"""Interleaved training of both sides of a case: two processes, of which one trains an epoch while the other waits."""

import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from glassgate.tasks.progress import Interrupted
from results.cases import Case
from results.store import Store
from results.training import train


class Broken(Exception):
    """A training ended without a result."""


def run_interleaved(
    case: Case, seed: int, sides: Sequence[str], data: Path, runs: Path, store: Store, report: Callable[[str], None]
) -> None:
    """Train the sides and store their results.

    Args:
        sides: the missing ones
        data: the folder of data
        runs: the folder of the run folders; an interrupted run continues
        store: the destination of the results
        report: called with a line for each epoch

    Raises:
        Broken: a process ended early
    """
    context = multiprocessing.get_context("spawn")
    waiting: dict[str, Connection] = {}
    for side in sides:
        here, there = context.Pipe()
        context.Process(target=_train, args=(case, seed, side, data, runs, there), daemon=True).start()
        there.close()
        waiting[side] = here
    while waiting:
        for side, process in list(waiting.items()):
            try:
                process.send("continue")
                happened, what = process.recv()
            except (EOFError, BrokenPipeError):
                raise Broken(f"{case.name}, seed {seed}, {side}: the training ended without a result") from None
            if happened == "epoch":
                scores = "  ".join(f"{name} {value:.4g}" for name, value in what.items() if name != "epoch")
                report(f"{case.name:14} seed {seed}  {side:5}  epoch {what['epoch']:3}  {scores}")
            else:
                store.keep(case, seed, side, what)
                report(f"{case.name:14} seed {seed}  {side:5}  test {what['test']}")
                del waiting[side]


def _train(case: Case, seed: int, side: str, data: Path, runs: Path, parent: Connection) -> None:
    """Train in this process. Before each epoch, and at the end, wait for a message from the parent."""

    def report(epoch: Mapping[str, Any]) -> None:
        parent.send(("epoch", dict(epoch)))

    try:
        result = train(case, seed, side, data, runs, report, parent.recv)
        parent.send(("result", result))
        parent.recv()
    except (Interrupted, KeyboardInterrupt, EOFError, BrokenPipeError):
        sys.exit(1)
