"""Effects that measure correct answers, the loss when states are held at their mean, and overfitting."""

from collections.abc import Iterator, Mapping

import numpy as np

from glassgate.glass import bootstrap
from glassgate.glass.bootstrap import Interval
from glassgate.glass.effects.effect import Effect
from glassgate.glass.languages import say
from glassgate.glass.study import Answer, Cause, Study, WindowCause
from glassgate.glass.wording import capitalised, fixed, percent, place, quoted, rounded

# The minimum number of answers for an estimate of the spread.
_MIN_SPREAD_ANSWERS = 8
# The minimum number of answers for a comparison with a guess.
_MIN_ANSWERS = 20


def answers(study: Study) -> Iterator[Effect]:
    """Fraction of correct answers, or the mean F1 score of sets."""
    graded, groups = _graded_answers(study)
    if not graded:
        return
    scores, guesses = _scores(graded), _guesses(graded)
    sets = any(each.agreement is not None for each in graded)
    right = sum(bool(each.is_correct) for each in graded)
    score, total = percent(float(scores.mean())), len(graded)
    words: dict[str, object] = {
        "right": say("answers.f1", score=score)
        if sets
        else say("answers.right", right=right, total=total, score=score),
        "guess": say("answers.other_sets") if sets else say("answers.most_common", answer=_most_common(graded)),
        "guess_score": percent(float(guesses.mean())),
    }
    yield Effect(
        "answers", float(scores.mean()), lambda: bootstrap.mean_interval(scores, groups), words, float(guesses.mean())
    )


def no_better(study: Study) -> Iterator[Effect]:
    """Accuracy of the null model minus the accuracy of the network."""
    graded, groups = _graded_answers(study)
    if len(graded) >= _MIN_ANSWERS:
        lead = _guesses(graded) - _scores(graded)
        (of_answers,) = answers(study)
        yield Effect("no_better", float(lead.mean()), lambda: bootstrap.mean_interval(lead, groups), of_answers.words)


def _graded_answers(study: Study) -> tuple[list[Answer], np.ndarray]:
    """The answers with a reference, and the resampling group of each answer."""
    by_passage = [[each for each in passage.answers if each.is_correct is not None] for passage in study.passages]
    groups = bootstrap.resampling_groups([len(known) for known in by_passage])
    return [each for known in by_passage for each in known], groups


def _scores(graded: list[Answer]) -> np.ndarray:
    return np.array([float(each.is_correct or 0) if each.agreement is None else each.agreement for each in graded])


def _guesses(graded: list[Answer]) -> np.ndarray:
    """The scores of the null model: always the most common answer, or for sets the correct sets of other steps."""
    targets = [each.target[0] for each in graded if each.target]
    if all(each.agreement is None for each in graded):
        most_common = _most_common(graded)
        return np.array([float(each == most_common) for each in targets])
    half = len(targets) // 2
    moved = targets[half:] + targets[:half]
    return np.array([f1_score(set(a.split()), set(b.split())) for a, b in zip(targets, moved, strict=True)])


def _most_common(graded: list[Answer]) -> str:
    targets = [each.target[0] for each in graded if each.target]
    return max(set(targets), key=lambda each: (targets.count(each), each))


def f1_score(predicted: set[str], correct: set[str]) -> float:
    """The F1 score of a predicted set.

    Example:
        >>> f1_score({"60", "64"}, {"60", "67"}), f1_score(set(), set())
        (0.5, 1.0)
    """
    return 2 * len(predicted & correct) / (len(predicted) + len(correct)) if predicted or correct else 1.0


def direction(study: Study) -> Iterator[Effect]:
    """Increase of the loss when one of two directions is held at its mean."""
    if not study.shuffled_loss:
        return
    directions = [each for each in study.causes if each.name.endswith((".forward", ".reverse"))]
    layers = [each.name.rsplit(".", 1)[0] for each in directions]
    for each, layer in zip(directions, layers, strict=True):
        if layers.count(layer) == 2:
            words: dict[str, object] = {
                "name": each.name,
                "cost": lost_in_words(study, each),
                "loss": rounded(each.loss),
                "unit": study.unit,
            }
            yield _loss_effect(study, each.name, each, words, each.control)


def window(study: Study) -> Iterator[Effect]:
    """Increase of the loss when all states are held at their means in the most important window."""
    if not study.shuffled_loss or len(study.windows) < 4:
        return
    most = max(study.windows, key=lambda each: each.loss)
    if len(study.passages[most.passage].answers) < _MIN_SPREAD_ANSWERS:
        return
    others = [each.loss for each in study.windows if each is not most]
    passage = study.passages[most.passage]
    text = "".join(passage.steps[most.start : most.stop]).strip() if passage.series is None else ""
    words = {
        "place": capitalised(place(most.start, most.stop, most.passage if len(study.passages) > 1 else None)),
        "count": most.stop - most.start,
        "cost": lost_in_words(study, most),
        "loss": rounded(most.loss),
        "unit": study.unit,
        "text": say("words.aside", text=quoted(text[:30])) if text else "",
    }
    yield _loss_effect(study, "window", most, words, max(most.control, 2 * float(np.quantile(others, 0.75))))


def _loss_effect(study: Study, key: str, each: Cause | WindowCause, words: Mapping[str, object], null: float) -> Effect:
    """The effect of a direction or a window, as a fraction of the loss with shuffled targets."""
    scale = study.shuffled_loss or 1.0
    interval = Interval(each.low / scale, each.high / scale)
    return Effect(key, each.loss / scale, lambda: interval, words, max(0.0, null / scale))


def lost_in_words(study: Study, each: Cause | WindowCause) -> str:
    """The effect on the answers as text: the lost points of accuracy if at least one is lost, otherwise the added loss.

    Example:
        >>> study = Study("", "", [], [], unit="nats per answer", points="points of accuracy")
        >>> lost_in_words(study, Cause("layer0", 0.3352, 4.18)), lost_in_words(study, Cause("layer0", 0.3352, None))
        ('4.2 points of accuracy', '0.335 nats per answer')
    """
    loses_points = each.points is not None and each.points >= 1
    amount, unit = (fixed(each.points or 0.0, 1), study.points) if loses_points else (rounded(each.loss), study.unit)
    return say("words.amount", number=amount, unit=unit)


def overfitting(study: Study) -> Iterator[Effect]:
    """Rise of the dev loss from its best to its last value, relative to its fall before that."""
    rows = [row for row in study.training if "dev_loss" in row]
    if len(rows) < 3:
        return
    losses = np.array([row["dev_loss"] for row in rows])
    best = int(losses.argmin())
    fall, rise = float(losses[0] - losses[best]), float(losses[-1] - losses[best])
    noise = float(np.median(np.abs(np.diff(losses, 2)))) if len(losses) > 4 else 0.0
    scale = max(fall, 0.1 * float(losses[0]), 1e-9)
    words: dict[str, object] = {
        "best": rounded(losses[best]),
        "step": f"{rows[best]['step']:.0f}",
        "last": rounded(losses[-1]),
        "train": rounded(rows[-1]["train_loss"]) if "train_loss" in rows[-1] else say("words.less"),
    }
    interval = Interval((rise - noise) / scale, (rise + noise) / scale)
    yield Effect("overfitting", rise / scale, lambda: interval, words)
