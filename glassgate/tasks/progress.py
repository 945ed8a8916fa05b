"""Callbacks that report the progress of a training, and the exception for an interruption."""

from collections.abc import Mapping


class Progress:
    """The callbacks of a training. Here they do nothing; subclasses override those they need.

    Amounts of training are counted in units: tokens of texts, or time steps of series.
    """

    def reading(self) -> None:
        """Called before the data is read."""

    def converting(self, file: str, fraction: float) -> None:
        """Called while a large file is converted to the cached format, with the completed fraction, from 0 to 1."""

    def note(self, text: str) -> None:
        """Called with each message for the user."""

    def begin(self, units: int, done: int) -> None:
        """Called when training starts, with the number of units in all epochs and the number already done."""

    def change(self, units: int) -> None:
        """Called when the remaining amount of training changes by a positive or negative number of units."""

    def step(self, units: int, loss: float) -> None:
        """Called after each batch, with its number of units and its loss."""

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        """Called after each epoch, with its number, from 1, its training loss and its dev scores."""

    def stopping(self) -> None:
        """Called after Ctrl-C or SIGTERM; training ends after the current step."""

    def end(self) -> None:
        """Called when training ends, finished or interrupted."""


class Interrupted(Exception):
    """Training was interrupted by Ctrl-C or SIGTERM. Its state is saved; the argument is the number of the signal."""
