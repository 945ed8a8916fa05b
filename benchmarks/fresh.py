"""Measurements that need a fresh process: peak memory of a first step, and times of a first call and of an import.

`python -m benchmarks.fresh QUESTION [WORK as JSON]` is that process; the functions without `_` start it.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.interleaved import ask_once
from benchmarks.work import Work
from benchmarks.worker import clock

MODULE = "benchmarks.fresh"

FEW = 1_000
"""Steps after which a stream has all the memory that it needs."""


def peak(work: Work, threads: int) -> float:
    """Bytes by which the first full step raises the process's highest resident size.

    A step of the same layer over two time steps comes first, so that libraries, thread pools, kernels, inputs and
    weights are already loaded. Linux's own count (VmHWM, reset before the step) includes the allocations of libraries.
    """
    return ask_once(MODULE, threads, "peak", json.dumps(asdict(work)))


def growth(work: Work, threads: int) -> float:
    """Bytes by which the resident size grows over all steps of a stream after the first FEW."""
    return ask_once(MODULE, threads, "growth", json.dumps(asdict(work)))


def first_call(work: Work, threads: int, cache: str) -> float:
    """Seconds of the first training step of a process whose kernels are cached in a folder.

    The bytecode of Python modules may be cached, too, as in an installed package.
    """
    question = "first_call", json.dumps(asdict(work))
    return ask_once(MODULE, threads, *question, GLASSGATE_CACHE=cache, PYTHONDONTWRITEBYTECODE="")


def importing(threads: int) -> float:
    """Seconds of `import glassgate` once torch is imported."""
    return ask_once("benchmarks.fresh_import", threads)


def _peak(work: Work) -> float:
    module = import_module(f"benchmarks.peers.{work.peer}")
    module.prepare(replace(work, L=2)).run()
    subject = module.prepare(work)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    subject.run()
    return _status("VmHWM") - before


def _growth(work: Work) -> float:
    subject = import_module(f"benchmarks.peers.{work.peer}").prepare(replace(work, L=FEW))
    for _ in range(FEW):
        subject.run()
    gc.collect()
    before = _status("VmRSS")
    for _ in range(work.L):
        subject.run()
    return _status("VmRSS") - before


def _first_call(work: Work) -> float:
    subject = import_module(f"benchmarks.peers.{work.peer}").prepare(work)
    _torch_alone()
    gc.collect()  # otherwise a full collection, of the objects of torch, may become due in the step
    start = clock()
    subject.run()
    return clock() - start


def _torch_alone() -> None:
    """Import the modules that torch itself imports at the first gradient of a process."""
    import torch

    x = torch.zeros(2, requires_grad=True)
    torch.autograd.grad(2 * x, x, torch.ones(2))


def _status(name: str) -> int:
    """Return the bytes in a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _work(text: str) -> Work:
    fields: dict[str, Any] = json.loads(text)
    return Work(**{**fields, "options": tuple(tuple(option) for option in fields["options"])})


if __name__ == "__main__":
    answers: dict[str, Callable[..., float]] = {
        "peak": _peak,
        "growth": _growth,
        "first_call": _first_call,
    }
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(answers[sys.argv[1]](*map(_work, sys.argv[2:])), file=out)
