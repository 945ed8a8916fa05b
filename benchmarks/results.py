"""Stores figures as JSON, one file per row, with the version of the code and the machine."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.row import Point, Row
from experiments.common.environment import origin
from glassgate.tasks.runs import write_json


class Store:
    """The file of one row.

    Args:
        folder: the folder of the files.
        row: the row.
        setting: further conditions of the figures: the environment, and whether the run is quick.
    """

    def __init__(self, folder: Path, row: Row, setting: dict[str, Any]) -> None:
        self.path, self.row, self.setting = folder / f"{row.name}.json", row, setting
        old = json.loads(self.path.read_text())["points"] if self.path.exists() else []
        self.points: dict[str, dict[str, Any]] = {point["key"]: point for point in old}

    def key(self, point: Point) -> str:
        """Return a hash of a point, its row, and the setting, which includes the version of the code."""
        row = {"measure": self.row.measure, "busy": self.row.busy, "cost": self.row.cost}
        text = json.dumps([asdict(point), row, self.setting], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def lacks(self, point: Point) -> bool:
        """Whether a point has no figure, because it was not measured or its measurement failed."""
        return "figure" not in self.points.get(self.key(point), {})

    def add(self, point: Point, figure: Figure) -> None:
        """Write a figure to the file, and remove figures of points that the row no longer has."""
        self.points[self.key(point)] = {"key": self.key(point), "at": point.at, **figure, **origin()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self._content())

    def _content(self) -> dict[str, Any]:
        row = self.row
        wanted = {"mean": row.mean, "worst": row.worst, "cost": row.cost, "unit": row.unit}
        about = {"row": row.name, "what": row.what, "against": row.against, "of": len(row.points)}
        keys = [self.key(point) for point in row.points]
        return {
            **about,
            "wanted": wanted,
            **self.setting,
            "points": [self.points[key] for key in keys if key in self.points],
        }


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the contents of the files of a folder."""
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text())
