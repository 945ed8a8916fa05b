"""Trainings with `--device cuda` on a simulated GPU: no operation mixes devices, and no training step waits for it."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import glassgate as gg
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.task import Split
from glassgate.tasks.training.processes.group import Group
from glassgate.tasks.training.steps import Training
from tests.simulated_gpu import simulated_gpu
from tests.tasks.test_every_task import SPLITS

SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "batch_size": 2, "threads": 1, "device": "cuda"}
INTENTS = Split(
    [Tagged(("B", "x"), ("B-a", "I-a"), intent="go"), Tagged(("x", "y", "z"), ("O", "B-a", "O"), intent="stay")] * 4
)
SERIES = Split([Labelled(np.arange(6, dtype=np.float32).reshape(3, 2) * k, str(k)) for k in range(1, 9)])

# Splits and options whose losses or inputs differ from those of a task's defaults.
OTHERS: list[tuple[str, Split[Any], dict[str, Any]]] = [
    ("tagging", INTENTS, {"head": "crf", "character_size": 0}),
    ("classification", SERIES, {"pooling": "attention"}),
    ("regression", SERIES, {}),
    ("language-model", Split([Text("a b c\n")] * 8), {"sequence": "line", "tied": True}),
    ("translation", SPLITS["translation"], {"input_feeding": True, "teacher_forcing": 0.5, "attention": "additive"}),
    ("forecasting", SPLITS["forecasting"], {"horizon": 2, "head": "quantiles", "calendar": True}),
    ("forecasting", SPLITS["forecasting"], {"horizon": 2, "head": "student-t", "model": "segments", "segment": 2}),
    ("forecasting", SPLITS["forecasting"], {"horizon": 2, "head": "gaussian", "model": "recursive"}),
    ("forecasting", SPLITS["forecasting"], {"horizon": 2, "head": "negative-binomial"}),
]
SHORT = {"fill-blanks": {"longest": 8}, "language-model": {"chunk": 5}, "forecasting": {"horizon": 2}}
CASES = [(name, SPLITS[name], SHORT.get(name, {})) for name in TASKS] + OTHERS


IN_EVERY_RUN = {"language-model", "translation", "forecasting"}


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.matrix) for name in TASKS]
)
def test_training_runs_on_a_gpu(name, tmp_path, monkeypatch):
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(SMALL | SHORT.get(name, {})))
    with simulated_gpu(monkeypatch, may_wait=True) as gpu, gg.engine("reference"):
        task.fit(SPLITS[name], run=tmp_path / "run")
    assert not [line for line in gpu.waits if line.startswith(("layout", "layers", "engines"))]


def test_processes_exchange_tensors_on_the_cpu(tmp_path, monkeypatch):
    """Pickled tensors of a GPU would be unpickled on the GPU of process 0 in every process."""
    exchanged = []
    for name in ("broadcast", "gather"):
        exchange = getattr(Group, name)
        monkeypatch.setattr(
            Group, name, lambda own, value, exchange=exchange: exchanged.append(value) or exchange(own, value)
        )
    with simulated_gpu(monkeypatch, may_wait=True), gg.engine("reference"):
        task = task_class("language-model")(
            task_class("language-model").options_type.from_mapping(SMALL | {"chunk": 2})
        )
        task.fit(SPLITS["language-model"], run=tmp_path / "run")
    tensors = [v for v in tree_leaves(exchanged) if isinstance(v, Tensor)]
    assert tensors
    assert {v.device.type for v in tensors} == {"cpu"}


def training_of(name: str, split: Split[Any], options: dict[str, Any]) -> Training:
    """Return a training before its first step."""
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(SMALL | options))
    task.vocabularies = task.collect(split.train)
    encoded = task.encode_split(split)
    task.options = task.options_for([3] * len(split.train))
    task.network = task.build()
    return Training(task, encoded["train"], [], Group.from_environment())


def _precisions() -> Iterator[Any]:
    """Yield each case with one precision; the same case with the other precision has the mark `matrix`."""
    precisions = ("32-true", "bf16-mixed")
    for position, case in enumerate(CASES):
        for precision in precisions:
            is_first = precision == precisions[position % 2]
            yield pytest.param(*case, precision, marks=() if is_first else pytest.mark.matrix)


@pytest.mark.parametrize(("name", "split", "options", "precision"), [*_precisions()])
def test_a_training_step_does_not_wait(name, split, options, precision, monkeypatch):
    with simulated_gpu(monkeypatch, may_wait=True) as gpu, gg.engine("reference"):
        training = training_of(name, split, options | {"precision": precision})
        training.network.train()
        gpu.waits.clear()
        for batch in islice(training.batches_left(), 2):
            training.set_rate()
            assert training.backward(batch)
            training.update()
        assert gpu.waits == []
        losses = [step.loss for step in training.read()]
    assert len(losses) == training.steps > 0
    assert np.isfinite(losses).all()


# torch's random numbers of a GPU, which sample forecasts, cannot be simulated.
SCORED = [case for case in CASES if case[2].get("head") not in ("gaussian", "student-t", "negative-binomial")]


@pytest.mark.parametrize(("name", "split", "options"), SCORED)
def test_scores_of_a_batch_do_not_wait(name, split, options, monkeypatch):
    with simulated_gpu(monkeypatch, may_wait=True) as gpu, gg.engine("reference"), torch.inference_mode():
        training = training_of(name, split, options)
        batch = next(training.batches_left())
        output = training.network.eval()(batch)
        training.metrics.update(**training.task.glance(output, batch))  # torchmetrics compares states the first time
        gpu.waits.clear()
        training.metrics.update(**training.task.glance(output, batch))
    if name == "translation":  # each step of the search waits for its result
        gpu.waits = [line for line in gpu.waits if not line.endswith("a copy from the GPU to the CPU")]
    assert gpu.waits == []
