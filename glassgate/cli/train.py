"""`glassgate train`: train a task or resume an interrupted run, in one or several processes."""

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from glassgate.cli.parser import Parser, positive
from glassgate.system import SYSTEM
from glassgate.tasks.errors import OptionError
from glassgate.tasks.training.processes.world import World

_PRINTING_OPTIONS = ("-h", "--help", "--print-config")  # options that print something instead of training


def command(argv: list[str]) -> None:
    """Run `glassgate train` with the given arguments. With `--devices`, torchrun starts the processes."""
    parser = Parser(prog="glassgate train", add_help=False, allow_abbrev=False)
    add_processes(parser)
    arguments, rest = parser.parse_known_args(argv)
    world, devices = World.from_environment(), arguments.devices or 1
    if world.size > 1 and arguments.devices not in (None, world.local_size):
        raise OptionError(
            f"devices: expected {world.local_size}, as torchrun has started, got {devices}; leave --devices out"
        )
    if world.size == 1 and devices > 1 and not any(option in _PRINTING_OPTIONS for option in rest):
        raise SystemExit(start_processes(argv, devices))
    if world.size > 1:  # Glassgate itself reports communication errors
        os.environ["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
    if world.rank:
        _discard_output()
    from glassgate.cli import training

    training.command(argv)


def add_processes(parser: Parser) -> None:
    """Add `--devices`, the number of processes. It is not an option of the task, because runs do not depend on it."""
    group = parser.add_argument_group("processes")
    text = "number of processes; they divide each batch, and each uses its own GPU if there are any (default: 1)"
    group.add_argument("--devices", type=positive, metavar="N", help=text)


def start_processes(argv: Sequence[str], devices: int) -> int:
    """Start several processes of `glassgate train` with torchrun, wait for them, and return the exit status."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # More threads than processors would make training many times slower.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, SYSTEM.processor_counter()() // devices)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported below
    words = ["--standalone", f"--nproc-per-node={devices}", *_entry_point(), "train", *argv]
    try:
        torchrun.run(torchrun.parse_args(words))
    except SignalException as error:
        return 128 + error.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            return int(failure.exitcode)
        print(
            f"glassgate train: process {rank} of {devices} was ended by {SYSTEM.describe_end(-failure.exitcode)}; "
            "resume with: glassgate train --resume RUN",
            file=sys.stderr,
        )
        return int(128 - failure.exitcode)
    return 0


def _entry_point() -> list[str]:
    """The arguments of torchrun that start glassgate in the same way as this process."""
    script = Path(sys.argv[0])
    as_file = script.name == "glassgate" and script.is_file()
    return ["--", str(script)] if as_file else ["-m", "--", "glassgate"]


def _discard_output() -> None:
    """Discard the output of this process, except an unexpected error, because process 0 writes to the terminal."""

    def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        traceback.print_exception(kind, error, trace, file=sys.__stderr__)

    sys.excepthook = print_error
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
