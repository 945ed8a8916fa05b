"""The store of results: a file for each case, with a point for each seed and side."""

from typing import Any

from experiments.common.store import Point, Store
from experiments.quality.case import Case

SIDES = ("ours", "plain")
"""The layers of Glassgate, and those of `torch.nn`."""
SIMPLE = "baselines"
"""The side of the scores of simple models."""


class Results(Store):
    """A folder of results."""

    def get(self, case: Case, seed: int, side: str) -> Point | None:
        """Return the result of one training run, or None if it is missing or was trained with other options."""
        return self.find(case.name, case.key(seed, side))

    def missing_sides(self, case: Case, seed: int) -> list[str]:
        """Return the sides without a result."""
        return [side for side in SIDES if self.get(case, seed, side) is None]

    def best_simple(self, case: Case) -> str:
        """Return the first score of a case for its best simple model, and the name of the model; "-" without any."""
        key, scores = case.scores[0].key, (self.get(case, 1, SIMPLE) or {"scores": {}})["scores"]
        return case.scores[0].format_best({name: each[key] for name, each in scores.items() if key in each})

    def pairs(self, case: Case) -> list[tuple[Point, Point]]:
        """Return the results of both sides, Glassgate first, for each seed that has both results."""
        both: Any = ([self.get(case, seed, side) for side in SIDES] for seed in range(1, case.seeds + 1))
        return [(ours, plain) for ours, plain in both if ours and plain]
