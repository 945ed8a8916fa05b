"""The excerpt of a long example that a report shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import excerpts_of_run


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
