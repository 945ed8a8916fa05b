"""A row of the table of benchmarks. Its measurements are called points."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.speed.workload import Workload


@dataclass(frozen=True)
class Point:
    """One measurement: a workload of Glassgate, compared with the fastest of the others.

    Attributes:
        ours: the workload of Glassgate.
        others: the workloads of other contenders, by name.
    """

    ours: Workload
    others: Mapping[str, Workload] = field(default_factory=dict)

    @property
    def at(self) -> dict[str, Any]:
        """The sizes, by their names in the table."""
        workload = self.ours
        at: dict[str, Any] = {"L": workload.L, "N": workload.N, "H": workload.H}
        return at if workload.cell in ("LSTM", "GRU", "RNN") else {"cell": workload.cell, **at}

    @property
    def quick(self) -> bool:
        """Whether `--quick` measures the point."""
        return (self.ours.N, self.ours.H) in {(1, 64), (8, 64), (32, 256)} and self.ours.L <= 10_000


@dataclass(frozen=True)
class Row:
    """One line of the table.

    The figure of a point is a speedup: the time of the other contender divided by that of Glassgate. With `cost`, it is
    the inverse ratio or a number with a unit, and lower is better.

    Attributes:
        name: the name in commands and of the file.
        what: the measured workload, as text.
        against: the other contenders, as text.
        points: the points.
        mean: the target of the geometric mean of the figures.
        worst: the target of every figure.
        cost: whether lower is better.
        unit: the unit of the figures; "x" for a ratio.
        measure: the name of a function in `measure.MEASURES`.
        busy: whether another process runs on each processor at the same time.
    """

    name: str
    what: str
    against: str
    points: tuple[Point, ...]
    mean: float | None = None
    worst: float | None = None
    cost: bool = False
    unit: str = "x"
    measure: str = "time"
    busy: bool = False

    def key(self, point: Point, setting: Mapping[str, Any]) -> dict[str, str]:
        """Return the key of a point in the store: a hash of the point, its row and the setting.

        Args:
            point: the point.
            setting: the environment, which includes the version of the code, and whether the run is quick.
        """
        row = {"measure": self.measure, "busy": self.busy, "cost": self.cost}
        text = json.dumps([asdict(point), row, setting], sort_keys=True)
        return {"key": hashlib.sha256(text.encode()).hexdigest()[:12]}

    @property
    def head(self) -> dict[str, Any]:
        """The properties of the row that are stored with its points."""
        wanted = {"mean": self.mean, "worst": self.worst, "cost": self.cost, "unit": self.unit}
        about = {"row": self.name, "what": self.what, "against": self.against, "of": len(self.points)}
        return about | {"wanted": wanted}
