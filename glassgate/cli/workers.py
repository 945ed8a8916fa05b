"""The processes of one machine that train together: started, watched, and ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from glassgate.tasks.training.processes.world import place_of, variables

_LOOK = 0.05  # seconds between looks at the processes
_LAST_WORDS = 25.0  # seconds in which the others find out that one is gone, and say how to go on
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(words: Sequence[str], devices: int, nodes: int) -> int:
    """Start `glassgate train` once for each process of this machine and return the exit status of them all.

    Args:
        words: the arguments after `glassgate train`
        devices: processes on this machine
        nodes: machines

    Raises:
        OptionError: several machines that do not know where they meet
    """
    address, port, node = place_of(devices, nodes)
    port = port or _free_port()
    # As torchrun does: processes that each take all processors are many times slower than one.
    threads = {"OMP_NUM_THREADS": str(max(1, _processors() // devices))}
    workers = []
    for number in range(devices):
        place = variables(node * devices + number, nodes * devices, number, devices, address, port)
        environment = threads | os.environ | place
        workers.append(subprocess.Popen([*_program(), "train", *words], env=environment, process_group=0))
    with _passed_on(workers):
        return _watch(workers, node * devices, nodes * devices)


def _watch(workers: Sequence["subprocess.Popen[bytes]"], first: int, size: int) -> int:
    """Wait until all have ended; where one fails, the others get some time to say so."""
    status, deadline = 0, float("inf")
    left = dict(enumerate(workers, first))
    while left:
        time.sleep(_LOOK)
        for rank, worker in [*left.items()]:
            code = worker.poll()
            if code is None:
                continue
            del left[rank]
            if code and not status:
                status, deadline = (code if code > 0 else 128 - code), time.monotonic() + _LAST_WORDS
                if code < 0:
                    print(f"glassgate train: process {rank} of {size} was ended by {_name(-code)}", file=sys.stderr)
        if time.monotonic() > deadline:
            for worker in left.values():
                worker.kill()
    return status


@contextmanager
def _passed_on(workers: Sequence["subprocess.Popen[bytes]"]) -> Iterator[None]:
    """Pass Ctrl-C and SIGTERM on to the workers, which end by themselves."""

    def send(number: int, frame: FrameType | None) -> None:
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(number)

    before = {number: signal.signal(number, send) for number in _SIGNALS}
    try:
        yield
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _program() -> list[str]:
    """The command that starts the command line like this process, so that suggested commands fit."""
    script = Path(sys.argv[0])
    as_file = script.name == "glassgate" and script.is_file()
    return [sys.executable, str(script)] if as_file else [sys.executable, "-m", "glassgate"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(number: int) -> str:
    cause = ", as the system does where memory is full" if number == signal.SIGKILL else ""
    return f"{signal.Signals(number).name}{cause}"
