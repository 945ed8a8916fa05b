"""An argument parser that reports an error in one sentence, without printing the usage."""

import difflib
import re
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_KINDS = {"int": "a whole number", "float": "a number"}


class Parser(ArgumentParser):
    """An `ArgumentParser` whose errors name the expected input, the given input and the most similar option."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Namespace:  # type: ignore[override]
        """Parse the arguments of a command."""
        arguments: Namespace
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            similar = difflib.get_close_matches(name, self._option_string_actions, n=1)
            message = f"unknown option {name}" if name.startswith("-") else f"one word too many, {name!r}"
            self.error(f"{message}; did you mean {similar[0]}?" if similar else message)
        return arguments

    def add_former_name(self, former: str, name: str, values: Mapping[str, Any] | None = None) -> None:
        """Accept the former name of an option, with a warning, until the next minor version.

        Args:
            former: the former name
            name: the new name; an option with this name must exist
            values: the value of the option for each value of the former option; None if the values are the same
        """
        option = self._option_string_actions[name]
        rules: dict[str, Any] = {"type": option.type, "choices": values or option.choices, "dest": option.dest}
        self.add_argument(former, action=_Former, now=name, values=values, default=SUPPRESS, help=SUPPRESS, **rules)

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


class _Former(Action):
    """Sets the option `now`, and warns about its former name."""

    def __init__(self, *args: Any, now: str, values: Mapping[str, Any] | None, **settings: Any):
        super().__init__(*args, **settings)
        self.now, self.values = now, values

    def __call__(self, parser: ArgumentParser, namespace: Namespace, value: Any, former: str | None = None) -> None:
        print(f"{parser.prog}: warning: {former} is now {self.now}; version 0.2 removes {former}", file=sys.stderr)
        setattr(namespace, self.dest, value if self.values is None else self.values[value])
