"""Regression: one and several numbers, from texts and series, scored in their own units; wrong data is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glassgate.cli import main
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.regression.options import RegressionOptions
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.task import Split

SMALL = {"hidden_size": 8, "embedding_size": 8, "threads": 1, "least_count": 1}


def life(count: int, seed: int) -> list[Labelled]:
    """Series that rise at different rates; the numbers are the rate and 100 minus the last value."""
    random, examples = np.random.default_rng(seed), []
    for _ in range(count):
        rate, length = random.uniform(1, 5), int(random.integers(5, 15))
        series = rate * np.arange(length, dtype=np.float32)[:, None]
        examples.append(Labelled(series, f"{rate}; {100 - series[-1, 0]}"))
    return examples


def test_it_learns_several_numbers_and_scores_in_their_units() -> None:
    task = Regression(RegressionOptions.from_mapping({**SMALL, "epochs": 30, "learning_rate": 0.02}))
    test = life(20, 2)
    result = task.fit(Split(life(60, 0), life(20, 1), test))
    numbers = np.array([[float(word) for word in each.label.split(";")] for each in test])  # type: ignore[union-attr]
    predicted = np.array(task.predict(test))
    record = task.record(test[0], task.predict(test[:1])[0])
    assert [*record["prediction"]] == ["label_1", "label_2"]
    assert np.abs(predicted - numbers).mean() == pytest.approx(result["test"]["mae"], rel=1e-4)
    assert np.square(predicted - numbers).mean() == pytest.approx(result["test"]["mse"], rel=1e-4)
    assert (np.abs(predicted - numbers).mean(0) < 0.3 * numbers.std(0)).all()


def test_a_frame_of_texts_and_numbers_is_read() -> None:
    rows = {"text": ["good day", "bad day", "good good day", "a day"], "label": [1.5, -1.0, 3.0, 0.25]}
    task = Regression(RegressionOptions.from_mapping({**SMALL, "epochs": 1}))
    task.fit({"train": pd.DataFrame(rows), "dev": pd.DataFrame(rows)})
    assert task.facts["numbers"][0] == pytest.approx([np.mean(rows["label"])])
    pairs = pd.DataFrame({"text": rows["text"], "label": [[1.5, 2], [0, 1], [3, 2], [1, 1]]})
    task.fit({"train": pairs, "dev": pairs})
    assert len(task.facts["numbers"][0]) == 2


def test_command_line_holds_out_and_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{'good ' * (k % 5)}day {k},{k % 5}" for k in range(40)]
    (tmp_path / "stars.csv").write_text("\n".join(["review,stars", *rows]) + "\n")
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    columns = ["--text-column=review", "--label-column=stars"]
    run, data = str(tmp_path / "run"), str(tmp_path / "stars.csv")
    assert main(["train", "regression", "--data", data, "--run", run, "--epochs=2", *columns, *words]) == 0
    out = capsys.readouterr().out
    assert "dev   mae" in out
    assert "test  mae" in out
    assert main(["evaluate", run, data]) == 0
    assert capsys.readouterr().out.startswith("mae ")
    (tmp_path / "new.csv").write_text("review\ngood good day\n")
    assert main(["predict", run, str(tmp_path / "new.csv")]) == 0
    plain = capsys.readouterr().out.split()
    assert main(["predict", run, str(tmp_path / "new.csv"), "--format", "json"]) == 0
    (name, number), *others = json.loads(capsys.readouterr().out)["prediction"].items()
    assert (name, f"{number:.6g}", others) == ("stars", *plain, [])


@pytest.mark.parametrize(
    ("label", "message"),
    [("five", "expected numbers as the label, got 'five'"), ("1 2", "expected 1 numbers as in training, got 2")],
)
def test_labels_that_do_not_fit(label: str, message: str) -> None:
    task = Regression(RegressionOptions.from_mapping({**SMALL, "epochs": 1}))
    task.fit(Split([Labelled("good day", "5"), Labelled("bad day", "1")]))
    with pytest.raises(DataError, match=message):
        task.evaluate([Labelled("good day", label)])
    with pytest.raises(DataError, match="expected texts or series, as in training, got the other one"):
        task.predict([Labelled(np.ones((3, 1), np.float32))])


def test_without_data_it_names_the_option() -> None:
    with pytest.raises(OptionError, match="regression: expected data to train on, got none; give a file with --data"):
        Regression(RegressionOptions()).fit()
