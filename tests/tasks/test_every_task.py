"""Each task trains on its built-in data, and its options are the same on the command line, in files and in runs."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from glassgate.cli import main
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.forecasting.series.frequency import TIME, Frequency
from glassgate.tasks.options import Options
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Split
from tests.tasks.training.test_resume import CtrlC


@pytest.mark.parametrize(
    "name", [name for name in TASKS if name not in ("tagging", "regression")]
)  # the demo trains tagging, and regression has no built-in data
def test_learns_without_data_and_saves_its_options(name: str, tmp_path: Path) -> None:
    kind = task_class(name)
    options = kind.options_type.from_mapping(
        {"batch_size": 32, "learning_rate": 0.003} | kind.builtin_options | {"threads": 1, "save_every": 0.0}
    )
    with pytest.raises(Interrupted):
        kind(options).fit(run=tmp_path / "run", progress=CtrlC(2))
    assert kind.options_type.from_mapping(Run.open(tmp_path / "run").content["options"]) == options


SPLITS: dict[str, Split[Any]] = {
    "tagging": Split([Tagged(("play", "jazz"), ("O", "B-genre")), Tagged(("stop", "it", "now"), ("O", "O", "O"))] * 4),
    "classification": Split([Labelled(f"{word} day", word) for word in ("good", "bad") * 4]),
    "language-model": Split([Text("tick tock " * 9)]),
    "translation": Split([Pair("one two", "two one"), Pair("two three", "three two")] * 4),
    "fill-blanks": Split([Text("salt and pepper " * 9)]),
    "regression": Split([Labelled(f"{word} day", f"{len(word)} {-len(word)}.5") for word in ("good", "awful") * 4]),
    "forecasting": Split(
        [series_of(np.arange(130) % 7 * 3, "", np.datetime64("2024-01-01", "us"), Frequency(TIME, 10**6))]
    ),
}
# These options select how files are read or where to compute, or have their own tests.
REFUSED = ("16-mixed",)  # on a CPU
ELSEWHERE = {"bleu", "cell", "device", "format", "missing", "sequence", "source_tokens", "target_tokens", "tokens"}


def choices() -> Iterator[Any]:
    """Yield each task, each of its options with choices, and each value except the default and refused ones.

    `Options` defines some options for all tasks. Each value of these is tested with two tasks in the normal run, and
    has the mark `matrix` with the other tasks.
    """
    common = [each.name for each in dataclasses.fields(Options)]
    for position, task in enumerate(TASKS):
        for each in dataclasses.fields(task_class(task).options_type):
            values = (False, True) if isinstance(each.default, bool) else each.metadata["choices"] or ()
            if each.name not in ELSEWHERE and (task, each.name) != ("language-model", "bidirectional"):
                is_rare = each.name in common and (position - common.index(each.name)) % len(TASKS) > 1
                marks = pytest.mark.matrix if is_rare else ()
                for value in values:
                    if value not in (each.default, *REFUSED):
                        yield pytest.param(task, each.name, value, marks=marks)


@pytest.mark.parametrize(("name", "option", "value"), [*choices()])
def test_runs_of_every_option_load_with_equal_predictions(name: str, option: str, value: Any, tmp_path: Path) -> None:
    kind = task_class(name)
    small = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "threads": 1}
    task = kind(kind.options_type.from_mapping(small | {option: value}))
    task.fit(SPLITS[name], run=tmp_path / "run")
    task.save(tmp_path / "saved")
    examples = SPLITS[name].train
    for folder in ("run", "saved"):
        assert kind.load(tmp_path / folder).predict(examples) == task.predict(examples)


@pytest.mark.parametrize("name", TASKS)
def test_command_line_and_file_set_the_same_options(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line and a file give the same settings, with the expected values."""
    kind = task_class(name).options_type
    wanted = {}
    for each in dataclasses.fields(kind):
        choices = each.metadata["choices"]
        if choices:
            wanted[each.name] = choices[0]
        elif isinstance(each.default, int | float) and not isinstance(each.default, bool):
            wanted[each.name] = each.default if each.metadata["maximum"] is not None else each.default + 1
    words = [f"--{option.replace('_', '-')}={value}" for option, value in wanted.items()]
    assert main(["train", name, "--data=x", *words, "--print-config"]) == 0
    by_words = yaml.safe_load(capsys.readouterr().out)
    assert by_words | wanted == by_words
    (tmp_path / "file.json").write_text(json.dumps(wanted | {"data": "x"}))
    assert main(["train", name, f"--config={tmp_path}/file.json", "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == by_words
    assert by_words.keys() == {each.name for each in dataclasses.fields(kind)}
