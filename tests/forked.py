"""Processes that start with the libraries loaded, because loading takes longer than most tests.

Each is a copy of a process that has run no kernel and has no further thread, and ends without exit handlers. Tests of
the start or the end of a process, of OpenMP, or of environment variables that libraries read when they are loaded need
a new process.
"""

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

from glassgate.engines.llvm_cpu.processor import host, pretend

ROOT = Path(__file__).parents[1]
_LOADED = [
    "glassgate.cli.train",
    "glassgate.tasks.forecasting.task",
    "glassgate.tasks.tagging.task",
    "torch._dynamo",  # loaded by each optimizer
    "torch.utils.tensorboard",
    "torchmetrics",
]

_CONTEXT = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")


class Copy(_CONTEXT.Process):  # type: ignore[misc, name-defined]
    """A process whose kernels are compiled as those of the process that starts it; see tests/conftest.py."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._compiled_for = host()

    def run(self) -> None:
        with pretend(self._compiled_for):
            super().run()


def forked() -> BaseContext:
    """Return the context whose processes are copies of a process that has loaded the libraries.

    On Windows, where nothing can be copied, they are new processes.
    """
    _CONTEXT.set_forkserver_preload(_LOADED)
    _CONTEXT.Process = Copy  # type: ignore[misc, assignment]
    return _CONTEXT


def run_python(
    *words: str, timeout: float = 300, meanwhile: Callable[[int], None] = lambda number: None, **environment: str
) -> CompletedProcess[str]:
    """Run Python in a copy of the process with the libraries, in the folder of the project.

    Args:
        words: the words after `python`: "-c" and code, or "-m" and a module, and the arguments of the program.
        timeout: the seconds after which the process is killed.
        meanwhile: called with the number of the process after its start.
        environment: additional environment variables.

    Returns:
        The exit code, which is negative after a signal, and the output.
    """
    with TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("out", "err")]
        process = forked().Process(target=_run, args=(words, os.environ | environment, *outputs))
        process.start()
        assert process.pid is not None
        meanwhile(process.pid)
        process.join(timeout)
        process.kill()
        process.join()
        texts = [path.read_text("utf-8") if path.exists() else "" for path in outputs]
    return CompletedProcess(words, process.exitcode, *texts)


def _run(words: Sequence[str], environment: dict[str, str], out: Path, err: Path) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(k, "w", 1, "utf-8", closefd=False) for k in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    kind, program, *arguments = words
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(program, "<string>", "exec"), names)
