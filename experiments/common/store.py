"""Stores measurements in a folder of files. A run that was interrupted finds the measurements it has made.

A file has one line of JSON for each point: the settings that identify it, the measured values, the commit and the time.
If the first line has the single key "head", it contains the properties that all points share.
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
        return self.folder / f"{name}.jsonl"

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted({path.stem for path in self.folder.iterdir() if path.suffix in (".jsonl", ".json")})

    def read(self, name: str) -> tuple[dict[str, Any], list[Point]]:
        """Return the head and the points of a file; neither if the file is missing.

        Raises:
            SystemExit: the file has another format.
        """
        path, earlier = self.path(name), self.folder / f"{name}.json"
        if not path.exists() and earlier.exists():
            return _read_earlier(earlier)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        points: list[Point] = [json.loads(line) for line in lines]
        head = points.pop(0)["head"] if points and points[0].keys() == {"head"} else {}
        return head, points

    def points(self, name: str, key: Mapping[str, Any] | None = None) -> list[Point]:
        """Return the points of a file that have all items of `key`."""
        return [point for point in self.read(name)[1] if (key or {}).items() <= point.items()]

    def find(self, name: str, key: Mapping[str, Any]) -> Point | None:
        """Return the latest point that has all items of `key`, or None."""
        return next(reversed(self.points(name, key)), None)

    def add(self, name: str, key: Mapping[str, Any], values: Mapping[str, Any], **head: Any) -> Point:
        """Add a point, or replace the point with the same key. Items of `head` replace those of the file."""
        with self.lock:
            old_head, points = self.read(name)
            point = {**key, **values, **origin()}
            place = next((k for k, each in enumerate(points) if key.items() <= each.items()), len(points))
            self.write(name, old_head | head, [*points[:place], point, *points[place + 1 :]])
        return point

    def keep(self, name: str, keys: Iterable[Mapping[str, Any]]) -> None:
        """Remove the points of a file that have none of these keys, and sort the others by their key."""
        with self.lock:
            head, points = self.read(name)
            self.write(name, head, [point for key in keys for point in points if key.items() <= point.items()])

    def write(self, name: str, head: Mapping[str, Any], points: Iterable[Point]) -> None:
        """Replace a file. The new content is written to a temporary file, which is renamed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [*([{"head": head}] if head else []), *points]
        write(self.path(name), "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        (self.folder / f"{name}.json").unlink(missing_ok=True)


def _read_earlier(path: Path) -> tuple[dict[str, Any], list[Point]]:
    """Read a file of the former benchmarks: a JSON object with the list "points"."""
    content = json.loads(path.read_text("utf-8"))
    points = content.pop("points", None)
    if not isinstance(points, list):
        sys.exit(f"{path}: expected a list of points, got a file of another version; name another folder by --out")
    return content, points
