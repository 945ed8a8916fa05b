"""Adds the options of a task to a parser, with a short and a full help."""

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
    """Add an argument for each option. In the parsed arguments, an option that is not given is None.

    Args:
        parser: the parser
        options: the options of the task
        builtin: the defaults that differ for built-in data
    """
    groups = {name: parser.add_argument_group(name) for name in _GROUPS}
    for option in dataclasses.fields(options):
        rules, kind = option.metadata, value_type(options, option.name)
        # Choices that consist of punctuation are in quotes.
        names = [name if any(map(str.isalnum, name)) else repr(name) for name in map(str, rules["choices"] or ())]
        choices = f": {', '.join(names)}" if names else ""
        text = f"{rules['help']}{choices} {_describe_default(option, builtin)}"
        settings: dict[str, Any] = {"default": None, "help": text}
        if kind is bool:
            settings["action"] = BooleanOptionalAction
        elif rules["choices"]:
            settings |= {"type": str.lower if kind is str else kind, "choices": rules["choices"], "metavar": "NAME"}
        elif kind in (int, float):
            settings |= {"type": kind, "metavar": "N" if kind is int else "X"}
        else:
            settings |= {"type": str, "metavar": rules["metavar"]}
        groups[rules["group"]].add_argument(_flag(option.name), **settings)
        if rules["former_name"]:
            parser.add_former_name(_flag(rules["former_name"]), _flag(option.name))


def add_help(parser: ArgumentParser, common: Iterable[str]) -> None:
    """Add `--help`, which shows the most used options on one screen, and `--help all`, which shows all options.

    Args:
        parser: a parser without a help option
        common: the names of the most used options
    """
    parser.formatter_class = _Formatter

    class Help(Action):
        def __call__(self, parser: ArgumentParser, *values: Any) -> None:
            if values[1] == "all":
                parser.print_help()
            else:
                print(_short_help(parser, common))
            parser.exit()

    text = "show the most used options, or all of them"
    parser.add_argument("-h", "--help", action=Help, nargs="?", const="", metavar="all", help=text)


def _short_help(parser: ArgumentParser, common: Iterable[str]) -> str:
    formatter = _Formatter(parser.prog)
    formatter.add_usage(None, [], [])
    formatter.add_text(parser.description)
    actions = {action.dest: action for action in parser._actions if action.help != SUPPRESS}
    formatter.start_section("options")
    formatter.add_arguments(actions[name] for name in ("run", *common))
    formatter.end_section()
    hidden = len(actions) - len(tuple(common)) - 2
    formatter.add_text(f"{parser.prog} --help all lists {hidden} more options.")
    return formatter.format_help().rstrip()


class _Formatter(HelpFormatter):
    """Formats a short usage, and one line per option if it fits."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Add the usage without the list of all options."""
        super().add_usage(usage or "%(prog)s [options]", [], [], prefix)


def add_processes(parser: ArgumentParser) -> None:
    """Add `--devices`, the number of processes. It is not an option of the task, because runs do not depend on it."""
    group = parser.add_argument_group("processes")
    text = "number of processes; they divide each batch, and each uses its own GPU if there are any (default: 1)"
    group.add_argument("--devices", type=positive, metavar="N", help=text)


def given_options(options: type[Options], arguments: Namespace) -> dict[str, Any]:
    """Return the options that were given, with their values."""
    values = {option.name: getattr(arguments, option.name) for option in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def positive(text: str) -> int:
    """Convert a text to an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _describe_default(option: "dataclasses.Field[Any]", builtin: Mapping[str, Any]) -> str:
    """The description of the default, for a file and for built-in data."""
    value, if_unset = option.default, option.metadata["if_unset"]
    text = if_unset if if_unset and value in (None, "", 0) else _format(value)
    without_data = f"; {_format(builtin[option.name])} with --demo" if option.name in builtin else ""
    return f"(default: {text}{without_data})"


def _format(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
