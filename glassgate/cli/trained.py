"""Arguments of commands that use a trained run, and functions that load the run and read the input."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rich.console import Console

from glassgate.cli.parser import Parser
from glassgate.cli.progress import Bar, display
from glassgate.tasks import task_class_of_run
from glassgate.tasks.errors import RunError
from glassgate.tasks.task import Task

TaskType = TypeVar("TaskType", bound=Task[Any, Any, Any])

PRECISIONS = ("float32", "int8", "bfloat16")
"""The precisions of inference sessions."""


def add_run(parser: Parser) -> None:
    """Add the argument for the folder of the run."""
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")


def add_weight_precision(parser: Parser) -> None:
    """Add the option for the precision of the weights of recurrent layers.

    The precision of the computation in training is `--precision` of `glassgate train`.
    """
    text = "precision of the weights of recurrent layers (default: float32)"
    parser.add_argument("--weight-precision", choices=PRECISIONS, help=text)
    parser.add_former_name("--precision", "--weight-precision")


def add_encoding(parser: Parser) -> None:
    """Add the option for the encoding of the files that the command reads."""
    text = "encoding of the text files, such as cp1252 (default: as in training, or detected)"
    parser.add_argument("--encoding", metavar="NAME", help=text)


def load(arguments: Namespace) -> Task[Any, Any, Any]:
    """Load the task of the folder `arguments.run`, frozen for inference, with the option `arguments.encoding`."""
    return _load(task_class_of_run(arguments.run), arguments)


def read(task: Task[Any, Any, Any], file: str, labelled: bool = False) -> Sequence[Any]:
    """Read the examples of a file, with a progress bar while a large file is converted."""
    with display(Console(stderr=True)) as bars:
        return task.read(file, labelled=labelled, progress=Bar(bars, task.name))


def load_as(expected: type[TaskType], arguments: Namespace) -> TaskType:
    """Load the task of the folder `arguments.run` as `load` does.

    Raises:
        RunError: the task does not have the expected type
    """
    task_type = task_class_of_run(arguments.run)
    if not issubclass(task_type, expected):
        raise RunError(
            f"{arguments.run}: expected a run of {expected.name}, got one of {task_type.name}; "
            f"train one: glassgate train {expected.name}"
        )
    return _load(task_type, arguments)


def _load(task_type: type[TaskType], arguments: Namespace) -> TaskType:
    task = task_type.load(arguments.run).frozen(arguments.weight_precision)
    set_encoding(task, arguments)
    return task


def set_encoding(task: Task[Any, Any, Any], arguments: Namespace) -> None:
    """Let a task read files in the encoding `arguments.encoding`, if there is one."""
    if encoding := getattr(arguments, "encoding", None):
        task.options = replace(task.options, encoding=encoding)
