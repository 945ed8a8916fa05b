"""Scores of a training run, and their format on pages."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A score on the test data.

    Attributes:
        key: the name in metrics.json
        title: the name on pages
        percent: whether the score is a fraction, which pages show in per cent
        lower_is_better: whether a lower value is better
        digits: the number of digits after the decimal point (default: 1 for per cent, otherwise 3)
    """

    key: str
    title: str
    percent: bool = True
    lower_is_better: bool = False
    digits: int | None = None

    @property
    def places(self) -> int:
        """The number of digits after the decimal point."""
        return (1 if self.percent else 3) if self.digits is None else self.digits

    @property
    def factor(self) -> int:
        """The factor by which pages multiply the value."""
        return 100 if self.percent else 1

    def best(self, values: Mapping[str, float]) -> str:
        """Return the name of the best value."""
        return (min if self.lower_is_better else max)(values, key=values.__getitem__)

    def format_best(self, values: Mapping[str, float]) -> str:
        """Return the best value as text, and its name; "-" without any."""
        if not values:
            return "-"
        name = self.best(values)
        return f"{values[name] * self.factor:.{self.places}f} ({name})"

    @property
    def heading(self) -> str:
        """The title with the unit, or with the direction that is better."""
        return (
            f"{self.title}, {'%' if self.percent else 'less is better' if self.lower_is_better else 'more is better'}"
        )
