"""A peer in a separate process: prepares works, checks them against float64, and measures their time.

`python -m benchmarks.worker PEER` reads pickled (method, arguments) from standard input and answers each. An error ends
the process, and interleaved.py reports the last line of its standard error.
"""

import ctypes
import gc
import importlib
import os
import pickle
import signal
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.work import LONG, Work

END = 2_000
"""The last steps of a long work that are recomputed; earlier steps no longer influence them."""

clock = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter
"""Seconds: CPU time on one thread, because other processes on the cores hardly change it; otherwise elapsed time."""
SHORTEST = 2e-4
"""Seconds. Shorter calls are measured several at a time."""

INT8_ERROR = 0.1
"""The largest allowed error of an int8 session, as a fraction of the largest value."""
SLACK = 10.0
"""The error allowed to other programs is this multiple of that allowed to Glassgate, for nn.LSTM's bias gradients."""


class Peer:
    """The methods that the runner calls in the process."""

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(f"benchmarks.peers.{name}")
        self.subjects: dict[Work, Any] = {}

    def prepare(self, work: Work, truth: str | None) -> dict[str, Any]:
        """Prepare a work and check it.

        Args:
            work: the computation.
            truth: the file that `truth` wrote, or None if nothing is checked.

        Returns:
            "first call": seconds; "error": largest difference from float64 as a fraction of the largest value; "auto":
            the engine that the layer would choose.
        """
        subject = self.subjects[work] = self.module.prepare(work)
        start = time.perf_counter()
        subject.run()
        about: dict[str, Any] = {"first call": time.perf_counter() - start}
        if hasattr(subject, "choice"):
            about["auto"] = subject.choice()
        if truth is not None:
            checked = subject if work.checked() == work else self.module.prepare(work.checked())
            about["error"] = _check(work, checked.results(), truth)
        return about

    def truth(self, work: Work, path: str) -> None:
        """Write the expected results of a work, from the reference in float64 and in the dtype of the work."""
        import torch

        both = []
        for dtype in ("float64", work.dtype):
            subject = self.module.prepare(replace(work.checked().problem(), dtype=dtype))
            if work.L > LONG:
                subject.keep_end(END)
            both.append(subject.results())
        torch.save(both, path)

    def median(self, work: Work, seconds: float) -> float:
        """Return the median time of one call, from as many calls as fit into `seconds`, without the first."""
        run = self.subjects[work].run
        gc.collect()
        gc.disable()
        start = clock()
        run()
        once = clock() - start
        calls = max(1, int(SHORTEST / once))  # that are measured together
        times: list[float] = [once] if once > seconds else []
        end = clock() + (0 if times and once > 1 else seconds)
        while clock() < end or not times:
            start = clock()
            for _ in range(calls):
                run()
            times.append((clock() - start) / calls)
        gc.enable()
        return statistics.median(times)

    def mean(self, work: Work, seconds: float) -> float:
        """Return the mean time of one call over some seconds, including waits for a processor."""
        run, calls = self.subjects[work].run, 0
        run()
        start = now = time.perf_counter()
        while now < start + seconds:
            run()
            calls, now = calls + 1, time.perf_counter()
        return (now - start) / calls

    def drop(self) -> None:
        """Remove all works."""
        self.subjects.clear()
        gc.collect()


def _check(work: Work, results: dict[str, Any], path: str) -> float | None:
    """Return the error of the results; raise AssertionError if it is too large."""
    if not results:
        return None
    import torch

    from tests.compare import check, error

    truth, eager = torch.load(path, mmap=True)
    got = {name: torch.as_tensor(value) for name, value in results.items()}
    if work.L > LONG:
        got, truth, eager = ({**r, "output": r["output"][-END // 2 :]} for r in (got, truth, eager))
    truth, eager = ({name: r[name] for name in got} for r in (truth, eager))
    if work.precision == "int8":
        allowed = INT8_ERROR * (1.0 if work.peer == "ours" else SLACK)
        for name, value in got.items():
            off = error(value, truth[name]) / max(truth[name].abs().max().item(), 1e-30)
            assert off < allowed, f"{name}: off by {off:.3g} of the largest value, allowed {allowed}"
    else:
        check(got, truth, eager, slack=1.0 if work.peer == "ours" else SLACK)
    return max(error(v, truth[k]) / max(truth[k].abs().max().item(), 1e-30) for k, v in got.items())


def serve(name: str) -> None:
    """Answer requests until standard input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.platform == "linux":
        die_with_parent = 1
        ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
    peer = Peer(name)
    while True:
        try:
            method, arguments = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(getattr(peer, method)(*arguments), answers)
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
