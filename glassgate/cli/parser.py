"""The parser of a command: the options of a task, errors in one sentence, and the name of the program in advice."""

import dataclasses
import difflib
import re
import shlex
import shutil
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    HelpFormatter,
    Namespace,
)
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from glassgate.tasks.options import Options, value_type

_KINDS = {"int": "a whole number", "float": "a number"}
_GROUPS = ("data", "model", "training")


class Parser(ArgumentParser):
    """An `ArgumentParser` whose errors name the expected input, the given input and the most similar option."""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Namespace:  # type: ignore[override]
        """Parse the arguments of a command. An unknown option is reported before missing arguments."""
        options = (word.partition("=")[0] for word in takewhile(lambda word: word != "--", args))
        unknown = [name for name in options if name.startswith("--") and not self._is_option(name)]
        if not unknown:
            arguments: Namespace
            arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            similar = difflib.get_close_matches(name, self._option_string_actions, n=1)
            message = f"unknown option {name}" if name.startswith("-") else f"one word too many, {name!r}"
            self.error(f"{message}; did you mean {similar[0]}?" if similar else message)
        return arguments

    def _is_option(self, name: str) -> bool:
        """Whether a word is the name of an option or its beginning."""
        return any(option.startswith(name) for option in self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Exit with an error message."""
        message = re.sub(
            r"^argument ([^:]+): invalid (\w+) value: (.*)$",
            lambda match: f"{match[1]}: expected {_KINDS.get(match[2], match[2])}, got {match[3]}",
            message,
        )
        if match := re.match(r"^argument ([^:]+): invalid choice: (.*) \(choose from (.*)\)$", message):
            message = f"{match[1]}: expected one of {match[3].replace(chr(39), '')}, got {match[2]}"
        message = message.removeprefix("argument ")
        hint = "" if "; " in message else f"; see {self.prog} --help"
        self.exit(2, f"{self.prog}: {message}{hint}\n")


def add_options(
    parser: Parser, options: type[Options], builtin: Mapping[str, Any] | None = None, names: Collection[str] = ()
) -> None:
    """Add an argument for each option, or for those with these names. An option that is not given is None.

    The help describes the defaults, and those that differ for built-in data.
    """
    fields = [each for each in dataclasses.fields(options) if not names or each.name in names]
    used = {each.metadata["group"] for each in fields}
    groups = {name: parser.add_argument_group(name) for name in _GROUPS if name in used}
    for option in fields:
        rules, kind = option.metadata, value_type(options, option.name)
        # Choices that consist of punctuation are in quotes.
        shown = [name if any(map(str.isalnum, name)) else repr(name) for name in map(str, rules["choices"] or ())]
        choices = f": {', '.join(shown)}" if shown else ""
        text = f"{rules['help']}{choices} {_describe_default(option, builtin or {})}"
        settings: dict[str, Any] = {"default": None, "help": text}
        if kind is bool:
            settings["action"] = BooleanOptionalAction
        elif rules["choices"]:
            settings |= {"type": str.lower if kind is str else kind, "choices": rules["choices"], "metavar": "NAME"}
        elif kind in (int, float):
            settings |= {"type": kind, "metavar": "N" if kind is int else "X"}
        else:
            settings |= {"type": str, "metavar": rules["metavar"]}
        groups[rules["group"]].add_argument("--" + option.name.replace("_", "-"), **settings)


def given_options(options: type[Options], arguments: Namespace) -> dict[str, Any]:
    """Return the options that were given, with their values."""
    values = {option.name: getattr(arguments, option.name, None) for option in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def add_help(parser: ArgumentParser, common: Iterable[str]) -> None:
    """Add `--help`, which shows the common options on one screen, and `--help all`, which shows all options."""
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


def positive(text: str) -> int:
    """Convert a text to an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def _describe_default(option: "dataclasses.Field[Any]", builtin: Mapping[str, Any]) -> str:
    """The description of the default, for a file and for built-in data."""
    value, if_unset = option.default, option.metadata["if_unset"]
    text = if_unset if if_unset and value in (None, "", 0) else _format(value)
    without_data = f"; {_format(builtin[option.name])} with --demo" if option.name in builtin else ""
    return f"(default: {text}{without_data})"


def _format(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def invocation() -> str:
    """Return `glassgate`, its path if it is not on the PATH, or `python -m glassgate`, for commands to copy."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py" and script.parent.name == "glassgate":
        python = Path(sys.executable)
        on_path = shutil.which(python.name)
        return f"{python.name if on_path and Path(on_path).samefile(python) else _short_path(python)} -m glassgate"
    if script.stem != "glassgate" or shutil.which("glassgate"):
        return "glassgate"
    return _short_path(script)


def _short_path(path: Path) -> str:
    path = path.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
