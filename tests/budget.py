"""The processor time of the tests of each folder, which the last lines of a run compare with a budget.

Times are divided by that of a fixed computation on the same machine, so that a slow machine has the same figures as a
fast one. They are reported and never fail a run: a busy machine takes longer for the same work.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import pytest

BUDGET = {
    "tests/sessions": 950,
    "tests/test_benchmarks.py": 800,
    "tests/test_checking.py": 240,
    "tests/test_house.py": 1_500,
    "tests/test_record.py": 240,
}
"""The units that tests may take, by folder. Others have no budget yet. Make tests cheaper before you raise a number."""
SHOWN = 10
_STARTED = pytest.StashKey[float]()


def processor_time() -> float:
    """The seconds of this process and of the programs that it started and that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def unit() -> float:
    """The seconds of the fixed computation, a twentieth of a second on a processor of 2023."""

    def seconds() -> float:
        start = time.process_time()
        sum(number * number for number in range(1_000_000))
        return time.process_time() - start

    return min(seconds() for _ in range(5))


def folder_of(test: str) -> str:
    """The folder of a test, at most three levels deep; a file directly in `tests` counts as a folder."""
    path = PurePosixPath(test.partition("::")[0])
    inside = path.parts[:1] if path.parts[0] != "tests" else path.parts[:3] if len(path.parts) > 3 else path.parts[:2]
    return "/".join(inside)


def report_lines(seconds: Mapping[str, float], of_unit: float) -> Iterator[str]:
    """The folders with the most processor time, each with its share, its units and its budget."""
    total = sum(seconds.values())
    yield f"processor time of the tests: {total:.0f} s, {total / of_unit:,.0f} units of {1000 * of_unit:.0f} ms"
    for folder, spent in Counter(seconds).most_common(SHOWN):
        units, allowed = spent / of_unit, BUDGET.get(folder)
        over = f", over its budget of {allowed:,}" if allowed is not None and units > allowed else ""
        yield f"{spent:6.0f} s {spent / total:5.1%} {units:7,.0f} units  {folder}{over}"


class Times:
    """A plugin that sums the times of the tests, which processes of pytest-xdist report, and prints the sums."""

    def __init__(self) -> None:
        self.seconds = Counter[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_STARTED] = processor_time()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            report.processor_time = processor_time() - item.stash[_STARTED]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[folder_of(report.nodeid)] += getattr(report, "processor_time", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seconds:
            return
        for line in report_lines(self.seconds, unit()):
            terminalreporter.write_line(line)
