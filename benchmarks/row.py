"""One measurement of the benchmarks, and one line of their table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.work import Work


@dataclass(frozen=True)
class Point:
    """One figure: the work of Glassgate, and the works that it is compared with, by name. The best of these counts."""

    ours: Work
    others: Mapping[str, Work] = field(default_factory=dict)

    @property
    def at(self) -> dict[str, Any]:
        """The sizes, by their names in the table."""
        work = self.ours
        at: dict[str, Any] = {"L": work.L, "N": work.N, "H": work.H}
        return at if work.cell in ("LSTM", "GRU", "RNN") else {"cell": work.cell, **at}

    @property
    def quick(self) -> bool:
        """Whether `--quick` measures it."""
        return (self.ours.N, self.ours.H) in {(1, 64), (8, 64), (32, 256)} and self.ours.L <= 10_000


@dataclass(frozen=True)
class Row:
    """One line of the table.

    The figure of a point is a speedup: the time of the other program divided by that of Glassgate. With `cost`, it is
    the inverse ratio, or a number with a unit, and lower is better.
    """

    name: str
    what: str
    against: str
    points: tuple[Point, ...]
    mean: float | None = None
    """The target of the geometric mean."""
    worst: float | None = None
    """The target of every point."""
    cost: bool = False
    unit: str = "x"
    measure: str = "time"
    """A function of measure.MEASURES."""
    busy: bool = False
    """Whether one other process per processor runs at the same time."""
