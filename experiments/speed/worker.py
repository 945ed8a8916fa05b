"""The process of a peer. It prepares workloads, checks their results against float64, and measures their times.

`python -m experiments.speed.worker PEER` reads requests from standard input, and writes each result to standard output.
A request is a pickled pair: the name of a method of `Peer`, and its arguments. An error ends the process, and
interleaved.py reports the last line of its standard error.
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

from experiments.speed.workload import LONG, Workload

END = 2_000
"""The reference computes only this many last steps of a long workload. The second half of them is compared, because
earlier steps hardly influence it."""

clock = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter
"""The clock in seconds. CPU time on one thread, because other processes hardly change it; otherwise elapsed time."""
SHORTEST = 2e-4
"""The shortest measured time in seconds. Several shorter calls are measured together."""

INT8_ERROR = 0.1
"""The largest allowed error of an int8 session, as a fraction of the largest value."""
SLACK = 10.0
"""Other programs may have this multiple of the error allowed to Glassgate, because of nn.LSTM's bias gradients."""


class Peer:
    """The methods that the benchmarks call in the process.

    Args:
        name: a module of experiments.speed.peers.
    """

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(f"experiments.speed.peers.{name}")
        self.subjects: dict[Workload, Any] = {}

    def prepare(self, workload: Workload, truth: str | None) -> dict[str, Any]:
        """Prepare a workload, and check its results.

        Args:
            workload: the computation.
            truth: the file that the method `truth` wrote, or None if nothing is checked.

        Returns:
            "first call", in seconds; "error", the largest difference from float64 relative to the largest value; and
            "auto", the engine that `auto` would choose.
        """
        subject = self.subjects[workload] = self.module.prepare(workload)
        start = time.perf_counter()
        subject.run()
        details: dict[str, Any] = {"first call": time.perf_counter() - start}
        if hasattr(subject, "choice"):
            details["auto"] = subject.choice()
        if truth is not None:
            checked = subject if workload.checked() == workload else self.module.prepare(workload.checked())
            details["error"] = _check(workload, checked.results(), truth)
        return details

    def truth(self, workload: Workload, path: str) -> None:
        """Write the results of the reference for a workload, in float64 and in the dtype of the workload."""
        import torch

        both = []
        for dtype in ("float64", workload.dtype):
            subject = self.module.prepare(replace(workload.checked().problem(), dtype=dtype))
            if workload.L > LONG:
                subject.keep_end(END)
            both.append(subject.results())
        torch.save(both, path)

    def median(self, workload: Workload, seconds: float) -> float:
        """Measure the median time of a call. After one warm-up call, calls are repeated for `seconds`."""
        run = self.subjects[workload].run
        gc.collect()
        gc.disable()
        start = clock()
        run()
        first = clock() - start
        calls_per_time = max(1, int(SHORTEST / first))
        times: list[float] = [first] if first > seconds else []
        end = clock() + (0 if times and first > 1 else seconds)
        while clock() < end or not times:
            start = clock()
            for _ in range(calls_per_time):
                run()
            times.append((clock() - start) / calls_per_time)
        gc.enable()
        return statistics.median(times)

    def mean(self, workload: Workload, seconds: float) -> float:
        """Measure the mean time of a call over some seconds, including the time without a processor."""
        run, calls = self.subjects[workload].run, 0
        run()
        start = now = time.perf_counter()
        while now < start + seconds:
            run()
            calls, now = calls + 1, time.perf_counter()
        return (now - start) / calls

    def drop(self) -> None:
        """Remove all prepared workloads."""
        self.subjects.clear()
        gc.collect()


def _check(workload: Workload, results: dict[str, Any], path: str) -> float | None:
    """Return the error of the results; None if nothing is checked.

    Raises:
        AssertionError: the error is too large.
    """
    if not results:
        return None
    import torch

    from tests.compare import check, error

    truth, eager = torch.load(path, mmap=True)
    computed = {name: torch.as_tensor(value) for name, value in results.items()}
    if workload.L > LONG:
        computed, truth, eager = ({**r, "output": r["output"][-END // 2 :]} for r in (computed, truth, eager))
    truth, eager = ({name: r[name] for name in computed} for r in (truth, eager))
    if workload.precision == "int8":
        allowed = INT8_ERROR * (1.0 if workload.peer == "ours" else SLACK)
        for name, value in computed.items():
            difference = error(value, truth[name]) / max(truth[name].abs().max().item(), 1e-30)
            assert difference < allowed, f"{name}: off by {difference:.3g} of the largest value, allowed {allowed}"
    else:
        check(computed, truth, eager, slack=1.0 if workload.peer == "ours" else SLACK)
    return max(error(v, truth[k]) / max(truth[k].abs().max().item(), 1e-30) for k, v in computed.items())


def serve(name: str) -> None:
    """Answer requests until the end of standard input."""
    requests, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
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
        pickle.dump(getattr(peer, method)(*arguments), results)
        results.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
