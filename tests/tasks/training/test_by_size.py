"""The data size determines the options that are not set, and a range test finds the learning rate."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glassgate.cli import main
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.errors import OptionError
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import Run
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from glassgate.tasks.training import rate_finder as rate
from glassgate.tasks.training.schedule import by_size
from glassgate.tasks.translation import Translation
from glassgate.tasks.translation.options import TranslationOptions
from tests.tasks.corpus import sentences
from tests.tasks.test_every_task import SPLITS
from tests.tasks.training.test_loop import Notes
from tests.tasks.training.test_resume import CtrlC, same_files

SMALL = {"hidden_size": 4, "embedding_size": 4, "character_size": 0, "threads": 1}


def test_little_data_makes_many_small_steps() -> None:
    sizes = [by_size(examples) for examples in (1, 10, 100, 1_000, 10_000, 100_000, 10**7)]
    assert [each.batch_size for each in sizes] == sorted(each.batch_size for each in sizes)
    assert [each.epochs for each in sizes] == sorted((each.epochs for each in sizes), reverse=True)
    assert by_size(1_000, batch_size=100).epochs > by_size(1_000).epochs
    assert by_size(100, epochs=3) == (by_size(100).batch_size, 3)


@pytest.mark.parametrize("name", TASKS)
def test_each_task_counts_the_elements_of_its_batches(name: str) -> None:
    """With one example per step there are as many steps as examples. The first chunk of a stream may be shorter."""
    kind = task_class(name)
    task = kind(
        kind.options_type.from_mapping(
            {"batch_size": 1, "epochs": 1, "longest": 4} if name == "fill-blanks" else {"batch_size": 1}
        )
    )
    lengths = [len(getattr(each, "tokens", getattr(each, "values", "1234"))) for each in SPLITS[name].train]
    batches = task.batching().training(lengths, 0)
    assert 0 <= len(batches) - task.batching().count_examples(lengths) <= 1


def test_a_run_stores_chosen_values_and_options_override_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassgate.tasks.training.schedule._MIN_STEPS", 36)
    options, notes = TaggingOptions.from_mapping(SMALL), Notes()
    split = Split(sentences(9))
    with pytest.raises(Interrupted):
        Tagging(options).fit(split, run=tmp_path / "run", progress=CtrlC(4))
    decided = by_size(9)
    kept = Run.open(tmp_path / "run").content["options"]
    assert (kept["batch_size"], kept["epochs"]) == decided
    Tagging.resume(tmp_path / "run", split)
    given = Tagging(replace(options, batch_size=decided.batch_size, epochs=decided.epochs))
    given.fit(split, run=tmp_path / "given", progress=notes)
    assert same_files(tmp_path / "run", tmp_path / "given", "model.safetensors")
    steps = decided.epochs * -(-9 // decided.batch_size)
    line = f"9 examples: batch size {decided.batch_size}, learning rate 0.008, {decided.epochs} epochs ({steps} steps)"
    assert line in notes.told
    task = Tagging(replace(options, epochs=1))
    task.fit(split, progress=notes)
    assert any(each.endswith("1 epoch (3 steps); chosen by data size: batch size") for each in notes.told)
    task.fit(Split(sentences(40)))  # the settings of other data are not kept
    assert task.options.batch_size == by_size(40).batch_size


@pytest.mark.usefixtures("pictures")
def test_the_learning_rate_is_found_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []
    draw = rate.range_test_picture
    monkeypatch.setattr(
        rate, "range_test_picture", lambda rates, losses, *more: drawn.extend(losses) or draw(rates, losses, *more)
    )
    options, notes = TaggingOptions.from_mapping({**SMALL, "lr_find": True, "epochs": 1}), Notes()
    Tagging(options).fit(Split(sentences(9)), run=tmp_path / "run", progress=notes)
    kept = json.loads((tmp_path / "run/run.json").read_text())["options"]
    assert not kept["lr_find"]
    assert 1e-5 < kept["learning_rate"] < 1
    assert (tmp_path / "run" / rate.PICTURE).read_text().startswith("<?xml")
    assert drawn[:5] == pytest.approx([drawn[0]] * 5, rel=0.3)  # at rates that are too small to change the loss
    assert any(f"the loss fell fastest at learning rate {kept['learning_rate']:g}; see " in each for each in notes.told)
    again = Tagging(options)
    again.fit(Split(sentences(9)))
    assert again.options.learning_rate == kept["learning_rate"]
    assert main(["train", "--resume", str(tmp_path / "run"), "--lr-find"]) == 2
    assert "--lr-find: a resumed run keeps its learning rate; omit the option" in capsys.readouterr().err


def test_a_training_that_diverges_at_every_learning_rate_gets_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Tagging(TaggingOptions.from_mapping({**SMALL, "lr_find": True, "epochs": 1}))
    several: Any = SimpleNamespace(size=2)
    with pytest.raises(OptionError, match="lr_find: expected one process, got 2; find the rate with one"):
        rate.find_rate(task, [], several)
    monkeypatch.setattr(rate, "_MIN_RATE", 1e30)
    monkeypatch.setattr(rate, "_MAX_RATE", 1e31)
    with pytest.raises(OptionError, match="lr_find: the loss diverged at the smallest rates; give a --l"):
        task.fit(Split(sentences(9)))


def test_the_learning_rate_of_translation_depends_on_the_batch_size() -> None:
    options = TranslationOptions()
    assert [options.rate_for(size) for size in (2, 4, 6, 8, 32)] == pytest.approx([2e-3, 2e-3, 3e-3, 4e-3, 4e-3])
    assert TranslationOptions(learning_rate=0.01).rate_for(4) == 0.01
    task, notes = Translation(replace(options, hidden_size=4, embedding_size=4, epochs=1)), Notes()
    task.fit(SPLITS["translation"], progress=notes)
    assert task.options.learning_rate == 2e-3
    assert any(each.endswith("chosen by data size: batch size, learning rate") for each in notes.told)
