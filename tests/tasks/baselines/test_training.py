"""A training stores and prints the scores of baselines, and says if one is better. Its weights do not change."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from glassgate.cli import main
from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.training.baselines import advice
from tests.tasks.classification.test_classification import texts


def test_a_better_baseline_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{each.content},{each.label}\n" for each in texts(80))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    words = ["train", "classification", f"--data={tmp_path}/rows.csv", "--hidden-size=2", "--epochs=1", "--threads=1"]
    words += ["--pooling=attention"]  # without the correction of a ridge regression
    assert main([*words, f"--run={tmp_path}/run"]) == 0
    output = capsys.readouterr().out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    best = metrics["baselines"]["scores"]["logistic regression on tf-idf"]
    assert metrics["baselines"]["part"] == "test"
    assert best["macro_f1"] > metrics["test"]["macro_f1"]
    assert f"logistic regression on tf-idf  {best['macro_f1']:8.2%}  {best['accuracy']:8.2%}" in output
    (sentence,) = (each for each in metrics["warnings"] if "is better on the test data" in each)
    assert f"warning: {sentence}" in output
    assert "train longer" in sentence or "try more dropout" in sentence

    assert main([*words, f"--run={tmp_path}/other", "--no-baselines"]) == 0
    assert "this network" not in capsys.readouterr().out
    assert "baselines" not in json.loads((tmp_path / "other" / "metrics.json").read_text())
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "other"))
    assert all(first[name].equal(second[name]) for name in first)


@pytest.mark.parametrize(
    ("has_dev", "best_epoch", "losses", "options", "remedy"),
    [
        (True, 4, [2.0, 1.0, 0.9, 0.8], {}, "train longer, as the last epoch was the best one: --epochs 8"),
        (True, 2, [2.0, 1.0, 0.1, 0.0], {}, "the dev score fell after epoch 2 of 4; try more dropout: --dropout 0.5"),
        (True, 2, [2.0, 1.0, 0.1, 0.0], {"dropout": 0.5}, "give more data, or use that model"),
        (True, 3, [2.0, 1.0, 0.1, 0.0], {"pooling": "last"}, "try --pooling concat"),
        (False, 4, [2.0, 1.0, 0.9, 0.8], {}, "the loss is still 40% of that of the first epoch: --epochs 16"),
        (False, 4, [2.0, 1.0, 0.1, 0.0], {}, "give more data, or use that model"),
    ],
)
def test_the_remedy_follows_from_losses_and_scores(
    has_dev: bool, best_epoch: int, losses: list[float], options: dict[str, object], remedy: str
) -> None:
    result = {
        "dev": {"macro_f1": 0.5} if has_dev else {},
        "test": {"macro_f1": 0.5},
        "best_epoch": best_epoch,
        "history": [{"epoch": number, "loss": loss} for number, loss in enumerate(losses, 1)],
        "baselines": {"part": "test", "scores": {"other": {"macro_f1": 0.6}}},
    }
    task = Classification(ClassificationOptions.from_mapping(options))
    assert advice(task, result).endswith(remedy)
    result["baselines"] = {"part": "test", "scores": {"other": {"macro_f1": 0.50001}}}  # equal, but for rounding
    assert not advice(task, result)
