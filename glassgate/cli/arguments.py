"""Converts the options of a task to command-line arguments, with a short and a full help."""

import dataclasses
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    HelpFormatter,
    Namespace,
)
from collections.abc import Iterable, Mapping
from typing import Any

from glassgate.cli.parser import Parser
from glassgate.tasks.options import Options, value_type

_GROUPS = ("data", "model", "training")


def add_options(parser: Parser, options: type[Options], builtin: Mapping[str, Any]) -> None:
    """Add an argument for each option. An option that is not given is None in the result.

    Args:
        parser: the parser
        options: the options of the task
        builtin: the defaults that differ for built-in data
    """
    groups = {name: parser.add_argument_group(name) for name in _GROUPS}
    for each in dataclasses.fields(options):
        rules, kind = each.metadata, value_type(options, each.name)
        # a choice that is only punctuation is in quotes
        shown = [each if any(map(str.isalnum, each)) else repr(each) for each in map(str, rules["choices"] or ())]
        choices = f": {', '.join(shown)}" if shown else ""
        settings: dict[str, Any] = {"default": None, "help": f"{rules['help']}{choices} {_default(each, builtin)}"}
        if kind is bool:
            settings["action"] = BooleanOptionalAction
        elif rules["choices"]:
            settings |= {"type": str.lower if kind is str else kind, "choices": rules["choices"], "metavar": "NAME"}
        elif kind in (int, float):
            settings |= {"type": kind, "metavar": "N" if kind is int else "X"}
        else:
            settings |= {"type": str, "metavar": rules["metavar"]}
        groups[rules["group"]].add_argument(_name(each.name), **settings)
        if rules["former"]:
            parser.add_former_name(_name(rules["former"]), _name(each.name))


def add_help(parser: ArgumentParser, common: Iterable[str]) -> None:
    """Add `--help`, which shows some options on one screen, and `--help all`.

    Args:
        parser: the parser, made without its own help
        common: the names of the options on the short screen
    """
    parser.formatter_class = _Formatter

    class Help(Action):
        def __call__(self, parser: ArgumentParser, *values: Any) -> None:
            if values[1] == "all":
                parser.print_help()
            else:
                print(_brief(parser, common))
            parser.exit()

    text = "show the most used options, or all of them"
    parser.add_argument("-h", "--help", action=Help, nargs="?", const="", metavar="all", help=text)


def _brief(parser: ArgumentParser, common: Iterable[str]) -> str:
    formatter = _Formatter(parser.prog)
    formatter.add_usage(None, [], [])
    formatter.add_text(parser.description)
    actions = {each.dest: each for each in parser._actions if each.help != SUPPRESS}
    formatter.start_section("options")
    formatter.add_arguments(actions[name] for name in ("run", *common))
    formatter.end_section()
    hidden = len(actions) - len(tuple(common)) - 2
    formatter.add_text(f"{parser.prog} --help all lists {hidden} more options.")
    return formatter.format_help().rstrip()


class _Formatter(HelpFormatter):
    """Short usage, and one line per option if it fits."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Leave the list of all options out of the usage."""
        super().add_usage(usage or "%(prog)s [options]", [], [], prefix)


def add_processes(parser: ArgumentParser) -> None:
    """Add the number of processes; a run does not depend on it, so it is not an option of the task."""
    group = parser.add_argument_group("processes")
    text = "number of processes; they divide each batch, and each uses its own GPU if there are any (default: 1)"
    group.add_argument("--devices", type=positive, metavar="N", help=text)


def given_options(options: type[Options], arguments: Namespace) -> dict[str, Any]:
    """Return the options that were given, with their values."""
    values = {each.name: getattr(arguments, each.name) for each in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def positive(text: str) -> int:
    """Convert a text to an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def _name(option: str) -> str:
    return "--" + option.replace("_", "-")


def _default(each: "dataclasses.Field[Any]", builtin: Mapping[str, Any]) -> str:
    """The behaviour if the option is not given, with and without --data."""
    value, unset = each.default, each.metadata["unset"]
    text = unset if unset and value in (None, "", 0) else _shown(value)
    without = f"; {_shown(builtin[each.name])} without --data" if each.name in builtin else ""
    return f"(default: {text}{without})"


def _shown(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
