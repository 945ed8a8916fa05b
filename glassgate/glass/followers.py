"""Units that follow a mark, that is, whose state is correlated with the mark.

A mark is a label, a property of the text, a channel of a series or the step number.
"""

from typing import NamedTuple

import numpy as np

from glassgate.glass.languages import say
from glassgate.glass.study import Direction, Study

# If the answers have more distinct values than this, they are not used as marks.
_MAX_LABELS = 40
# Marks with two values are used only if each value occurs at this many steps or more.
_MIN_STEPS = 4
# Labels of steps that belong to no class of interest.
BACKGROUND = ("other", "O", "_")


class Follower(NamedTuple):
    """A unit that follows a mark.

    Attributes:
        mark: the name of the mark
        direction: the label of the direction
        unit: the index of the unit
        state: the name of the state
        correlation: the correlation of the state with the mark; negative if the state falls where the mark is
    """

    mark: str
    direction: str
    unit: int
    state: str
    correlation: float


def step_number() -> str:
    """The name of the mark that is the number of the step."""
    return say("marks.step_number")


def best_followers(study: Study) -> list[Follower]:
    """The unit that follows each mark most closely, by descending absolute correlation.

    Labels of no interest, such as "other", come after the other marks, and the step number is last. Of two labels that
    exclude each other, the one with the positive correlation comes first.
    """
    best: dict[str, Follower] = {}
    for direction in study.directions:
        for follower in followers_in(study, direction):
            if follower.mark not in best or abs(follower.correlation) > abs(best[follower.mark].correlation):
                best[follower.mark] = follower
    return sorted(
        best.values(),
        key=lambda each: (
            each.mark == step_number(),
            each.mark in BACKGROUND,
            -round(abs(each.correlation), 9),
            each.correlation < 0,
        ),
    )


def followers_in(study: Study, direction: Direction) -> list[Follower]:
    """The unit of one direction that follows each mark most closely."""
    by_name = marks(study, direction)
    if not by_name:
        return []
    correlation = correlations(direction, np.stack(list(by_name.values()), 1))
    units = np.argmax(np.abs(np.round(correlation, 9)), 0)
    return [
        Follower(name, direction.label, int(unit), direction.states[-1], float(correlation[unit, column]))
        for column, (name, unit) in enumerate(zip(by_name, units, strict=True))
    ]


def correlations(direction: Direction, marks_by_step: np.ndarray) -> np.ndarray:
    """The correlations, (H, M), of the states of all units with the columns of `marks_by_step`, (S, M)."""
    values = standardized(direction.values[direction.states[-1]].astype(np.float64))
    correlation: np.ndarray = values.T @ standardized(marks_by_step) / max(1, len(values))
    return correlation


def marks_are_targets(study: Study) -> bool:
    """Whether the labels are correct answers, not predictions of the model."""
    return any(answer.target is not None for passage in study.passages for answer in passage.answers)


def marks(study: Study, direction: Direction | None = None) -> dict[str, np.ndarray]:
    """The marks that units may follow, by name. Each is an array (S,).

    They are the labels of the steps. Without suitable labels, they are properties of the text or the channels of the
    series. The step number is always a mark.

    Args:
        direction: the direction in whose reading order steps are numbered; forward if None
    """
    total, starts = study.starts[-1], study.starts
    labels: list[str | None] = [None] * total
    for start, passage in zip(starts, study.passages, strict=False):
        for answer in passage.answers:
            if answer.step is not None:
                labels[start + answer.step] = (answer.target or answer.best[0])[0]
    kinds = {label for label in labels if label is not None}
    by_name: dict[str, np.ndarray] = {}
    if 1 < len(kinds) <= _MAX_LABELS and not _predicts_text(study):
        by_name = {kind: np.array([label == kind for label in labels], float) for kind in sorted(kinds)}
    elif study.passages[0].series is None:
        by_name = _text_marks([step for passage in study.passages for step in passage.steps])
    else:
        channels = np.concatenate([_by_step(p.series, p.rows_per_step) for p in study.passages if p.series is not None])
        names = study.passages[0].names or [say("words.channel", number=k + 1) for k in range(channels.shape[1])]
        by_name = {name: channels[:, k] for k, name in enumerate(names[:12])}
    order = -1 if direction is not None and direction.reverse else 1
    by_name[step_number()] = np.concatenate([np.arange(float(len(p.steps)))[::order] for p in study.passages])
    return {name: mark for name, mark in by_name.items() if _varies(mark)}


def _by_step(series: np.ndarray, rows_per_step: int) -> np.ndarray:
    """The mean of the rows that each step reads, (L, C)."""
    return np.asarray(series, float).reshape(-1, rows_per_step, series.shape[1]).mean(1)


def _predicts_text(study: Study) -> bool:
    """Whether the answers are tokens of the text, as for a language model."""
    first = study.passages[0]
    targets = {answer.target[0] for answer in first.answers if answer.target}
    return len(targets & set(first.steps)) > len(targets) / 2


def _text_marks(tokens: list[str]) -> dict[str, np.ndarray]:
    quoted, depth, column = False, 0, 0
    rows = []
    for token in tokens:
        line_end = token in ("\n", "↵")
        if token in ('"', "'"):
            quoted = not quoted
        depth = max(0, depth + (token in "([{") - (token in ")]}")) if len(token) == 1 else depth
        column = 0 if line_end else column + 1
        rows.append((quoted, depth > 0, column, token.isspace(), token[:1].isupper(), token.isdigit(), line_end))
    if not any(token[:1].isalpha() for token in tokens):
        return {}  # without letters, the steps are numbers, not text
    quotes, brackets, column_mark, blank, capital, digit, line_end_mark = np.array(rows, float).T
    by_name = {
        say("marks.quotes"): quotes,
        say("marks.brackets"): brackets,
        say("marks.column"): column_mark,
        say("marks.blank"): blank,
        say("marks.capital"): capital,
        say("marks.digit"): digit,
        say("marks.line_end"): line_end_mark,
    }
    if not line_end_mark.any():
        del by_name[say("marks.column")], by_name[say("marks.line_end")]
    return by_name


def _varies(mark: np.ndarray) -> bool:
    values, counts = np.unique(mark, return_counts=True)
    return len(values) > 2 or (len(values) == 2 and counts.min() >= _MIN_STEPS)


def standardized(values: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1; zeros for a constant column."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-9)
