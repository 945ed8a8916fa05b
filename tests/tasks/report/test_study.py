"""The excerpt of a long example that a report shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.glass.page import page
from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import excerpts_of_run, excerpts_of_text, study


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tagger and a sequence of 960 words, of which each 240 words have fewer correct labels than the 240 before."""
    random = np.random.default_rng(0)
    sequences = []
    for _ in range(4):
        words = random.choice(["red", "blue"], 960)
        wrong = random.random(960) < np.repeat([0.0, 0.25, 0.5, 0.75], 240)
        labels = np.where((words == "red") ^ wrong, "A", "B")
        sequences.append("\n".join(f"{word}\t{label}" for word, label in zip(words, labels, strict=True)))
    data: Path = tmp_path_factory.mktemp("data") / "data.tsv"
    data.write_text("\n\n".join(sequences) + "\n", encoding="utf-8")
    kind = task_class("tagging")
    options = {"data": str(data), "hidden_size": 8, "embedding_size": 4, "threads": 1, "held_out": 0.0}
    task = kind(kind.options_type.from_mapping(options | {"epochs": 8, "learning_rate": 0.03}))
    task.fit()
    return task


@pytest.mark.parametrize("accuracy", [1.0, 0.75, 0.5])
def test_a_long_example_is_shown_where_it_is_as_accurate_as_on_average(tagger: Any, accuracy: float) -> None:
    (shown,) = excerpts_of_run(tagger, Progress(), {"test": {"accuracy": accuracy}})
    (predicted,) = tagger.predict([shown.example])
    excerpt = slice(shown.start, shown.stop)
    right = np.array(predicted[excerpt]) == np.array(shown.example.labels[excerpt])
    assert len(right) == 240
    assert right.mean() == pytest.approx(accuracy, abs=0.06)


def test_a_cell_with_axes_has_a_report_without_the_sections_that_need_one_number_per_unit(tmp_path: Path) -> None:
    data = tmp_path / "data.tsv"
    data.write_text("red\tA\nblue\tB\nred\tA\n\n" * 20, encoding="utf-8")
    kind = task_class("tagging")
    options = {"data": str(data), "cell": "GatedDeltaNet(heads=2, key_size=2)", "hidden_size": 8, "epochs": 1}
    task = kind(kind.options_type.from_mapping(options | {"embedding_size": 4, "threads": 1, "baselines": False}))
    task.fit()
    result = study(task, excerpts_of_text(task, "red blue blue"), "a memory")
    assert result.directions[0].values["S"].shape == (3, 2 * 2 * 4)
    assert {"layer0.forward.S", "layer0.forward.b", "layer0.forward"} <= {cause.name for cause in result.causes}
    (relevances,) = result.relevances
    assert np.abs(relevances.matrix).max() > 0
    assert "a memory" in page(result)
