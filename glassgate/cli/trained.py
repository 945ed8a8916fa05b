"""The parser of commands that use a trained run, and functions that load the run and read the input."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from glassgate.cli.parser import Parser, add_options, given_options
from glassgate.cli.progress import Bar, display
from glassgate.tasks import task_class_of_run
from glassgate.tasks.errors import RunError
from glassgate.tasks.options import Options
from glassgate.tasks.runs import RUN
from glassgate.tasks.task import Task

PRECISIONS = ("float32", "int8", "bfloat16")
"""The precisions of inference sessions."""


def run_parser(command: str, description: str, argv: Sequence[str] | None = None, has_precision: bool = True) -> Parser:
    """Return a parser with the arguments for the run, for the precision of its weights, and for the files to read.

    Args:
        argv: the arguments of the command, which name the run: the options of its task that describe files are added;
            None for a command that reads no files
        has_precision: whether the command has the option `--weight-precision`
    """
    parser = Parser(prog=f"glassgate {command}", description=description)
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    if has_precision:  # `--precision` of `glassgate train` is that of the computation
        text = "precision of the weights of recurrent layers (default: float32)"
        parser.add_argument("--weight-precision", choices=PRECISIONS, help=text)
    if argv is not None:
        run = next(filter(is_run, argv), None)
        options = task_class_of_run(run).options_type if run else Options
        add_options(parser, options, names=options.file_options)
        parser.epilog = "The options of the run's task that describe a file, such as --label-column, are accepted, too."
    return parser


def load(arguments: Namespace, expected: type[Task[Any, Any, Any]] | None = None) -> Any:
    """Load the task of the run, frozen for inference, with the options that describe files; check its type."""
    task_type = task_class_of_run(arguments.run)
    if expected is not None and not issubclass(task_type, expected):
        raise RunError(
            f"{arguments.run}: expected a run of {expected.name}, got one of {task_type.name}; "
            f"train one: glassgate train {expected.name}"
        )
    task = task_type.load(arguments.run).frozen(arguments.weight_precision)
    set_file_options(task, arguments)
    return task


def set_file_options(task: Task[Any, Any, Any], arguments: Namespace) -> None:
    """Let a task read files as the given options describe them."""
    given = given_options(type(task.options), arguments)  # also --beam and --seed, which mean something else here
    if file_options := {name: value for name, value in given.items() if name in task.options.file_options}:
        task.options = replace(task.options, **file_options)


def read(task: Task[Any, Any, Any], file: str, labelled: bool = False) -> Sequence[Any]:
    """Read the examples of a file, with a progress bar while a large file is converted."""
    with display(Console(stderr=True)) as bars:
        return task.read(file, labelled=labelled, progress=Bar(bars, task.name))


def is_run(folder: str) -> bool:
    """Whether an argument is the folder of a run rather than a text."""
    return len(folder) < 1000 and (Path(folder) / RUN).is_file()
