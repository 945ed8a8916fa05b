"""The command line: `glassgate COMMAND`. Each command is a module, which is imported when the command is called."""

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata

from glassgate.cli.stopping import ending, exit_status, stoppable
from glassgate.extras import EXTRAS, MissingPackageError
from glassgate.storage import remove_unfinished
from glassgate.system import SYSTEM

COMMANDS = {
    "train": "train a task on your data or on built-in data, or resume an interrupted run",
    "evaluate": "score a trained run on a labelled file",
    "predict": "print the predictions of a trained run for a file or standard input",
    "generate": "continue a text with a trained language model",
    "translate": "translate a file or standard input with a trained run",
    "fill": "list candidates for the blanks of a text",
    "compare": "compare how long cells remember, and write a page with the results",
    "forecast": "forecast the next steps of series with a trained run",
    "report": "write a page about a trained run, gate by gate and step by step",
    "search": "find steps of a run's data at which the states of units are similar to those at given steps",
    "export": "write a trained run's network as a file for deployment",
    "cells": "list the built-in cells, or print the equations and parameters of one",
    "look": "print the recognised format of a data file, and its first examples",
    "demo": "colour Python code with a network trained on Python's own library",
}

_ERROR_STATUS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with these arguments, or with those of the process, and return the exit status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in ("-h", "--help", "help"):
        try:
            print(_help(), flush=True)
        except OSError as error:
            if not SYSTEM.is_closed_pipe(error):
                raise
            _close_output()
        return 0
    if argv[0] == "--version":
        print(f"glassgate {metadata.version('glassgate')}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"glassgate: unknown command {argv[0]!r}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return _ERROR_STATUS
    return _run(argv[0], argv[1:])


def _run(name: str, argv: list[str]) -> int:
    from glassgate.tasks.errors import UserError

    # Set before torch is loaded: otherwise OpenMP threads spin while they wait. With other processes on the same cores,
    # training of a small network took 10 to 30 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape characters that the terminal cannot show, also in file names
            stream.reconfigure(errors="backslashreplace")
    try:
        with stoppable(name):
            command: Callable[[list[str]], None] = import_module(f"glassgate.cli.{name}").command
            command(argv)
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt as error:
        remove_unfinished()
        print(f"glassgate {name}: {ending(error)}", file=sys.stderr)
        return exit_status(error)
    except OSError as error:
        if SYSTEM.is_closed_pipe(error):
            _close_output()
            sys.stderr.close()
            return 0
        file = f"{error.filename}: " if error.filename else ""
        remedy = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        print(f"glassgate {name}: {file}{error.strerror or error}{remedy}", file=sys.stderr)
        _close_output()
        return _ERROR_STATUS
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in EXTRAS:
            raise
        print(f"glassgate {name}: {MissingPackageError(missing)}", file=sys.stderr)
        return _ERROR_STATUS
    except UserError as error:
        print(f"glassgate {name}: {error}", file=sys.stderr)
        return _ERROR_STATUS
    return 0


def _close_output() -> None:
    """Discard unwritten output; otherwise the interpreter writes it again at exit and reports an error."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help() -> str:
    from glassgate.tasks import installed_tasks

    rows = "\n".join(f"  {name:<11}{summary}" for name, summary in COMMANDS.items())
    return (
        "usage: glassgate COMMAND ...\n\n"
        "Train recurrent networks and look inside them.\n\n"
        f"commands:\n{rows}\n\n"
        f"tasks: {', '.join(installed_tasks())}\n\n"
        "`glassgate COMMAND --help` lists the options of a command. Start with: glassgate demo"
    )
