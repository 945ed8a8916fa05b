"""Scores of a training, and their form on the pages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A score on the test data.

    Attributes:
        key: its name in metrics.json
        title: its name on the page
        percent: whether it is a fraction, shown in per cent
        lower_is_better: whether a lower value is better
        digits: shown after the decimal point; if None, by whether it is a fraction
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
        """The factor between the value and its form on the page."""
        return 100 if self.percent else 1

    @property
    def heading(self) -> str:
        """The title with the unit, or with the better direction."""
        return (
            f"{self.title}, {'%' if self.percent else 'less is better' if self.lower_is_better else 'more is better'}"
        )
