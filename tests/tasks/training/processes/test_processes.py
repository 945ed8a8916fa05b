"""Several processes train like one, an interrupted one continues, and a lost one is reported."""

import re
import signal
from pathlib import Path

import pytest
import torch

from glassgate.tasks import TASKS
from glassgate.tasks.data.batches import Shard
from glassgate.tasks.data.batching import Batches, Chunks, Streams, evaluation_batches, training_batches
from glassgate.tasks.runs import CHECKPOINT, METRICS
from tests.tasks.training.processes import crew
from tests.tasks.training.processes.crew import VARIANTS, broken, fail, fit, resume


def equal(one: Path, other: Path, tolerance: float = 1e-9) -> None:
    """Check that two trainings have equal losses, scores and weights."""
    first, second = torch.load(one), torch.load(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(
    "batches",
    [
        training_batches([3, 5, 9, 1, 7], 3, 4, 1, 0),
        evaluation_batches([3, 5, 2, 2], 3),
        Streams([40, 7], 3, 5, 2),
        Chunks(training_batches([3, 5, 9, 1, 7], 3, 0, 1, 0), 4),
    ],
)
@pytest.mark.parametrize("size", [2, 3])
def test_each_row_belongs_to_one_process(batches: Batches, size: int) -> None:
    for pieces in batches:
        shares = [Shard(rank, size).of(pieces) for rank in range(size)]
        assert [shares[row % size][row // size] for row in range(len(pieces))] == list(pieces)
        assert sum(map(len, shares)) == len(pieces)


EACH_BATCHING = ["language-model", "forecasting"]
"""Tasks with batches of streams and of windows. The variants have batches of sequences."""


@pytest.mark.parametrize(
    "tasks",
    [
        [*EACH_BATCHING, *VARIANTS],
        pytest.param([task for task in TASKS if task not in EACH_BATCHING], marks=pytest.mark.matrix),
    ],
)
def test_two_processes_reach_the_results_of_one(tasks: list[str], tmp_path: Path) -> None:
    """Two processes with the batches of one reach its losses, scores and weights, in double precision.

    This includes steps of several batches, a training that ends early and, up to rounding, mixed precision.
    """
    for name, size in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        assert crew.crew(size, fit, tasks, tmp_path / name) == [0] * size
    assert "patience" not in tasks or "epoch20" not in torch.load(tmp_path / "one" / "patience-0")
    for task in tasks:
        equal(tmp_path / "one" / f"{task}-0", tmp_path / "two" / f"{task}-0", 1e-4 if task == "bf16" else 1e-9)
        equal(tmp_path / "two" / f"{task}-0", tmp_path / "two" / f"{task}-1", 0)
        files = [sorted(path.name for path in (tmp_path / run / task).rglob("*")) for run in ("one", "two")]
        assert [re.sub(r"tfevents.*", "", name) for name in files[0]] == [
            re.sub(r"tfevents.*", "", name) for name in files[1]
        ]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("tagging", 1, 2), pytest.param("language-model", 1, 2, marks=pytest.mark.matrix), ("language-model", 2, 1)],
)
def test_a_run_continues_with_another_number_of_processes(name: str, before: int, after: int, tmp_path: Path) -> None:
    """After Ctrl-C in one process, all stop after the same step, and streams continue from their states."""
    (tmp_path / "whole").mkdir()
    crew.crew(1, fit, [name], tmp_path / "whole")
    number = int(signal.SIGINT)
    assert crew.crew(before, broken, name, tmp_path / "run", before - 1, number) == [100 + number] * before
    assert not (tmp_path / "run" / METRICS).exists()
    assert crew.crew(after, resume, name, tmp_path / "run") == [0] * after
    equal(tmp_path / "whole" / f"{name}-0", tmp_path / "resumed-0")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_is_reported_and_its_run_can_continue(rank: int, tmp_path: Path) -> None:
    assert crew.crew(2, broken, "tagging", tmp_path / "run", rank, int(signal.SIGKILL), patience=120) == (
        [0, -signal.SIGKILL] if rank else [-signal.SIGKILL, 0]
    )
    said = (tmp_path / "said").read_text()
    assert re.fullmatch(r"another process is gone: it was killed, .*; resume with: .* --resume .*/run", said)
    assert not (tmp_path / "run" / CHECKPOINT).exists()
    resume("tagging", tmp_path / "run")
    (tmp_path / "whole").mkdir()
    fit(["tagging"], tmp_path / "whole")
    equal(tmp_path / "whole" / "tagging-0", tmp_path / "resumed-0")


def test_an_error_of_one_process_ends_all() -> None:
    assert crew.crew(2, fail, 1) == [3, 3]
