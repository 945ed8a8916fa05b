"""`glassgate train`: train a task or resume an interrupted run, in one or several processes."""

import os
import sys
import traceback
from types import TracebackType

from glassgate.cli.arguments import add_processes
from glassgate.cli.parser import Parser
from glassgate.tasks.errors import OptionError
from glassgate.tasks.training.processes.world import from_environment

_PRINTING_OPTIONS = ("-h", "--help", "--print-config")  # options that print something instead of training


def command(argv: list[str]) -> None:
    """Run `glassgate train` with the given arguments. With `--devices`, torchrun starts the processes.

    Raises:
        OptionError: torchrun has started a different number of processes than `--devices`
    """
    parser = Parser(prog="glassgate train", add_help=False, allow_abbrev=False)
    add_processes(parser)
    arguments, rest = parser.parse_known_args(argv)
    world, devices = from_environment(), arguments.devices or 1
    if world.size > 1 and arguments.devices not in (None, world.local_size):
        raise OptionError(
            f"devices: expected {world.local_size}, as torchrun has started, got {devices}; leave --devices out"
        )
    if world.size > 1 or devices == 1 or any(option in _PRINTING_OPTIONS for option in rest):
        if world.size > 1:  # Glassgate itself reports communication errors
            os.environ["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
        if world.rank:
            _discard_output()
        from glassgate.cli import training

        return training.command(argv)
    from glassgate.cli import workers

    raise SystemExit(workers.run(argv, devices))


def _discard_output() -> None:
    """Discard the output of this process, except an unexpected error, because process 0 writes to the terminal."""

    def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        traceback.print_exception(kind, error, trace, file=sys.__stderr__)

    sys.excepthook = print_error
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
