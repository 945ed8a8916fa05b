"""Stores results as JSON, one file for each case, seed and side."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassgate.tasks.runs import write_json
from results.cases import Case

SIDES = ("ours", "plain")
"""The layers of Glassgate, and those of `torch.nn`."""

Result = Mapping[str, Any]


class Store:
    """A folder of results.

    Args:
        folder: the folder, which is created for the first result
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, case: Case, seed: int, side: str) -> Result | None:
        """Return the result of one training run, or None if it is missing or was trained with other options."""
        path = self._path(case, seed, side)
        if not path.exists():
            return None
        result: Result = json.loads(path.read_text("utf-8"))
        return result if case.key(seed, side).items() <= result.items() else None

    def missing_sides(self, case: Case, seed: int) -> list[str]:
        """Return the sides without a result."""
        return [side for side in SIDES if self.get(case, seed, side) is None]

    def add(self, case: Case, seed: int, side: str, result: Result) -> None:
        """Write a result atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(case, seed, side), result)

    def pairs(self, case: Case) -> list[tuple[Result, Result]]:
        """Return the results of both sides, Glassgate first, for each seed that has both results."""
        both = [tuple(self.get(case, seed, side) for side in SIDES) for seed in range(1, case.seeds + 1)]
        return [(ours, plain) for ours, plain in both if ours and plain]

    def _path(self, case: Case, seed: int, side: str) -> Path:
        return self.folder / f"{case.name}-{seed}-{side}.json"
