"""`glassgate train`: a task from the start, or an interrupted run to its end, in as many processes as are asked for."""

import os
import sys
import traceback
from types import TracebackType

from glassgate.cli.arguments import add_processes
from glassgate.cli.parser import Parser
from glassgate.tasks.errors import OptionError
from glassgate.tasks.training.processes.world import from_environment

_HELP = ("-h", "--help", "--print-config")


def command(words: list[str]) -> None:
    """Train as the words after `glassgate train` say; with `--devices`, torchrun starts the processes.

    Raises:
        OptionError: torchrun or srun has started another number of processes than `--devices` asks for
    """
    parser = Parser(prog="glassgate train", add_help=False, allow_abbrev=False)
    add_processes(parser)
    asked, rest = parser.parse_known_args(words)
    world, devices = from_environment(), asked.devices or 1
    if world.size > 1 and asked.devices not in (None, world.local_size):
        raise OptionError(
            f"devices: {devices} asked for, and {world.launcher} has started {world.local_size}; leave --devices out"
        )
    if world.size > 1 or devices == 1 or any(word in _HELP for word in rest):
        if world.size > 1:  # errors between processes have messages of their own
            os.environ["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
        if world.rank:
            _keep_quiet()
        from glassgate.cli import training

        return training.command(words)
    from glassgate.cli import workers

    raise SystemExit(workers.run(words, devices))


def _keep_quiet() -> None:
    """Leave the terminal to process 0; an unexpected error is printed by the process that raised it."""

    def told(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
        traceback.print_exception(kind, error, place, file=sys.__stderr__)

    sys.excepthook = told
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
