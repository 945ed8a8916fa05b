"""Scores the simple models of a case: a training stores the same scores in its metrics.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.quality.cases import Case
from experiments.quality.store import Results
from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.baselines import baseline_scores

SIDE = "baselines"
"""The name of these results in the store."""


def measure(case: Case, data: Path, store: Results) -> None:
    """Train and score the simple models of a case, unless the store has their scores."""
    if store.get(case, 1, SIDE) is not None:
        return
    kind = task_class(case.task)
    task = kind(kind.options_type.from_mapping({**case.run_options(data), **case.options}))
    split = case.read(data) if case.read else task.read_split(Progress())
    task.vocabularies = task.collect(split.train)
    compared = baseline_scores(task, task.encode_split(split), Progress())
    store.add(case.name, case.key(1, SIDE), compared)


def best(case: Case, result: Mapping[str, Any] | None) -> str:
    """Return the first score of a case for its best simple model, and the name of the model; "-" without any."""
    score = case.scores[0]
    sign = 1 if score.lower_is_better else -1
    values = {
        name: scores[score.key] for name, scores in (result or {}).get("scores", {}).items() if score.key in scores
    }
    if not values:
        return "-"
    name = min(values, key=lambda name: sign * values[name])
    return f"{values[name] * score.factor:.{score.places}f} ({name})"
