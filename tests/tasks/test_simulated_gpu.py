"""Trainings with `--device cuda` on a simulated GPU: no operation mixes devices, and no layer waits for the GPU."""

import pytest

import glassgate as gg
from glassgate.tasks import TASKS, task_class
from tests.simulated_gpu import simulated_gpu
from tests.tasks.test_every_task import SPLITS


@pytest.mark.parametrize("name", TASKS)
def test_training_runs_on_a_gpu(name, tmp_path, monkeypatch):
    kind = task_class(name)
    small = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "threads": 1, "device": "cuda"}
    task = kind(kind.options_type.from_mapping(small))
    with simulated_gpu(monkeypatch, may_wait=True) as gpu, gg.engine("reference"):
        task.fit(SPLITS[name], run=tmp_path / "run")
    assert not [line for line in gpu.waits if line.startswith(("layout", "layers", "engines"))]
