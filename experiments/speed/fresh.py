"""Measurements that need a fresh process: peak memory of a first step, memory of a stream, time of a first call.

`fresh` starts this module as a process, with the name of a measurement and the workload as JSON.
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

from experiments.speed.interleaved import ask_once
from experiments.speed.worker import clock
from experiments.speed.workload import Workload

WARM_UP_STEPS = 1_000
"""The number of steps after which a stream has allocated all its memory."""


def fresh(measurement: str, workload: Workload, threads: int, **environment: str) -> float:
    """Make a measurement of `MEASUREMENTS` in a fresh process, with further environment variables."""
    return ask_once("experiments.speed.fresh", threads, measurement, json.dumps(asdict(workload)), **environment)


def first_call_with_cache(workload: Workload, threads: int, cache: str) -> float:
    """Measure a first call. Kernels are cached in the folder `cache`, and bytecode as in an installed package."""
    return fresh("first_call", workload, threads, GLASSGATE_CACHE=cache, PYTHONDONTWRITEBYTECODE="")


def peak(workload: Workload) -> float:
    """Measure the bytes by which the first full training step raises the peak resident memory of the process.

    A training step of the same layer over two time steps runs before, so that libraries, thread pools and kernels are
    loaded. Inputs and weights are allocated before the measured step, too. Linux counts the peak (VmHWM, reset before
    the step), which includes allocations of libraries.
    """
    _prepare(replace(workload, L=2)).run()
    subject = _prepare(workload)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    subject.run()
    return _status("VmHWM") - before


def growth(workload: Workload) -> float:
    """Measure the bytes by which the resident memory grows during a stream after the first `WARM_UP_STEPS`."""
    subject = _prepare(replace(workload, L=WARM_UP_STEPS))
    for _ in range(WARM_UP_STEPS):
        subject.run()
    gc.collect()
    before = _status("VmRSS")
    for _ in range(workload.L):
        subject.run()
    return _status("VmRSS") - before


def first_call(workload: Workload) -> float:
    """Measure the seconds of the first training step of the process."""
    import torch

    subject = _prepare(workload)
    x = torch.zeros(2, requires_grad=True)
    torch.autograd.grad(2 * x, x, torch.ones(2))  # torch imports modules at the first gradient of a process
    gc.collect()  # otherwise the step may include a full collection of the objects of torch
    start = clock()
    subject.run()
    return clock() - start


MEASUREMENTS: dict[str, Callable[[Workload], float]] = {each.__name__: each for each in (peak, growth, first_call)}


def _prepare(workload: Workload) -> Any:
    return import_module(f"experiments.speed.peers.{workload.peer}").prepare(workload)


def _status(name: str) -> int:
    """Return the bytes in a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fields = json.loads(sys.argv[2])
    fields["options"] = tuple(map(tuple, fields["options"]))
    print(MEASUREMENTS[sys.argv[1]](Workload(**fields)), file=out)
