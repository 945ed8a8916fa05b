"""Stores measurements in a folder of JSON files. A run that was interrupted finds the measurements it has made.

Each file has a head, with the properties that all its points share, and the list "points". A point has the settings
that identify it, the measured values, the commit and the time. One line of the file is one point.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from experiments.common.environment import origin
from glassgate.tasks.runs import write

Point = dict[str, Any]
"""The JSON values of a measurement."""


class Store:
    """A folder of measurements. Several threads can share a store.

    Args:
        folder: the folder, which is created for the first point.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, RLock()

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{name}.json"

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def read(self, name: str) -> dict[str, Any]:
        """Return the head and the points of a file; no points if the file is missing.

        Raises:
            SystemExit: the file has another format.
        """
        path = self.path(name)
        content = json.loads(path.read_text("utf-8")) if path.exists() else {"points": []}
        if not isinstance(content, dict) or not isinstance(content.get("points"), list):
            sys.exit(f"{path}: expected a list of points, got a file of another version; name another folder by --out")
        return content

    def points(self, name: str, key: Mapping[str, Any] | None = None) -> list[Point]:
        """Return the points of a file that have all items of `key`."""
        return [point for point in self.read(name)["points"] if (key or {}).items() <= point.items()]

    def find(self, name: str, key: Mapping[str, Any]) -> Point | None:
        """Return the latest point that has all items of `key`, or None."""
        return next(reversed(self.points(name, key)), None)

    def add(self, name: str, key: Mapping[str, Any], values: Mapping[str, Any], **head: Any) -> Point:
        """Add a point, or replace the point with the same key. Items of `head` replace those of the file."""
        with self.lock:
            content = self.read(name)
            points = content.pop("points")
            point = {**key, **values, **origin()}
            place = next((k for k, each in enumerate(points) if key.items() <= each.items()), len(points))
            self.write(name, content | head, [*points[:place], point, *points[place + 1 :]])
        return point

    def keep(self, name: str, keys: Iterable[Mapping[str, Any]]) -> None:
        """Remove the points of a file that have none of these keys, and sort the others by their key."""
        with self.lock:
            content = self.read(name)
            points = content.pop("points")
            self.write(name, content, [point for key in keys for point in points if key.items() <= point.items()])

    def write(self, name: str, head: Mapping[str, Any], points: Iterable[Point]) -> None:
        """Replace a file. The new content is written to a temporary file, which is renamed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(point, ensure_ascii=False) for point in points)
        start = json.dumps({**head, "points": []}, ensure_ascii=False).removesuffix("]}")
        write(self.path(name), f"{start}\n{lines}\n]}}\n".encode())
