"""Which units follow what: labels, or what a text is made of, or the channels of a series."""

from typing import NamedTuple

import numpy as np

from glassgate.glass.study import Study

# More different answers than this are no labels.
_MOST_LABELS = 40
# What happens less often than this, or is left out less often, cannot be followed.
_LEAST = 4
# What labels call all that has no label of its own: a unit that follows it tells least.
GROUND = ("other", "O", "_")
PLACE = "place in the sequence"


class Follower(NamedTuple):
    """A unit that goes with something, or against it: the size of the correlation of its state with it."""

    label: str
    direction: str
    unit: int
    state: str
    correlation: float


def follows(study: Study) -> list[Follower]:
    """For each thing to follow the unit that does so best, the closest first, the mere place last."""
    things = marks(study)
    if not things:
        return []
    names = list(things)
    wanted = np.stack([_standard(things[name]) for name in names], 1)
    best: dict[str, Follower] = {}
    for direction in study.directions:
        state = direction.states[-1]
        values = _standard(direction.values[state].astype(np.float64))
        correlation = np.abs(values.T @ wanted) / len(wanted)
        for place, name in enumerate(names):
            unit = int(np.argmax(np.round(correlation[:, place], 9)))
            found = Follower(name, direction.label, unit, state, float(correlation[unit, place]))
            if name not in best or found.correlation > best[name].correlation:
                best[name] = found
    return sorted(
        best.values(), key=lambda each: (each.label == PLACE, each.label in GROUND, -round(each.correlation, 9))
    )


def marks(study: Study) -> dict[str, np.ndarray]:
    """What units may follow, (S,) each: labels of steps, else classes of characters, or channels."""
    total, starts = study.starts[-1], study.starts
    labels: list[str | None] = [None] * total
    for start, passage in zip(starts, study.passages, strict=False):
        for said in passage.said:
            if said.step is not None:
                labels[start + said.step] = (said.target or said.best[0])[0]
    kinds = {label for label in labels if label is not None}
    found: dict[str, np.ndarray] = {}
    if 1 < len(kinds) <= _MOST_LABELS and not _is_text_ahead(study):
        found = {kind: np.array([label == kind for label in labels], float) for kind in sorted(kinds)}
    elif study.passages[0].series is None:
        found = _of_text([step for passage in study.passages for step in passage.steps])
    else:
        every = np.concatenate([_by_step(p.series, p.pace) for p in study.passages if p.series is not None])
        found = {f"channel {k + 1}": every[:, k] for k in range(min(12, every.shape[1]))}
    passages = np.concatenate([np.linspace(0, 1, len(p.steps)) for p in study.passages])
    found[PLACE] = passages
    return {name: mark for name, mark in found.items() if _varies(mark)}


def _by_step(series: np.ndarray, pace: int) -> np.ndarray:
    """The mean of what each step reads, (L, C)."""
    return np.asarray(series, float).reshape(-1, pace, series.shape[1]).mean(1)


def _is_text_ahead(study: Study) -> bool:
    """Whether answers are units of the text itself, as a language model's are."""
    first = study.passages[0]
    targets = {said.target[0] for said in first.said if said.target}
    return len(targets & set(first.steps)) > len(targets) / 2


def _of_text(units: list[str]) -> dict[str, np.ndarray]:
    quoted, depth, column = False, 0, 0
    rows = []
    for unit in units:
        line_end = unit in ("\n", "↵")
        if unit in ('"', "'"):
            quoted = not quoted
        depth = max(0, depth + (unit in "([{") - (unit in ")]}")) if len(unit) == 1 else depth
        column = 0 if line_end else column + 1
        rows.append((quoted, depth > 0, column, unit.isspace(), unit[:1].isupper(), unit.isdigit(), line_end))
    if not any(unit.isalpha() for text in units for unit in text[:1]):
        return {}  # numbers, as of a recording that was given no words
    names = ("inside quotes", "inside brackets", "place in the line", "a blank", "a capital", "a digit", "a line end")
    found = dict(zip(names, np.array(rows, float).T, strict=True))
    return found if found["a line end"].any() else {name: row for name, row in found.items() if "line" not in name}


def _varies(mark: np.ndarray) -> bool:
    values, counts = np.unique(mark, return_counts=True)
    return len(values) > 2 or (len(values) == 2 and counts.min() >= _LEAST)


def _standard(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-9)
