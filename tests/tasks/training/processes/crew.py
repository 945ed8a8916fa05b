"""Starts several processes that train together, as torchrun does; defines the functions that they run in the tests."""

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

import glassgate as gg
from glassgate.tasks import task_class
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.task import Split, Task
from glassgate.tasks.training.processes import group
from tests.forked import forked
from tests.tasks.test_every_task import SPLITS

SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 2, "threads": 1, "batch_size": 3, "dropout": 0.0}
OWN: dict[str, dict[str, Any]] = {
    "tagging": {"character_size": 4},
    "forecasting": {"look_back": 8, "dev_steps": 30, "test_steps": 30},
    "language-model": {"chunk": 5},
    "fill-blanks": {"longest": 5},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "patience": ("tagging", {"patience": 1, "epochs": 20, "learning_rate": 0.1, "accumulate": 2}),
    "bf16": ("classification", {"precision": "bf16-mixed"}),
}
"""Further trainings by name: of which task, and its options."""


def crew(size: int, work: Callable[..., None], *arguments: Any, patience: float = 300) -> list[int]:
    """Run a function in several connected processes, and return their exit codes."""
    context = forked()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    places = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    processes = [context.Process(target=_member, args=(place, work, *arguments)) for place in places]
    for each in processes:
        each.start()
    for each in processes:
        each.join(patience)
        each.kill()
    return [each.exitcode for each in processes]


def _member(place: dict[str, Any], work: Callable[..., None], *arguments: Any) -> None:
    os.environ.update({name: str(value) for name, value in place.items()})
    work(*arguments)
    sys.stdout.flush()


@contextmanager
def double() -> Iterator[None]:
    """Compute in double precision inside the `with`, on the reference engine, which needs no kernels of this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with gg.engine("reference"):
            yield
    finally:
        torch.set_default_dtype(before)


def made(name: str, **options: Any) -> tuple[Task[Any, Any, Any], Split[Any]]:
    """Return a small task or variant and its data, whose last batch has a row for only one process."""
    name, options = VARIANTS.get(name, (name, options))
    kind = task_class(name)
    train = SPLITS[name].train
    split = Split(train if name == "forecasting" else [*train, *train][:7], train, train)
    return kind(kind.options_type.from_mapping(SMALL | OWN.get(name, {}) | options)), split


def result_of(task: Task[Any, Any, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return the results by which two trainings are compared."""
    curve = {f"{name}{row['epoch']}": value for row in result["history"] for name, value in row.items()}
    scores = {f"test_{name}": value for name, value in result["test"].items()}
    return {**curve, **scores, **{name: tensor.clone() for name, tensor in task.network.state_dict().items()}}


def fit(names: list[str], folder: Path) -> None:
    """Train the tasks and variants of these names, each in a run folder, and save the results of each process there."""
    torch.set_num_threads(1)
    for name in names:
        task, split = made(name)
        with double() if task.options.precision == "32-true" else nullcontext():
            result = task.fit(split, run=folder / name)
        torch.save(result_of(task, result), folder / f"{name}-{os.environ.get('RANK', 0)}")


def broken(name: str, run: Path, rank: int, number: int, again: bool = False) -> None:
    """Train until the process of this rank, or the only process, receives a signal in its third step."""
    torch.set_num_threads(1)
    task, split = made(name)
    if os.environ.get("RANK", str(rank)) == str(rank):
        task.begin_step = Third(number)  # type: ignore[method-assign]
    with double():
        try:
            task.fit(split, run=run)
        except Interrupted as error:
            sys.exit(100 + error.args[0])
        except UserError as error:
            (run.parent / "said").write_text(str(error))


class Third:
    """Sends this process a signal when it is called the third time."""

    def __init__(self, number: int):
        self.number, self.calls = number, 0

    def __call__(self, done: float) -> None:
        self.calls += 1
        if self.calls == 3:
            signal.raise_signal(self.number)


def resume(name: str, run: Path) -> None:
    """Resume a run."""
    torch.set_num_threads(1)
    _, split = made(name)
    with double():
        task, result = task_class(name).resume(run, split)
    torch.save(result_of(task, result), run.parent / f"resumed-{os.environ.get('RANK', 0)}")


def wait_in_vain() -> None:
    """Connect to another process that is never started. End with 0 if the error names the address."""
    group._TIMEOUT = timedelta(seconds=1)
    alone = group.Group(0, 2, 0, 2)
    try:
        alone._connect()
    except UserError as error:
        port = os.environ["MASTER_PORT"]
        said = re.match(f"the 2 processes did not connect at 127.0.0.1:{port} .* minutes; check that", str(error))
        sys.exit(0 if said else str(error))
    sys.exit(1)


def fail(rank: int) -> None:
    """Train with other data than process 0 has; then with data that one process cannot read."""
    task, split = made("tagging")
    try:
        task.fit(split if os.environ["RANK"] != str(rank) else Split(split.train[1:]))
    except UserError as error:
        if not str(error).endswith("the train data is not what process 0 has read; give all machines the same files"):
            sys.exit(2)
    if os.environ["RANK"] == str(rank):
        task.options = replace(task.options, data="/nowhere/train.conllu")
        split = None  # type: ignore[assignment]
    try:
        task.fit(split)
    except UserError as error:
        sys.exit(3 if re.match(f"(process {rank}: )?/nowhere/train.conllu: ", str(error)) else 1)
