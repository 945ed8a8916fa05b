"""Results kept as JSON, one file for each case, seed and side; those that are there are not made again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.cases import Case

SIDES = ("ours", "plain")

Result = Mapping[str, Any]


class Store:
    """A folder of results.

    Args:
        folder: made when the first result comes
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, case: Case, seed: int, side: str) -> Result | None:
        """The result of one training; None where there is none, or one of other options."""
        path = self._path(case, seed, side)
        if not path.exists():
            return None
        result: Result = json.loads(path.read_text("utf-8"))
        return result if case.key(seed, side).items() <= result.items() else None

    def lacks(self, case: Case, seed: int) -> list[str]:
        """The sides that are still to be trained."""
        return [side for side in SIDES if self.get(case, seed, side) is None]

    def keep(self, case: Case, seed: int, side: str, result: Result) -> None:
        """Write a result, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(case, seed, side)
        partly = path.with_suffix(".part")
        partly.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
        partly.replace(path)

    def pairs(self, case: Case) -> list[tuple[Result, Result]]:
        """Ours and plain PyTorch's results of each seed that has both."""
        both = [tuple(self.get(case, seed, side) for side in SIDES) for seed in range(1, case.seeds + 1)]
        return [(ours, plain) for ours, plain in both if ours and plain]

    def _path(self, case: Case, seed: int, side: str) -> Path:
        return self.folder / f"{case.name}-{seed}-{side}.json"
