"""A training stores and prints the scores of baselines, and says if one is better. Its weights do not change."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from glassgate.cli import main
from tests.tasks.classification.test_classification import texts


def test_a_better_baseline_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{each.content},{each.label}\n" for each in texts(80))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    words = ["train", "classification", f"--data={tmp_path}/rows.csv", "--hidden-size=2", "--epochs=1", "--threads=1"]
    assert main([*words, f"--run={tmp_path}/run"]) == 0
    output = capsys.readouterr().out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    best = metrics["baselines"]["scores"]["logistic regression on tf-idf"]
    assert metrics["baselines"]["part"] == "test"
    assert best["macro_f1"] > metrics["test"]["macro_f1"]
    assert f"logistic regression on tf-idf  {best['macro_f1']:8.2%}  {best['accuracy']:8.2%}" in output
    (sentence,) = (each for each in metrics["warnings"] if "is better on the test data" in each)
    assert f"warning: {sentence}" in output
    assert "--epochs 2" in sentence or "--pooling max" in sentence

    assert main([*words, f"--run={tmp_path}/other", "--no-baselines"]) == 0
    assert "this network" not in capsys.readouterr().out
    assert "baselines" not in json.loads((tmp_path / "other" / "metrics.json").read_text())
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "other"))
    assert all(first[name].equal(second[name]) for name in first)
