"""The end of a training, the epoch that it keeps, and its messages when it cannot continue."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.errors import OptionError, UserError
from glassgate.tasks.progress import Progress
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from tests.tasks.corpus import sentences

SMALL = {"hidden_size": 4, "embedding_size": 4, "threads": 1}


class Notes(Progress):
    """Stores all reports."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


@pytest.mark.parametrize(("right", "kept"), [(True, 1), (False, 5)])
def test_the_first_epoch_is_kept_if_scores_are_equal_and_the_last_if_all_are_zero(right: bool, kept: int) -> None:
    """The model has a learning rate of zero and predicts only one label correctly."""
    labels = ("good", "bad")
    train = [Labelled(label, label) for label in labels]
    options = ClassificationOptions.from_mapping({**SMALL, "least_count": 1, "learning_rate": 0.0, "epochs": 5})
    task = Classification(options)
    task.fit(Split(train))
    said = task.predict([Labelled("day")])[0].label
    dev = [Labelled("day", said if right else labels[said == labels[0]])]
    assert task.fit(Split(train, dev))["best_epoch"] == kept
    assert (
        len(Classification(replace(options, patience=2)).fit(Split(train, dev))["history"]) == 4
    )  # one epoch of decay


def test_patience_without_dev_data_gives_a_warning() -> None:
    notes = Notes()
    options = TaggingOptions.from_mapping({**SMALL, "epochs": 3, "patience": 1})
    assert len(Tagging(options).fit(Split(sentences(4)), progress=notes)["history"]) == 3
    assert any("patience: it needs dev data" in each for each in notes.told)


def test_a_diverging_training_ends_with_a_message(tmp_path: Path) -> None:
    options = TaggingOptions.from_mapping({**SMALL, "learning_rate": 1e30, "warmup": 0.0, "epochs": 9})
    with pytest.raises(
        UserError, match=r"diverged: the loss is nan in step \d+, epoch \d; .*rate below 1e\+30, or a smal"
    ):
        Tagging(options).fit(Split(sentences(40)), run=tmp_path / "run")


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_precision_that_the_processor_lacks_is_refused(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = TaggingOptions.from_mapping({**SMALL, "device": device, "precision": "16-mixed"})
    with pytest.raises(OptionError, match=r"precision: 16-mixed needs a GPU, .*; choose bf16-mixed or"):
        Tagging(options).fit(Split(sentences(4)), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
