"""An argument parser that reports errors in one sentence, without the usage."""

import difflib
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
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
            near = difflib.get_close_matches(name, self._option_string_actions, n=1)
            message = f"unknown option {name}" if name.startswith("-") else f"one word too many, {name!r}"
            self.error(f"{message}; did you mean {near[0]}?" if near else message)
        return arguments

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
