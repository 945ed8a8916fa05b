"""A training ends as planned, later while the dev score improves, or earlier by patience; the rate follows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import CHECKPOINT, MODEL
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from glassgate.tasks.training.schedule import Schedule
from tests.tasks.corpus import sentences
from tests.tasks.training.test_loop import Notes
from tests.tasks.training.test_resume import CtrlC, same_files

pytestmark = pytest.mark.usefixtures("kept_checkpoints")


def trained(schedule: Schedule, score: float) -> list[float]:
    """Return the rates in the middle of all epochs, for a dev score that rises by `score` per epoch up to 10."""
    rates: list[float] = []
    scores: list[float] = []
    while len(scores) < schedule.total:
        rates.append(schedule.rate(len(scores) + 0.5))
        scores.append(min(10.0, len(scores) * score))
        schedule.update(scores)
    return rates


def test_without_a_maximum_of_epochs_the_rate_is_half_a_cosine() -> None:
    rates = trained(Schedule(8, 8, warmup=0.0), 1.0)
    assert rates == pytest.approx([0.99, 0.916, 0.778, 0.598, 0.402, 0.222, 0.084, 0.0096], abs=1e-3)


def test_the_rate_has_a_plateau_while_the_score_improves_and_decays_then() -> None:
    schedule = Schedule(8, 32, warmup=0.1)
    rates = trained(schedule, 1.0)  # improves until epoch 11; the second epoch without a gain over two epochs is 14
    assert (schedule.held, len(rates)) == (10, 18)
    plain = trained(Schedule(8, 8, warmup=0.1), 1.0)
    assert rates[:4] + rates[14:] == pytest.approx(plain)
    assert rates[4:14] == pytest.approx([schedule.rate(4)] * 10)


def held_after(scores: list[float]) -> int:
    """Return the number of epochs of the plateau after these scores, with 8 planned epochs."""
    schedule = Schedule(8, 32, warmup=0.1)
    for epoch in range(len(scores)):
        schedule.update(scores[: epoch + 1])
    return schedule.held


def test_one_noisy_score_does_not_end_the_plateau() -> None:
    rising = [0.0, 1.0, 2.0, 3.0, 3.5, 4.0]
    assert held_after([*rising, 1.0, 1.0]) == 5  # the gain over two epochs is missing at epoch 8
    assert held_after([*rising, 1.0, 1.0, 5.0]) == 6
    assert held_after([*rising, 1.0, 1.0, 1.0, 5.0]) == 5
    assert held_after([3.0, 3.0, 1.0, 1.0, 5.0]) == 0  # the pause does not begin without a gain


@pytest.mark.parametrize(("most", "score", "length"), [(11, 1.0, 11), (3, 1.0, 8), (32, 0.0, 8), (32, 10.0, 8)])
def test_the_plateau_ends_at_the_maximum_of_epochs_or_when_scores_stall(most: int, score: float, length: int) -> None:
    assert len(trained(Schedule(8, most, warmup=0.0), score)) == length


def test_the_rate_decays_as_soon_as_patience_runs_out() -> None:
    schedule = Schedule(60, 60, warmup=0.0, patience=3)
    rates = trained(schedule, 2.0)  # the best epoch is the sixth
    assert len(rates) == 9 + 3
    assert rates[9:] == pytest.approx([schedule.rate(9) * left for left in (5 / 6, 1 / 2, 1 / 6)])
    assert trained(Schedule(1, 1, warmup=0.5, patience=1), 0.0) == [1.0]


def test_an_extended_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    small = {"hidden_size": 4, "embedding_size": 4, "threads": 1, "save_every": 0.0, "batch_size": 4, "epochs": 4}
    options = TaggingOptions.from_mapping({**small, "max_epochs": 7})
    split, notes = Split(sentences(8), sentences(4, seed=1)), Notes()
    result = Tagging(options).fit(split, run=tmp_path / "whole", progress=notes)
    assert len(result["history"]) == 7
    assert any(re.search(r"score improves, up to 7 epochs \(\d+ s; --max-epochs\)", each) for each in notes.told)
    assert any("the last epoch was the best one" in each for each in notes.told) == (result["best_epoch"] == 7)
    with pytest.raises(Interrupted):
        Tagging(options).fit(split, run=tmp_path / "run", progress=CtrlC(2 * 3))
    Tagging.resume(tmp_path / "run", split)
    assert same_files(tmp_path / "whole", tmp_path / "run", MODEL)
    assert same_files(tmp_path / "whole", tmp_path / "run", CHECKPOINT)
    assert len(Tagging(replace(options, max_epochs=0)).fit(split)["history"]) == 4
