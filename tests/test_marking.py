"""Tests that start processes or train networks get marks, without a line in the test."""

from glassgate.cli import main
from tests import forked
from tests.marking import marks_of


def test_marks_follow_calls_through_functions_modules_and_commands() -> None:
    assert marks_of(forked.run_python) == {"process"}
    assert marks_of(lambda: forked.run_python("-m", "this")) == {"process"}
    assert marks_of(lambda task, data: task.fit(data)) == {"training"}
    assert marks_of(lambda: [main([word, "tagging"]) for word in ("evaluate", "train")]) == {"training"}
    assert marks_of(lambda: main(["evaluate", "train.csv"])) == frozenset()
