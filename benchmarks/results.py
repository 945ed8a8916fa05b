"""Figures as JSON, one file per row, each with its code version and machine. A later run measures the missing ones."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.interleaved import ROOT
from benchmarks.measure import Figure
from benchmarks.rows import Point, Row
from glassgate.claims.machine import processor
from glassgate.engines.numba_cpu.amx import explained

PACKAGES = ("torch", "numba", "llvmlite", "numpy", "onnxruntime", "openvino", "jax")
ABOVE = ("tasks", "cli")
"""Packages that no figure depends on."""


@cache
def environment(threads: int) -> dict[str, Any]:
    """Return the machine, the versions, and a hash of the code."""
    return {
        "processor": processor(),
        "processors": os.cpu_count(),
        "threads": threads,
        "bfloat16": explained(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "code": code(),
    }


def commit() -> str:
    """Return the commit of the working tree, with a + if the package differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + "+" if _git("status", "--porcelain", "--", "glassgate") else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def code() -> str:
    """Return a hash of the source of the package, without `ABOVE`."""
    digest, package = hashlib.sha256(), ROOT / "glassgate"
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in ABOVE:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Store:
    """The file of one row.

    Args:
        folder: the folder of the files.
        row: the row.
        setting: the environment and the budget, on which figures also depend.
    """

    def __init__(self, folder: Path, row: Row, setting: dict[str, Any]) -> None:
        self.path, self.row, self.setting = folder / f"{row.name}.json", row, setting
        old = json.loads(self.path.read_text())["points"] if self.path.exists() else []
        self.points: dict[str, dict[str, Any]] = {point["key"]: point for point in old}

    def key(self, point: Point) -> str:
        """Return a key of a point, the code and the setting."""
        row = {"measure": self.row.measure, "busy": self.row.busy, "cost": self.row.cost}
        text = json.dumps([asdict(point), row, self.setting], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def lacks(self, point: Point) -> bool:
        """Return whether a point has no figure, because it was not measured or the measurement failed."""
        return "figure" not in self.points.get(self.key(point), {})

    def keep(self, point: Point, figure: Figure) -> None:
        """Write a figure, and remove figures of points that the row no longer has."""
        about = {"commit": commit(), "measured": datetime.now(UTC).isoformat(timespec="seconds")}
        self.points[self.key(point)] = {"key": self.key(point), "at": point.at, **figure, **about}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partly = self.path.with_suffix(".part")
        partly.write_text(json.dumps(self._content(), indent=1) + "\n")
        partly.replace(self.path)

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
