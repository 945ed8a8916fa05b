"""Tasks with `--device cuda` train on the kernels, on a simulated GPU."""

import pytest

import glassgate as gg
from glassgate.engines.triton_gpu.launch import Launch
from glassgate.tasks import task_class
from tests.simulated_gpu import simulated_gpu
from tests.tasks.test_every_task import SPLITS

SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "batch_size": 2, "threads": 1, "device": "cuda"}


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_a_task_trains_on_the_kernels(precision, tmp_path, monkeypatch):
    used, make_start = set(), Launch.make_start
    monkeypatch.setattr(
        Launch, "make_start", lambda self, *callers: used.add(self.kernels) or make_start(self, *callers)
    )
    kind = task_class("tagging")
    task = kind(kind.options_type.from_mapping(SMALL | {"precision": precision}))
    with simulated_gpu(monkeypatch, may_wait=True), gg.engine("auto"):
        task.fit(SPLITS["tagging"], run=tmp_path / "run")
    names = {kernel.name for kernels in used for kernel in kernels}
    assert {name.partition("_")[0] for name in names} == {"forward", "backward"}
