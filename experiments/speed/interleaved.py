"""Interleaved measurements of processes, one per peer. One process runs while the others are stopped."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from experiments.common.environment import ROOT
from experiments.common.summaries import quartiles, ratios
from experiments.speed.workload import Workload

assert sys.platform == "linux", "benchmarks need Linux, because they stop, pin and measure processes"


class PeerError(Exception):
    """A peer failed. The message is the last line of its standard error."""


class Process:
    """A running process of `experiments.speed.worker`.

    Args:
        peer: a module of experiments.speed.peers.
        options: arguments of `Popen`, from `process_options`.
    """

    def __init__(self, peer: str, options: Mapping[str, Any]) -> None:
        self.standard_error = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.speed.worker", peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.standard_error,
            **options,
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of `worker.Peer`, and return its result. The process is stopped before and after the call.

        Raises:
            PeerError: the process ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        try:
            pickle.dump((method, arguments), self.process.stdin)
            self.process.stdin.flush()
            answer = pickle.load(self.process.stdout)
        except (BrokenPipeError, EOFError):
            self.process.wait()
            raise PeerError(self._error_message()) from None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return answer

    def _error_message(self) -> str:
        self.standard_error.seek(0)
        return error_message(self.standard_error.read().decode(errors="replace"), self.process.returncode)

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()
        self.standard_error.close()


def process_options(threads: int, processors: int | None = None, **environment: str) -> dict[str, Any]:
    """Return the arguments of `Popen` for a process in the project's folder, pinned to processors.

    Args:
        threads: the number of threads.
        processors: the number of processors (default: the number of threads).
        environment: further environment variables.
    """
    pinned = sorted(os.sched_getaffinity(0))[: processors or threads]
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return {
        "cwd": ROOT,
        "env": {**os.environ, **limits, **environment},
        "preexec_fn": lambda: os.sched_setaffinity(0, pinned),
    }


def error_message(text: str, code: int) -> str:
    """Return the last line of standard error. If it is empty, return a sentence with the exit code of the process."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else f"the process ended with {code}"


def ask_once(module: str, threads: int, *arguments: str, **environment: str) -> float:
    """Run a module in a fresh process, and return the number that it prints.

    Raises:
        PeerError: the process failed.
    """
    command = [sys.executable, "-m", module, *arguments]
    options = process_options(threads, None, **environment)
    completed = subprocess.run(command, capture_output=True, text=True, **options)
    if completed.returncode:
        raise PeerError(error_message(completed.stderr, completed.returncode))
    return float(completed.stdout)


class Workers:
    """The processes of a measurement, each started at its first request.

    Args:
        options: arguments of `Popen` for each process, from `process_options`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.running = options, dict[str, Process]()

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of a peer, and return its result.

        A name with a colon, such as `ours:truth`, is a further process of that peer.

        Raises:
            PeerError: the peer failed. The next request starts it again.
        """
        if name not in self.running:
            self.running[name] = Process(name.partition(":")[0], self.options)
        try:
            return self.running[name].ask(method, *arguments)
        except PeerError:
            self.running.pop(name).end()
            raise

    def drop(self) -> None:
        """Remove the prepared workloads of every process."""
        for name in list(self.running):
            self.ask(name, "drop")

    def end(self) -> None:
        """End every process."""
        for process in self.running.values():
            process.end()


@dataclass(frozen=True)
class Budget:
    """The conditions that end the measurement of a point: its ratios agree, or its time is over.

    Attributes:
        seconds: the time limit.
        least_rounds: the minimum number of rounds.
        most_rounds: the maximum number of rounds.
        sample: the seconds that a contender runs in a round.
        near: the ratios agree if their spread, divided by the square root of the number of rounds, is at most this.
        patience: the factor of the time limit while the spread of the ratios exceeds `wide`.
        wide: see `patience`.
    """

    seconds: float
    least_rounds: int = 3
    most_rounds: int = 25
    sample: float = 0.03
    near: float = 0.01
    patience: float = 3.0
    wide: float = 0.15


def run_interleaved(workers: Workers, contenders: Mapping[str, Workload], budget: Budget) -> dict[str, list[float]]:
    """Measure workloads in rounds. The order changes from round to round.

    Args:
        workers: the processes, which have prepared the workloads.
        contenders: workloads by name, with that of Glassgate first.
        budget: the conditions that end the measurement.

    Returns:
        for each name, one number per round: the seconds per call times the scale of the workload.
    """
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for k in range(budget.most_rounds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            workload = contenders[name]
            times[name].append(workers.ask(workload.peer, "median", workload, budget.sample) * workload.scale)
        if _is_finished(times, k + 1, time.perf_counter() - start, budget):
            break
    return times


def _is_finished(times: Mapping[str, list[float]], rounds: int, spent: float, budget: Budget) -> bool:
    if rounds < budget.least_rounds:
        return False
    ours, *others = times.values()
    spread = max((_spread(ratios(other, ours)) for other in others), default=_spread(ours))
    if rounds >= 5 and spread / rounds**0.5 <= budget.near:
        return True
    return spent > budget.seconds * (budget.patience if spread > budget.wide else 1)


def _spread(values: list[float]) -> float:
    low, middle, high = quartiles(values)
    return (high - low) / middle


@contextmanager
def cpu_contention(processes: int) -> Iterator[None]:
    """Run processes with an endless loop on the processors of the peers during the block."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command, **process_options(processes)) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
