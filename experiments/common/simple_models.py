"""Scores the simple models of a task: a training stores the same scores in its metrics.json."""

from collections.abc import Mapping
from typing import Any

from glassgate.tasks import task_class
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split
from glassgate.tasks.training.baselines import baseline_scores


def score_simple_models(name: str, options: Mapping[str, Any], split: Split[Any]) -> dict[str, dict[str, float]]:
    """Train and score the simple models.

    Args:
        name: the name of the task.
        options: the options of the task.
        split: the data.

    Returns:
        the scores of each model by its name
    """
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(options))
    task.vocabularies = task.collect(split.train)
    scores: dict[str, dict[str, float]] = baseline_scores(task, task.encode_split(split), Progress()).get("scores", {})
    return scores
