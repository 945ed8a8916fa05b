"""Measurements that need a fresh process: peak memory of a first step, and times of a first call and of an import.

A public function that takes a workload starts this module as a process, with the name of the measurement and the
workload as JSON. In this process, the private function of the same name runs.
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

MODULE = "experiments.speed.fresh"

WARM_UP_STEPS = 1_000
"""The number of steps after which a stream has allocated all its memory."""


def peak(workload: Workload, threads: int) -> float:
    """Measure the bytes by which the first full training step raises the peak resident memory of the process.

    A training step of the same layer over two time steps runs before, so that libraries, thread pools and kernels are
    loaded. Inputs and weights are allocated before the measured step, too. Linux counts the peak (VmHWM, reset before
    the step), which includes allocations of libraries.
    """
    return ask_once(MODULE, threads, "peak", json.dumps(asdict(workload)))


def growth(workload: Workload, threads: int) -> float:
    """Measure the bytes by which the resident memory grows during a stream after the first `WARM_UP_STEPS`."""
    return ask_once(MODULE, threads, "growth", json.dumps(asdict(workload)))


def first_call(workload: Workload, threads: int, cache: str) -> float:
    """Measure the seconds of the first training step of a process.

    Kernels are cached in the folder `cache`. The bytecode of Python modules may be cached, too, as in an installed
    package.
    """
    arguments = "first_call", json.dumps(asdict(workload))
    return ask_once(MODULE, threads, *arguments, GLASSGATE_CACHE=cache, PYTHONDONTWRITEBYTECODE="")


def import_time(threads: int) -> float:
    """Measure the seconds of `import glassgate` after torch is imported."""
    return ask_once("experiments.speed.fresh_import", threads)


def _peak(workload: Workload) -> float:
    module = import_module(f"experiments.speed.peers.{workload.peer}")
    module.prepare(replace(workload, L=2)).run()
    subject = module.prepare(workload)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    subject.run()
    return _status("VmHWM") - before


def _growth(workload: Workload) -> float:
    subject = import_module(f"experiments.speed.peers.{workload.peer}").prepare(replace(workload, L=WARM_UP_STEPS))
    for _ in range(WARM_UP_STEPS):
        subject.run()
    gc.collect()
    before = _status("VmRSS")
    for _ in range(workload.L):
        subject.run()
    return _status("VmRSS") - before


def _first_call(workload: Workload) -> float:
    subject = import_module(f"experiments.speed.peers.{workload.peer}").prepare(workload)
    _import_modules_of_torch()
    gc.collect()  # otherwise the step may include a full collection of the objects of torch
    start = clock()
    subject.run()
    return clock() - start


def _import_modules_of_torch() -> None:
    """Import the modules that torch itself imports at the first gradient of a process."""
    import torch

    x = torch.zeros(2, requires_grad=True)
    torch.autograd.grad(2 * x, x, torch.ones(2))


def _status(name: str) -> int:
    """Return the bytes in a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _parse_workload(text: str) -> Workload:
    fields: dict[str, Any] = json.loads(text)
    return Workload(**{**fields, "options": tuple(tuple(option) for option in fields["options"])})


if __name__ == "__main__":
    measurements: dict[str, Callable[..., float]] = {
        "peak": _peak,
        "growth": _growth,
        "first_call": _first_call,
    }
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(measurements[sys.argv[1]](*map(_parse_workload, sys.argv[2:])), file=out)
