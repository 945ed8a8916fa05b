"""A failing training prints a warning after the first epoch with the symptom, and again at the end."""

from dataclasses import replace
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.progress import Progress
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from glassgate.tasks.training.health import Health, Measurements, symptoms
from tests.tasks.corpus import sentences, write_conllu

OPTIONS = TaggingOptions(hidden_size=8, embedding_size=8, character_size=0, epochs=3, learning_rate=0.03, batch_size=4)
TRAIN, DEV = sentences(40), sentences(20, seed=1)
HEALTHY = Measurements(
    OPTIONS,
    epoch=3,
    steps=30,
    first=[1.2, 1.0],
    recent=[0.2],
    norms=[0.5] * 9,
    accuracy=0.9,
    baseline=0.4,
    labels=4,
)


WITHDRAWN = "withdrawn, as it is no longer true: "


class Notes(Progress):
    """Stores the warnings that are not withdrawn, each with the epoch that it follows."""

    def __init__(self) -> None:
        self.warnings: list[tuple[int, str]] = []
        self.done = 0

    def epoch(self, number: int, scores: object) -> None:
        self.done = number

    def note(self, text: str) -> None:
        if text.startswith("warning: "):
            self.warnings.append((self.done, text.removeprefix("warning: ")))
        if text.startswith(WITHDRAWN):
            self.warnings = [each for each in self.warnings if each[1] != text.removeprefix(WITHDRAWN)]


def warnings(options: TaggingOptions, train: list[Tagged] = TRAIN, dev: list[Tagged] = DEV) -> list[tuple[int, str]]:
    notes = Notes()
    result = Tagging(options).fit(Split(train, dev), progress=notes)
    assert result.get("warnings", []) == [sentence for _, sentence in notes.warnings]
    return notes.warnings


def test_a_healthy_training_is_silent() -> None:
    assert warnings(OPTIONS) == []


def test_a_much_too_high_learning_rate_is_reported_after_the_first_epoch() -> None:
    (epoch, sentence), *_ = warnings(replace(OPTIONS, learning_rate=30.0, warmup=0.0, clip=0.0))
    assert epoch == 1
    assert "the learning rate is too high; try --learning-rate 3" in sentence


def test_a_learning_rate_of_zero_is_reported() -> None:
    by_epoch = warnings(replace(OPTIONS, learning_rate=0.0))
    assert {epoch for epoch, _ in by_epoch} == {3}
    assert any("the loss does not fall" in sentence for _, sentence in by_epoch)


def test_labels_that_do_not_depend_on_tokens_are_reported() -> None:
    """The tokens are the indices of words, as if the wrong column had been read."""
    train, dev = (
        [replace(each, tokens=[str(n) for n in range(len(each.tokens))][:1] * len(each.tokens)) for each in part]
        for part in (TRAIN, DEV)
    )
    mixed = [replace(each, labels=["DET" if n % 3 else "NOUN" for n, _ in enumerate(each.tokens)]) for each in dev]
    flat = [replace(each, labels=["DET" if k % 5 else "NOUN"] * len(each.tokens)) for k, each in enumerate(train)]
    by_epoch = warnings(OPTIONS, flat, mixed)
    assert any("is no better than always giving the most common answer" in sentence for _, sentence in by_epoch)


def test_a_vocabulary_without_the_words_of_the_dev_data_is_reported() -> None:
    other = [replace(each, tokens=[f"{token}x" for token in each.tokens]) for each in DEV]
    by_epoch = warnings(OPTIONS, TRAIN, other)
    assert any(
        epoch == 1 and "100% of the tokens of the dev data are not in the vocabulary" in each
        for epoch, each in by_epoch
    )


def test_labels_without_examples_in_the_dev_data_are_reported() -> None:
    one = [Tagged(["the", "cat"], ["DET", "NOUN"]), Tagged(["the"], ["DET"])]
    more = [*TRAIN, Tagged(["why", "so", "oh"], ["ADV", "PART", "INTJ"])]
    by_epoch = warnings(OPTIONS, more, one)
    assert any(epoch == 1 and "has no example of" in each and "ADV" in each for epoch, each in by_epoch)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"recent": [1.5]}, "rate too high"),
        ({"recent": [1.09]}, "loss does not fall"),
        ({"accuracy": 0.4}, "no better than one answer"),
        ({"norms": [1e4] * 9}, "exploding gradients"),
        ({"norms": [float("inf")] * 9}, "exploding gradients"),
        ({"norms": [1e-9] * 9}, "vanishing gradients"),
        ({"unknown": 0.6}, "unknown tokens"),
        ({"missing": ["A", "B"]}, "labels without examples"),
        ({"accuracy": 0.4, "epoch": 1}, None),
        ({"recent": [1.09], "epoch": 1}, None),
        ({"recent": [1.09], "steps": 12}, None),
        ({"recent": [1.05]}, None),
        ({"recent": [1.2, 1.8], "epoch": 1}, None),
        ({"missing": ["A"]}, None),
        ({"norms": [0.5] * 5 + [1e4] * 4}, None),
    ],
)
def test_each_symptom_triggers_only_its_own_rule(changed: dict[str, object], name: str | None) -> None:
    shown = symptoms(replace(HEALTHY, **changed))  # type: ignore[arg-type]
    assert [*shown] == ([name] if name else [])
    assert all(len(message) > 60 for message in shown.values())


def test_each_symptom_is_reported_once_and_a_resumed_training_does_not_repeat_it() -> None:
    task = Tagging(replace(OPTIONS, epochs=9))
    health = Health(task, [])
    for epoch in (1, 2):
        for loss in (1.0, 1.0, 1.0, float("nan"), 9.0, 9.0):
            health.step(loss)
        said = health.check(epoch, {})
        assert len(said) == (1 if epoch == 1 else 0)
        again = Health(task, [])
        again.restore(health.state())
        health = again
    assert len(health.messages) == 1


def test_a_symptom_that_ends_is_withdrawn_and_can_return() -> None:
    """The loss does not fall in three epochs, falls in the fourth, and is high again in the fifth."""
    health = Health(Tagging(replace(OPTIONS, epochs=9)), [], ["the data is small"])
    notes = []
    for epoch, loss in enumerate((1.0, 1.0, 1.0, 0.3, 0.2, 1.0), start=1):
        for _ in range(9):
            health.step(loss)
        notes.append(health.check(epoch, {}))
        again = Health(health.task, [])
        again.restore(health.state())
        health = again
        assert health.messages == ["the data is small", *health.reported.values()]
    assert [len(each) for each in notes] == [0, 0, 1, 1, 0, 1]
    assert notes[2][0].startswith("warning: the loss does not fall: 1 in the first steps, 1 after 3 epochs")
    assert notes[3][0].startswith("withdrawn, as it is no longer true: the loss does not fall: 1 in the first steps")
    assert notes[5][0].startswith("warning: the loss does not fall")


@pytest.mark.parametrize(
    "losses", [(0.55, 0.81, 0.72, 0.6, 0.9, 0.66, 0.75, 0.58), (0.05, 0.9, 0.1, 1.9, 0.2, 0.3, 1.8)]
)
def test_a_short_training_whose_losses_vary_from_batch_to_batch_is_silent(losses: tuple[float, ...]) -> None:
    health = Health(Tagging(replace(OPTIONS, epochs=1)), [])
    for loss in losses:
        health.step(loss)
    assert health.check(1, {"accuracy": 0.0}) == []


def test_the_command_line_repeats_the_warnings_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_conllu(tmp_path / "a.conllu", sentences(30))
    words = ["train", "tagging", f"--data={data}", f"--dev={data}", f"--run={tmp_path}/run", "--epochs=3"]
    assert main([*words, "--hidden-size=4", "--embedding-size=4", "--learning-rate=0"]) == 0
    out, err = capsys.readouterr()
    assert "\nwarning: the loss does not fall" in out
    assert "tagging  warning: the loss does not fall" in err
