"""Regression predicts one or several numbers from texts and series. Scores have the units of the data."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glassgate.cli import main
from glassgate.tasks.data import store
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.number_labels import parse_numbers
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.regression import Regression, RegressionOptions
from glassgate.tasks.task import Split

SMALL = {"hidden_size": 8, "embedding_size": 8, "threads": 1, "least_count": 1}


def life(count: int, seed: int) -> list[Labelled]:
    """Return series that rise at different rates. Their numbers are the rate, and 100 minus the last value."""
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
    assert task.fitted["numbers"][0] == pytest.approx([np.mean(rows["label"])])
    pairs = pd.DataFrame({"text": rows["text"], "label": [[1.5, 2], [0, 1], [3, 2], [1, 1]]})
    task.fit({"train": pairs, "dev": pairs})
    assert len(task.fitted["numbers"][0]) == 2


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
    assert main(["predict", run, str(tmp_path / "new.csv"), "--json"]) == 0
    (name, number), *others = json.loads(capsys.readouterr().out)["prediction"].items()
    assert (name, f"{number:.6g}", others) == ("stars", *plain, [])


class Notes(Progress):
    """Stores the notes of a training."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_large_file_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpus examples train the same network as those in memory, and errors in numbers are raised before training."""
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "stars.csv"
    file.write_text("text,label\n" + "".join(f"{'good ' * (k % 5)}day,{k % 5}.5\n" for k in range(40)))
    predictions = []
    for size in (store.LARGE, 1):
        monkeypatch.setattr(store, "LARGE", size)
        task, progress = Regression(RegressionOptions.from_mapping({**SMALL, "epochs": 1, "data": str(file)})), Notes()
        task.fit(progress=progress)
        examples = task.read(file)
        assert isinstance(examples, Corpus)
        assert bool(examples.digest) == (size == 1)
        predictions.append(task.predict(examples))
        assert f"{file}: texts in column 'text', labels in 'label', separated by commas; 40 texts" in progress.notes
    assert predictions[0] == predictions[1]
    file.write_text(file.read_text() + "a day,many\n")
    with pytest.raises(DataError, match=r"stars\.csv:42: expected numbers as the label, got 'many'"):
        task.evaluate(task.read(file))


def test_labels_with_marks() -> None:
    numbers = [parse_numbers(Labelled("a", label)).tolist() for label in ("$1,200.50", "45%", "-12K", "3 4")]
    assert numbers == [[1200.5], [45.0], [-12_000.0], [3.0, 4.0]]
    for pair in (("$5", "\u20ac5"), ("45%", "0.5")):
        with pytest.raises(DataError, match=f"the label '{pair[1]}' is in another unit than the labels above"):
            Regression(RegressionOptions()).fit(Split([Labelled("good", label) for label in pair]))
    with pytest.raises(DataError, match="expected numbers as the label, got '1e39'"):
        parse_numbers(Labelled("good", "1e39"))


@pytest.mark.parametrize(
    ("labels", "expected"), [(("12,5", "3"), ("12.5", "3")), (("1,5 2,5", "3 -0,5"), ("1.5 2.5", "3 -0.5"))]
)
def test_a_table_with_semicolons_has_decimal_commas(
    labels: tuple[str, str], expected: tuple[str, str], tmp_path: Path
) -> None:
    table = tmp_path / "prices.csv"
    table.write_text("text;label\n" + "".join(f"good;{label}\n" for label in labels))
    assert tuple(each.label for each in Regression(RegressionOptions()).read(table)) == expected


def test_a_comma_that_is_a_separator_or_a_decimal_sign() -> None:
    with pytest.raises(DataError, match=r"the label '12,5' can be one number or two; write '12\.5' for one"):
        Regression(RegressionOptions()).fit(Split([Labelled("good", "12,5"), Labelled("bad", "1,5")]))


@pytest.mark.parametrize(
    ("label", "message"),
    [("five", "expected numbers as the label, got 'five'"), ("1 2", "expected 1 numbers, as in training, got 2")],
)
def test_invalid_labels(label: str, message: str) -> None:
    task = Regression(RegressionOptions.from_mapping({**SMALL, "epochs": 1}))
    task.fit(Split([Labelled("good day", "5"), Labelled("bad day", "1")]))
    with pytest.raises(DataError, match=message):
        task.evaluate([Labelled("good day", label)])
    with pytest.raises(DataError, match="expected a text, as in training, got a series; give a file of texts"):
        task.predict([Labelled(np.ones((3, 1), np.float32))])


def test_without_data_it_names_the_option() -> None:
    with pytest.raises(OptionError, match="regression: expected data to train on, got none; give a file with --data"):
        Regression(RegressionOptions()).fit()
