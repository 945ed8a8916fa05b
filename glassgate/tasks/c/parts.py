"""The task-specific parts of a C program: the modules of the network, and the code that calls them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from glassgate.tasks.errors import OptionError
from glassgate.tasks.task import Task


@dataclass(frozen=True)
class Parts:
    """The task-specific parts of the program of a run.

    Attributes:
        modules: the modules of the network by name; `gg.to_c` exports each as C functions
        code: the tables, the functions and `main` of the program
        states: the names of state variables, by the name of the module; the default is the name of the module
        reads: a description of the input
        prints: a description of the output
    """

    modules: Mapping[str, nn.Module]
    code: str
    reads: str
    prints: str
    states: Mapping[str, str] = field(default_factory=dict)


def unsupported_error(task: Task[Any, Any, Any], part: str, remedy: str) -> OptionError:
    """Return the error for a run that cannot be written as a C program."""
    return OptionError(f"--to c cannot express {part} of this {task.name} run; {remedy}")
