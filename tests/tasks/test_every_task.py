"""What holds for each task: it learns without data of one's own, and its options are one language everywhere."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from glassgate.cli import main
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.runs import Run
from glassgate.tasks.training import Interrupted
from tests.tasks.test_resume import CtrlC


@pytest.mark.parametrize("name", [name for name in TASKS if name != "tagging"])  # the demo's test has that one
def test_learns_without_data_and_saves_its_options(name: str, tmp_path: Path) -> None:
    kind = task_class(name)
    options = kind.options_type.from_mapping(kind.own_options | {"threads": 1, "save_every": 0.0})
    with pytest.raises(Interrupted):
        kind(options).fit(run=tmp_path / "run", progress=CtrlC(2))
    assert kind.options_type.from_mapping(Run.open(tmp_path / "run").content["options"]) == options


@pytest.mark.parametrize("name", TASKS)
def test_command_line_and_file_say_the_same(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option once on the command line, once in a file; both give the same, and it is what was asked for."""
    kind = task_class(name).options_type
    wanted = {}
    for each in dataclasses.fields(kind):
        choices = each.metadata["choices"]
        if choices:
            wanted[each.name] = choices[0]
        elif isinstance(each.default, int | float) and not isinstance(each.default, bool):
            wanted[each.name] = each.default if each.metadata["most"] is not None else each.default + 1
    words = [f"--{option.replace('_', '-')}={value}" for option, value in wanted.items()]
    assert main(["train", name, "--data=x", *words, "--print-config"]) == 0
    by_words = yaml.safe_load(capsys.readouterr().out)
    assert by_words | wanted == by_words
    (tmp_path / "file.json").write_text(json.dumps(wanted | {"data": "x"}))
    assert main(["train", name, f"--config={tmp_path}/file.json", "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == by_words
    assert by_words.keys() == {each.name for each in dataclasses.fields(kind)}
