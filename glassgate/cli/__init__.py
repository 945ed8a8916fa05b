"""The command line: `glassgate COMMAND`; one file a command, loaded when it is called."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata

COMMANDS = {
    "train": "train a task on your data, on data that every machine has, or go on with an interrupted run",
    "evaluate": "score a trained run on a labelled file",
    "predict": "let a trained run label a file or standard input",
    "generate": "let a trained language model write",
    "fill": "list what may stand in the blanks of a text",
    "compare": "measure which cells remember over long lags, on one page",
    "demo": "colour Python code with a network trained on Python's own library",
}

_WRONG_USE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Args:
        arguments: what follows `glassgate`; those of the process if None
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"glassgate {metadata.version('glassgate')}")
        return 0
    if words[0] not in COMMANDS:
        print(f"glassgate: no command {words[0]!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return _WRONG_USE
    return _run(words[0], words[1:])


def _run(name: str, words: list[str]) -> int:
    from glassgate.tasks.errors import UserError

    # Before torch loads: OpenMP's threads spin while they wait, and where other processes want the processor, too, a
    # small network's training took 10 to 30 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    command: Callable[[list[str]], None] = import_module(f"glassgate.cli.{name}").command
    try:
        command(words)
    except UserError as error:
        print(f"glassgate {name}: {error}", file=sys.stderr)
        return _WRONG_USE
    except KeyboardInterrupt:
        print(f"glassgate {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nobody is there to tell
        return 0
    return 0


def _help() -> str:
    rows = "\n".join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
    return (
        "usage: glassgate COMMAND ...\n\n"
        "Recurrent networks for PyTorch that you can see through.\n\n"
        f"commands:\n{rows}\n\n"
        "`glassgate COMMAND --help` says more. To begin: glassgate demo"
    )
