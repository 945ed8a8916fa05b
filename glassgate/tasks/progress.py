"""The callbacks of a training, for the command line and for others, and its interruption."""

from collections.abc import Mapping


class Progress:
    """Receives the reports of a training; this class ignores them."""

    def reading(self) -> None:
        """The data is about to be read."""

    def keeping(self, file: str, share: float) -> None:
        """A large file is being brought into the form that training reads; so much of it is done, from 0 to 1."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def begin(self, units: int, done: int) -> None:
        """Training starts: so many units in all epochs together, so many of them done before."""

    def change(self, units: int) -> None:
        """So many units more, or fewer, are left to train on."""

    def step(self, units: int, loss: float) -> None:
        """A batch of so many units is done."""

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        """An epoch, counted from 1, has ended with this loss and these scores on the dev data."""

    def stopping(self) -> None:
        """Ctrl-C was pressed, or SIGTERM received; training ends after the present step."""

    def end(self) -> None:
        """Training is over, whether finished or broken off."""


class Interrupted(Exception):
    """Training was interrupted by Ctrl-C or SIGTERM, whose number is the argument; its state is saved."""
