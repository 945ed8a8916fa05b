"""What a task contributes to a program: the parts of its network, and the C that calls them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from glassgate.tasks.errors import OptionError
from glassgate.tasks.task import Task


@dataclass(frozen=True)
class Parts:
    """A program of a run.

    Attributes:
        modules: the parts of the network, each with its own functions
        code: tables, functions and `main`
        states: the names of the parts' states, where they are not those of the parts
        reads: a description of the input
        prints: a description of the output
    """

    modules: Mapping[str, nn.Module]
    code: str
    reads: str
    prints: str
    states: Mapping[str, str] = field(default_factory=dict)


def refuse(task: Task[Any, Any, Any], part: str, remedy: str) -> OptionError:
    """Return the error for a run with a part that a program in C lacks."""
    return OptionError(f"--to c cannot express {part} of this {task.name} run; {remedy}")
