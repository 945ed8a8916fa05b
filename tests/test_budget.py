"""The report of processor times names the largest folders, and those over their budget."""

import pytest

from tests import budget


def test_folders_are_compared_with_their_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BUDGET", {"tests/cli": 99, "tests/tasks/data": 100})
    seconds = {f"tests/{number}": 0.5 for number in range(20)} | {"tests/cli": 10.0, "tests/tasks/data": 10.0}
    first, *lines = budget.report_lines(seconds, 0.1)
    assert first == "processor time of the tests: 30 s, 300 units of 100 ms"
    assert lines[:2] == [
        "    10 s 33.3%     100 units  tests/cli, over its budget of 99",
        "    10 s 33.3%     100 units  tests/tasks/data",
    ]
    assert len(lines) == 10


@pytest.mark.parametrize(
    ("test", "folder"),
    [
        ("glassgate/cells/lstm.py::glassgate.cells.lstm", "glassgate"),
        ("tests/test_cell.py::test_a", "tests/test_cell.py"),
        ("tests/cli/test_look.py::test_a[x/y]", "tests/cli"),
        ("tests/tasks/training/processes/test_world.py::test_a", "tests/tasks/training"),
    ],
)
def test_folders_of_tests(test: str, folder: str) -> None:
    assert budget.folder_of(test) == folder
