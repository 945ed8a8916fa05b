"""The task-specific parts of a C program: the modules of the network, the tables, and the kind of its output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from glassgate.tasks.c.source import constants, numbers, strings
from glassgate.tasks.errors import OptionError
from glassgate.tasks.labelled_task import LabelledTask
from glassgate.tasks.networks.maps import KernelScores, StepScores, TokenScores
from glassgate.tasks.task import Task


@dataclass(frozen=True)
class Parts:
    """The task-specific parts of the program of a run.

    Attributes:
        modules: the modules of the network by name; `gg.to_c` exports each as C functions
        program: the program for the kind of output: "answer" (one per sequence), "tags" (one per token) or "forecast"
        tables: the tables and constants of the run, as C
        reads: a description of an input line
        prints: a description of the output
        states: the names of state variables, by the name of the module; the default is the name of the module
    """

    modules: Mapping[str, nn.Module]
    program: str
    tables: Sequence[str]
    reads: str
    prints: str
    states: Mapping[str, str] = field(default_factory=dict)


def unsupported_error(task: Task[Any, Any, Any], part: str, remedy: str) -> OptionError:
    """Return the error for a run that cannot be written as a C program."""
    return OptionError(f"--to c cannot express {part} of this {task.name} run; {remedy}")


def answer_parts(
    task: LabelledTask[Any, Any], modules: dict[str, Any], tables: list[str], pooling: str, prints: str
) -> Parts:
    """Return the parts of a run with one answer per sequence.

    Args:
        task: the task
        modules: the modules of the task in addition to the encoder and the head
        tables: the tables of the task
        pooling: how the outputs of all steps are combined
        prints: a description of the output
    """
    network, scales, linear = task.network, task.series_scale, task.network.linear
    modules |= {"encoder": network.encoder, "head": network.head}
    tables.append(constants(**{f"POOL_{pooling.upper()}": 1, "DIRECTIONS": 1 + task.options.bidirectional}))
    if scales is None:
        modules["words"] = network.embedding
        if isinstance(linear, TokenScores):
            modules["scores"] = nn.Embedding.from_pretrained(linear.table())
            tables.append(numbers("rarity", linear.rarity.tolist()))
            tables.append(constants(LINEAR=1))
        tables += units(task)
        return Parts(modules, "answer", tables, "the indices of the tokens of a text", prints)
    if isinstance(linear, KernelScores):
        count, features, _ = linear.support.shape
        tables += [constants(SUPPORT=count, FEATURES=features, DIFFERENCES=linear.differences)]
        tables += [numbers("kernel_rate", [linear.rate])]
        tables += [numbers("support", linear.support.flatten().tolist())]
        tables += [numbers("coefficients", linear.coefficients.flatten().tolist())]
    if isinstance(linear, StepScores):
        weight, bias = linear.weight[:-1], linear.bias[:-1]
        tables += [constants(STEPS=len(weight))]
        tables += [numbers("step_weights", weight.flatten().tolist()), numbers("step_biases", bias.flatten().tolist())]
    tables += [constants(CHANNELS=len(scales[0])), numbers("means", scales[0]), numbers("deviations", scales[1])]
    return Parts(
        modules, "answer", tables, "the values of a series: all channels of a step, then the next step", prints
    )


def units(task: Task[Any, Any, Any]) -> list[str]:
    """Return the vocabulary as C. The tokens begin at index FIRST, after padding and the unknown token."""
    vocabulary = task.vocabularies["units"]
    return [
        constants(UNITS=len(vocabulary), FIRST=len(vocabulary) - len(vocabulary.symbols)),
        strings("unit_names", vocabulary.symbols),
    ]
