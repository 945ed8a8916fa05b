"""Interleaved runs of processes, one per peer: one runs while the others are stopped; and the ratios of their times."""

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

from benchmarks.work import Work
from experiments.common.environment import ROOT
from experiments.common.summaries import quartiles, ratios


class PeerError(Exception):
    """A peer failed; the message is the last line of its standard error."""


class Process:
    """A running worker.

    Args:
        peer: a module of benchmarks.peers.
        around: arguments of `Popen`, from `surroundings`.
    """

    def __init__(self, peer: str, around: Mapping[str, Any]) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            **around,
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method of `worker.Peer`; the process is stopped before and after the call.

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
            raise PeerError(self._last_words()) from None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return answer

    def _last_words(self) -> str:
        self.said.seek(0)
        return last_words(self.said.read().decode(errors="replace"), self.process.returncode)

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()
        self.said.close()


def surroundings(threads: int, processors: int | None = None, **environment: str) -> dict[str, Any]:
    """Return the arguments of `Popen` for a process in the project's folder, pinned to processors.

    Args:
        threads: the number of threads.
        processors: the number of processors; by default that of threads.
        environment: further environment variables.
    """
    pinned = sorted(os.sched_getaffinity(0))[: processors or threads]
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return {
        "cwd": ROOT,
        "env": {**os.environ, **limits, **environment},
        "preexec_fn": lambda: os.sched_setaffinity(0, pinned),
    }


def last_words(said: str, code: int) -> str:
    """Return the last line of a standard error, or the exit code of the process."""
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"the process ended with {code}"


def ask_once(module: str, threads: int, *arguments: str, **environment: str) -> float:
    """Return the number that a fresh process prints.

    Raises:
        PeerError: the process failed.
    """
    command = [sys.executable, "-m", module, *arguments]
    around = surroundings(threads, None, **environment)
    done = subprocess.run(command, capture_output=True, text=True, **around)
    if done.returncode:
        raise PeerError(last_words(done.stderr, done.returncode))
    return float(done.stdout)


class Workers:
    """The processes of one run, started when first needed.

    Args:
        around: arguments of `Popen` for each, from `surroundings`.
    """

    def __init__(self, around: Mapping[str, Any]) -> None:
        self.around, self.running = around, dict[str, Process]()

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Return the result of a method of a peer. A name with a colon, `ours:truth`, is another process of that peer.

        Raises:
            PeerError: the peer failed; the next request starts it again.
        """
        if name not in self.running:
            self.running[name] = Process(name.partition(":")[0], self.around)
        try:
            return self.running[name].ask(method, *arguments)
        except PeerError:
            self.running.pop(name).end()
            raise

    def drop(self) -> None:
        """Remove the works of every process."""
        for name in list(self.running):
            self.ask(name, "drop")

    def end(self) -> None:
        """End every process."""
        for process in self.running.values():
            process.end()


@dataclass(frozen=True)
class Budget:
    """The end of the measurement of a point: its ratios agree, or its time is over."""

    seconds: float
    least_rounds: int = 3
    most_rounds: int = 25
    sample: float = 0.03
    """Seconds of one sample of a contender."""
    near: float = 0.01
    """The ratios agree if their spread, divided by the square root of their number, is at most this."""
    patience: float = 3.0
    """Factor of `seconds` while the spread of the ratios exceeds `wide`."""
    wide: float = 0.15


def run_interleaved(workers: Workers, contenders: Mapping[str, Work], budget: Budget) -> dict[str, list[float]]:
    """Measure works in rounds, each round in another order.

    Args:
        workers: the processes, which have prepared the works.
        contenders: works by name, that of Glassgate first.
        budget: the end of the measurement.

    Returns:
        seconds per call times the scale of the work: for each name, one number per round.
    """
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for k in range(budget.most_rounds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            work = contenders[name]
            times[name].append(workers.ask(work.peer, "median", work, budget.sample) * work.scale)
        if _enough(times, k + 1, time.perf_counter() - start, budget):
            break
    return times


def _enough(times: Mapping[str, list[float]], rounds: int, spent: float, budget: Budget) -> bool:
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
    """Run other processes, which never wait, on the processors of the peers."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command, **surroundings(processes)) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
