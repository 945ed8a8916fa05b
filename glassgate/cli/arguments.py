"""Between a task's options and the command line's arguments."""

import dataclasses
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from typing import Any

from glassgate.tasks.options import Options, value_type

_TITLES = {"data": "data", "model": "model", "training": "training"}


def add_options(parser: ArgumentParser, options: type[Options], own: Mapping[str, Any]) -> None:
    """Add an argument for each option; one that is not given leaves no trace in the result."""
    groups = {name: parser.add_argument_group(title) for name, title in _TITLES.items()}
    for each in dataclasses.fields(options):
        rules = each.metadata
        told: dict[str, Any] = {"default": None, "help": f"{rules['help']} ({_defaults(each.name, each.default, own)})"}
        kind = value_type(options, each.name)
        if kind is bool:
            told["action"] = BooleanOptionalAction
        elif rules["choices"]:
            told |= {"type": str.lower if kind is str else kind, "choices": rules["choices"]}
        elif kind in (int, float):
            told |= {"type": kind, "metavar": kind.__name__.upper()}
        else:
            told |= {"type": str, "metavar": each.name.upper()}
        groups[rules["group"]].add_argument("--" + each.name.replace("_", "-"), **told)


def add_processes(parser: ArgumentParser) -> None:
    """Add how many processes train together; a run does not depend on it, so it is no option of the task."""
    group = parser.add_argument_group("processes")
    machine = "processes on each machine that share every batch; each takes a GPU where there are some (1)"
    group.add_argument("--devices", type=positive, metavar="N", help=machine)
    group.add_argument("--nodes", type=positive, metavar="M", help="machines, each started with the same command (1)")


def given(options: type[Options], arguments: Namespace) -> dict[str, Any]:
    """Return the options that the command line names, and their values."""
    values = {each.name: getattr(arguments, each.name) for each in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def positive(word: str) -> int:
    """Take a number from 1 on."""
    number = int(word)
    if number < 1:
        raise ArgumentTypeError(f"expected 1 or more, got {word}")
    return number


def _defaults(name: str, default: Any, own: Mapping[str, Any]) -> str:
    text = "none" if default in (None, "") else str(default)
    return f"{text}; without --data {own[name]}" if name in own else text
