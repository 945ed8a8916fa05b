"""Settings of all tests: one thread, NaN in uninitialised memory, 60 hypothesis examples (3000 in profile `fuzz`)."""

import gc
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, settings

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.choose import engines
from glassgate.engines.llvm_cpu.processor import host, pretend
from tests.budget import Times
from tests.marking import add_marks

TESTS = Path(__file__).parent
ESSENTIAL = (
    "layers/test_against_torch.py",
    "layers/test_constructor_errors.py",
    "layers/test_errors.py",
    "test_functional.py",
    "test_conversion.py",
    "engines/test_reference.py",
    "cli/test_commands.py",
    "test_house.py",
)
"""The files with the essential tests: layers and functions against torch.nn, gradients of the reference engine, every
command, and the code and commands of the pages."""


OPTIMISED = (
    "cells/test_numbers.py",
    "engines/fuzz",
    "engines/llvm_cpu/test_arrays.py",
    "engines/llvm_cpu/test_bfloat16.py",
    "engines/llvm_cpu/test_gemm.py",
    "engines/llvm_cpu/test_guard.py",
    "engines/llvm_cpu/test_mathematics.py",
    "engines/llvm_cpu/test_tiles.py",
    "engines/llvm_cpu/test_translate.py",
    "engines/llvm_cpu/test_unusual_steps.py",
    "engines/llvm_cpu/test_widths.py",
    "engines/test_engines.py",
    "engines/test_torch_export.py",
    "layers/test_against_torch.py",
    "mathematics",
    "sessions/test_int8.py",
    "sessions/test_session.py",
    "tasks/training/test_health.py",
    "test_platforms.py",
)
"""The folders and files whose kernels are optimised as those of users. Other tests compile the same kernels faster."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m essential`, do not import the files of other tests."""
    is_other = collection_path.is_file() and collection_path.relative_to(TESTS).as_posix() not in ESSENTIAL
    return True if config.option.markexpr == "essential" and is_other else None


settings.register_profile(
    "normal",
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("fuzz", settings.get_profile("normal"), max_examples=3000, derandomize=False, print_blob=True)
settings.load_profile("normal")

# If Python kept no compiled modules, each process that a test starts would compile torch's modules: twice the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without garbage collection, which would read all objects of the libraries again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marks `essential`, `process` and `training` before `-m` selects tests."""
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).as_posix() in ESSENTIAL:
            item.add_marker("essential")
    add_marks(items)


@pytest.fixture(autouse=True, scope="session")
def _interrupts_arrive() -> None:
    """Handle Ctrl-C, which a shell's background jobs and their child processes ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Set one thread for fixtures of modules, too. They run before `_same_start`, at the same time as other tests."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _unwritten_memory_is_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True, scope="module")
def _fast_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    path = request.path.relative_to(TESTS)
    with nullcontext() if any(map(path.is_relative_to, OPTIMISED)) else pretend(host()._replace(optimised=False)):
        yield


@pytest.fixture(autouse=True)
def _same_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The number of threads must not depend on the machine or its load.
    monkeypatch.setattr(processors, "_affinity", lambda: 64)
    monkeypatch.setattr(processors, "_limit", SimpleNamespace(processors=lambda: 64, cached=64, expiry=math.inf))
    monkeypatch.setattr(processors, "TIME_SLICE_WORK", 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=[name for name in engines() if name != "triton"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on each engine of the CPU."""
    with gg.engine(request.param):
        yield request.param
