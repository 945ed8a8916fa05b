"""Measures the processor times of functions that run in turn in one process."""

import time
from collections.abc import Callable, Sequence

Run = Callable[[], object]


def processor_seconds(run: Run, repeats: int = 1) -> float:
    """Return the mean processor time of a call."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def interleaved(runs: Sequence[Run], rounds: int, repeats: int = 1) -> list[list[float]]:
    """Return, for each function, its mean processor time in each round. Each round runs all functions.

    Example:
        >>> [len(times) for times in interleaved([lambda: 1, lambda: 2], rounds=3)]
        [3, 3]
    """
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times_of_run in zip(runs, times, strict=True):
            times_of_run.append(processor_seconds(run, repeats))
    return times
