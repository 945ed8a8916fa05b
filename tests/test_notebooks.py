"""The cells of the notebooks run in order. Those with exercises are the notebooks of solutions without the answers."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "docs/notebooks"
SOLUTIONS = sorted(FOLDER.glob("*_solutions*.ipynb"))
RUN = [path for path in [*SOLUTIONS, FOLDER / "dynamics.ipynb"] if ".zh-CN" not in path.name]
"""The notebooks that run. Chinese notebooks have the same code (tests/test_translations.py)."""


def load(path: Path) -> ModuleType:
    """A module outside of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


notebooks = load(FOLDER.parent / "write_notebooks.py")


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_cells_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOLDER)
    stored, names = notebooks.read(path), {"__name__": "__main__"}
    cells = notebooks.code_cells(stored)
    assert cells
    assert any(cell["outputs"] for cell in cells), "run: python docs/write_notebooks.py"
    for k, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {k}", "exec"), names)
    if path.stem == "gates_solutions":
        check_the_grades(load(FOLDER / "checks.py"), tmp_path)


def check_the_grades(checks: ModuleType, folder: Path) -> None:
    """The file that the notebook has handed in gets all points; answers of another name and wrong ones get none."""
    path = folder / "answers-your-name.json"
    assert checks.grade(path) == ("your name", list(range(1, 11)))
    content = json.loads(path.read_text("utf-8"))
    content["name"] = "another"
    content["answers"] |= {"8": 2.9, "9": "many"}
    path.write_text(json.dumps(content))
    assert checks.grade(path) == ("another", [4, 7])


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_exercises_are_the_solutions_without_answers(path: Path) -> None:
    solutions, exercises = notebooks.read(path), notebooks.read(notebooks.exercises_of(path))
    assert exercises == notebooks.exercises(solutions, ".zh-CN" in path.name), "run: python docs/write_notebooks.py"
    answers = [cell for cell in notebooks.code_cells(solutions) if notebooks.is_answer(cell)]
    checks = [cell for cell in notebooks.code_cells(solutions) if "".join(cell["source"]).startswith("check_")]
    assert len(answers) == len(checks) == (10 if path.name.startswith("gates") else 1)
    shown = "".join("".join(cell["source"]) for cell in exercises["cells"])
    assert not [cell for cell in answers if "".join(cell["source"]) in shown]


def test_a_missing_or_malformed_answer_gets_a_hint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checks = load(FOLDER / "checks.py")
    with pytest.raises(AssertionError, match="expected start"):
        checks.check_1(None)
    checks.start("x")
    checks.check_1(None)
    checks.check_4([8, 9, 10, 11])
    checks.start("x / y", language="zh")
    checks.check_1(None)
    checks.check_4([8, 9, 10, 11])
    checks.check_4(range(12, 16))
    checks.check_9(checks)
    assert capsys.readouterr().out.splitlines() == [
        "exercise 1: write your answer in the cell above",
        "exercise 4: not yet. Hint: the order of the gates is i, f, g, o, and each block has 4 rows",
        "练习 1：请在上面的单元格里写出答案",
        "练习 4：还不对。提示：门的顺序是 i、f、g、o，每块有 4 行",
        "练习 4：正确",
        "练习 9：还不对。提示：由 0.95 ** k = 0.5 解出 k",
    ]
    assert checks.grade(checks.hand_in(tmp_path)) == ("x / y", [4])
    assert checks.HINTS["en"].keys() == checks.HINTS["zh"].keys() == checks.TRUTHS.keys()
    checks.start("x")
    (tmp_path / "answers-empty.json").write_text("[]")
    checks.main([str(checks.hand_in(tmp_path)), str(tmp_path / "answers-empty.json")])
    printed = capsys.readouterr().out
    assert " 0 of 10  x  (missing or wrong: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)" in printed
    assert "answers-empty.json: expected a file that hand_in() has written" in printed


def test_the_script_grades_the_files_of_a_pattern(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Shells of Windows pass a pattern unchanged."""
    checks = load(FOLDER / "checks.py")
    checks.start("x")
    checks.check_4(range(12, 16))
    checks.hand_in(str(tmp_path))
    capsys.readouterr()
    checks.main([str(tmp_path / "answers-*.json")])
    assert capsys.readouterr().out == " 1 of 10  x  (missing or wrong: 1, 2, 3, 5, 6, 7, 8, 9, 10)\n"
