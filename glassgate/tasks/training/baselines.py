"""Trains and scores the baselines of a task, and compares the network with them."""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from glassgate.extras import install_command
from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.progress import Progress
from glassgate.tasks.training.scoring import AnyTask, scores_of
from glassgate.tasks.wording import plural

MISSING = f"baselines: they need the package scikit-learn, which is not installed: {install_command('sklearn')}"

_TOLERANCE = 1e-4  # relative; a model with smaller differences, which are rounding errors, is not better
_MORE_DROPOUT = 0.5
_HIGH_LOSS = 0.1  # of the loss of the first epoch; without dev data, a larger loss at the end counts as underfitting


def baseline_scores(task: AnyTask, data: Mapping[str, Sequence[Encoded]], progress: Progress) -> dict[str, Any]:
    """Train the baselines of a task, and score them on the test data, or on the dev data of a split without test data.

    Args:
        task: the task, with its vocabularies and fitted values
        data: the encoded parts "train", "dev" and "test"
        progress: receives a note about the time

    Returns:
        "part", the name of the scored part; "scores", the scores of each baseline by its name; and "notes" on the
        baselines that have not learned from all examples. Empty if there is nothing to score, or no baseline
    """
    part = "test" if len(data["test"]) else "dev"
    baselines = task.baselines() if len(data[part]) else []
    if not baselines:
        return {}
    if find_spec("sklearn") is None:
        progress.note(MISSING)
        return {}
    start, scores, notes = time.monotonic(), {}, {}
    for baseline in baselines:
        baseline.learn(data["train"], data["dev"])
        metrics = task.metrics()
        for observed in baseline.observed(data[part]):
            metrics.update(**observed)
        scores[baseline.name] = task.summary.epoch_scores(scores_of(metrics))
        if baseline.note:
            notes[baseline.name] = baseline.note
    progress.note(f"{plural(len(scores), 'baseline')} trained in {time.monotonic() - start:.1f} seconds")
    return {"part": part, "scores": scores, **({"notes": notes} if notes else {})}


def better_baseline(task: AnyTask, result: Mapping[str, Any]) -> str:
    """Return the name of the best baseline if its score is better than that of the network; otherwise an empty string.

    Scores that differ by less than 0.01 % are equal.

    Args:
        task: the task, whose `monitor` names the score
        result: the content of metrics.json
    """
    compared, sign = result.get("baselines") or {}, 1 if task.lower_is_better else -1
    candidates = {
        name: scores[task.monitor] for name, scores in compared.get("scores", {}).items() if task.monitor in scores
    }
    own = result[compared["part"]].get(task.monitor) if candidates else None
    if own is None:
        return ""
    best = min(candidates, key=lambda name: sign * candidates[name])
    return best if sign * candidates[best] < sign * own - _TOLERANCE * abs(own) else ""


def advice(task: AnyTask, result: Mapping[str, Any]) -> str:
    """Return a sentence that names a better baseline and the most likely remedy; empty if no baseline is better."""
    best = better_baseline(task, result)
    if not best:
        return ""
    compared, monitor = result["baselines"], task.monitor
    return (
        f"{best} is better on the {compared['part']} data than this network ({monitor.replace('_', ' ')} "
        f"{compared['scores'][best][monitor]:.4g} vs. {result[compared['part']][monitor]:.4g}); {_remedy(task, result)}"
    )


def _remedy(task: AnyTask, result: Mapping[str, Any]) -> str:
    """The most likely remedy: longer training, more dropout if the dev score falls early, or that of the task."""
    epochs, best = len(result["history"]), result["best_epoch"]
    first, last = (result["history"][position]["loss"] for position in (0, -1))
    if result["dev"] and best == epochs:
        return f"train longer, as the last epoch was the best one: --epochs {2 * epochs}"
    if not result["dev"] and last > _HIGH_LOSS * first:
        return (
            f"train longer, as the loss is still {last / first:.0%} of that of the first epoch: --epochs {4 * epochs}"
        )
    if result["dev"] and 2 * best <= epochs and task.options.dropout < _MORE_DROPOUT:
        return f"the dev score fell after epoch {best} of {epochs}; try more dropout: --dropout {_MORE_DROPOUT:g}"
    remedy: str = task.remedy
    return remedy
