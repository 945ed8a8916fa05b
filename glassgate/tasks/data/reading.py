"""The options that a training file determines, and that a task follows for the files that it reads later."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

OptionsType = TypeVar("OptionsType")


@dataclass(frozen=True)
class Reading:
    """The reading of a training file, as far as its content determines it. Runs store it.

    Attributes:
        options: the names and values of options that the file determines, such as the columns of texts and labels
        width: the number of columns of a file with a token per row, which other files must have, too; 0 for other files
    """

    options: tuple[tuple[str, str], ...] = ()
    width: int = 0

    @classmethod
    def of(cls, width: int = 0, /, **options: str | None) -> "Reading":
        """Return the reading with these options; None and empty values are left out."""
        return cls(tuple((name, value) for name, value in options.items() if value), width)

    def get(self, name: str) -> str | None:
        """Return the value of an option; None if the file does not determine it."""
        return dict(self.options).get(name)

    def fill(self, options: OptionsType) -> OptionsType:
        """Return options in which those without a value of the user have that of the reading."""
        unset = {name: value for name, value in self.options if getattr(options, name) == getattr(type(options), name)}
        return replace(options, **unset) if unset else options  # type: ignore[type-var]

    def to_mapping(self) -> dict[str, Any]:
        """Return the reading as JSON values."""
        return {"options": dict(self.options), "width": self.width}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> "Reading":
        """Return the reading from the JSON values of `to_mapping`."""
        return cls.of(stored["width"], **stored["options"])


NO_READING = Reading()
"""The reading of a task without a training file."""
