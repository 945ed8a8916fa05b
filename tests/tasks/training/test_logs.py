"""CSV and TensorBoard logs have the same rows, without repetitions after an interruption; the curves are drawn."""

import csv
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from glassgate.tasks.pictures.charts import curves_picture
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.training.logs import FILE, FOLDER, PICTURE
from tests.tasks.training.test_resume import EPOCHS, SIZES, SPLIT, STEPS, CtrlC

OPTIONS = TaggingOptions.from_mapping(SIZES | {"log_every": 3, "lyapunov": 6})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, pictures: None) -> Path:
    """A run without an interruption."""
    run = tmp_path_factory.mktemp("whole") / "run"
    Tagging(OPTIONS).fit(SPLIT, run=run)
    return run


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return each curve of TensorBoard as steps and values."""
    events = EventAccumulator(str(run / FOLDER))
    events.Reload()
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def rows(run: Path) -> list[dict[str, float]]:
    with (run / FOLDER / FILE).open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def test_the_csv_file_has_a_row_per_interval_and_epoch(whole: Path) -> None:
    steps = [row["step"] for row in rows(whole)]
    ends = [STEPS * epoch for epoch in range(1, EPOCHS + 1)]
    assert steps == sorted({*range(3, STEPS * EPOCHS, 3), *ends})
    assert all(row["train_loss"] > 0 and row["learning_rate"] > 0 for row in rows(whole))
    scored = [row for row in rows(whole) if "dev_accuracy" in row]
    assert [row["step"] for row in scored] == ends
    assert all(row.keys() >= {"dev_loss", "train_accuracy", "dev_macro_f1"} for row in scored)
    measured = [row for row in rows(whole) if {"lyapunov/layer0.forward", "lyapunov/layer0.reverse"} <= row.keys()]
    assert measured == scored
    assert all(-10 < row["lyapunov/layer0.forward"] < 1 for row in scored)


def test_tensorboard_has_the_same_values(whole: Path) -> None:
    curves = scalars(whole)
    for name in ("train_loss", "dev_accuracy", "learning_rate"):
        wanted = [(row["step"], row[name]) for row in rows(whole) if name in row]
        assert [step for step, _ in curves[name]] == [step for step, _ in wanted]
        assert [value for _, value in curves[name]] == pytest.approx([value for _, value in wanted])


@pytest.mark.parametrize("presses", [pytest.param([5], marks=pytest.mark.matrix), [STEPS], [STEPS + 1, 4]])
def test_a_resumed_run_continues_its_logs(tmp_path: Path, whole: Path, presses: list[int]) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        Tagging(OPTIONS).fit(SPLIT, run=run, progress=CtrlC(presses[0]))
    for again in presses[1:]:
        time.sleep(1)  # TensorBoard orders the files of a folder by the second of their creation
        with pytest.raises(Interrupted):
            Tagging.resume(run, SPLIT, progress=CtrlC(again))
    time.sleep(1)
    Tagging.resume(run, SPLIT)
    assert rows(run) == rows(whole)
    assert scalars(run) == scalars(whole)


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path, whole: Path) -> None:
    """A killed run may have written rows after its last checkpoint, the last one incompletely."""
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        Tagging(OPTIONS).fit(SPLIT, run=run, progress=CtrlC(7))
    names = (run / FOLDER / FILE).read_text("utf-8").splitlines()[0].split(",")
    with (run / FOLDER / FILE).open("a", encoding="utf-8") as file:
        file.write(",".join({"epoch": "1", "step": "9"}.get(name, "0.1") for name in names) + "\n1,0.1,3,5")
    Tagging.resume(run, SPLIT)
    assert rows(run) == rows(whole)


def test_statistics_of_each_layer_are_logged(whole: Path) -> None:
    """The last logged forget bias equals that of the final weights, except for the changes of later steps."""
    seen = [row for row in rows(whole) if "gradient_norm/layer0.forward" in row]
    assert seen
    for name in ("gradient_norm", "forget_bias", "saturation"):
        for way in ("forward", "reverse"):
            values = [row[f"{name}/layer0.{way}"] for row in seen]
            assert all(np.isfinite(values)), name
    assert all(0 <= row["saturation/layer0.forward"] <= 1 < 9 for row in seen)
    assert all(row["gradient_norm/layer0.forward"] > 0 for row in seen)
    network = Tagging.load(whole).network
    with torch.no_grad():
        biases = network.encoder.bias_ih_l0 + network.encoder.bias_hh_l0
    assert seen[-1]["forget_bias/layer0.forward"] == pytest.approx(float(biases.chunk(4)[1].mean()), abs=0.1)


def test_the_learning_curves_are_drawn(whole: Path, tmp_path: Path) -> None:
    content = (whole / PICTURE).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert not list(whole.glob(".glassgate-*"))
    drawn = rows(whole)
    with (tmp_path / "again.png").open("wb") as file:
        curves_picture(drawn, "accuracy", file)
    with (tmp_path / "without.png").open("wb") as file:
        curves_picture([{k: v for k, v in row.items() if not k.startswith("dev")} for row in drawn], "accuracy", file)
    assert (tmp_path / "again.png").read_bytes() == content != (tmp_path / "without.png").read_bytes()


def test_a_training_without_a_run_writes_no_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Tagging(OPTIONS).fit(SPLIT)
    assert not list(tmp_path.iterdir())
