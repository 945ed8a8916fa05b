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
    start, scores = time.monotonic(), {}
    for baseline in baselines:
        baseline.learn(data["train"], data["dev"])
        metrics = task.metrics()
        for observed in baseline.observed(data[part]):
            metrics.update(**observed)
        scores[baseline.name] = task.summary.epoch_scores(scores_of(metrics))
    progress.note(f"{plural(len(scores), 'baseline')} trained in {time.monotonic() - start:.1f} seconds")
    notes = {each.name: each.note for each in baselines if each.note}
    return {"part": part, "scores": scores, **({"notes": notes} if notes else {})}


def advice(task: AnyTask, result: Mapping[str, Any]) -> str:
    """Return a sentence that names a better baseline and the most likely remedy; empty if no baseline is better.

    Args:
        task: the task, whose `monitor` names the score; scores that differ by less than 0.01 % are equal
        result: the content of metrics.json
    """
    compared, monitor, sign = result.get("baselines") or {}, task.monitor, 1 if task.lower_is_better else -1
    candidates = {name: scores[monitor] for name, scores in compared.get("scores", {}).items() if monitor in scores}
    own = result[compared["part"]].get(monitor) if candidates else None
    if own is None:
        return ""
    best = min(candidates, key=lambda name: sign * candidates[name])
    if not sign * candidates[best] < sign * own - _TOLERANCE * abs(own):
        return ""
    return (
        f"{best} is better on the {compared['part']} data than this network ({monitor.replace('_', ' ')} "
        f"{candidates[best]:.4g} vs. {own:.4g}); {_remedy(task, result)}"
    )


def _remedy(task: AnyTask, result: Mapping[str, Any]) -> str:
    """The most likely remedy: longer training, more dropout if the dev score falls early, or that of the task."""
    epochs, best = len(result["history"]), result["best_epoch"]
    if result["dev"]:
        if best == epochs:
            return f"train longer, as the last epoch was the best one: --epochs {2 * epochs}"
        if 2 * best <= epochs and task.options.dropout < _MORE_DROPOUT:
            return f"the dev score fell after epoch {best} of {epochs}; try more dropout: --dropout {_MORE_DROPOUT:g}"
    else:
        first, last = (result["history"][position]["loss"] for position in (0, -1))
        if last > _HIGH_LOSS * first:
            part = f"{last / first:.0%}"
            return f"train longer, as the loss is still {part} of that of the first epoch: --epochs {4 * epochs}"
    remedy: str = task.remedy
    return remedy
