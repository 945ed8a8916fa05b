"""The loss that is added when a part of a run's network, or a window of steps, is held at its mean."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import glassgate as gg
from glassgate.glass import bootstrap
from glassgate.glass.ablate import Editable, Held, held_in_rows, parts_held, runs_without, typical, windows_held
from glassgate.glass.study import Cause, Study, WindowCause
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.report.answers import BatchAnswers, compared
from glassgate.tasks.report.questions import LAYER, Questions

# Up to so many steps of all directions are run by the reference engine.
_SHORT = 600
# The number of windows of steps that are held, about.
_WINDOWS = 48
# Values that are held in a batch: its rows times steps times units of all gates and states.
_HELD_AT_ONCE = 10_000_000

Window = tuple[int, int]
"""The first step of a window, and the step after its last."""


class Answers(NamedTuple):
    """The answers of a passage, compared with those of the whole network: (A,) each.

    Attributes:
        losses: the loss of each answer
        right: whether it is right, or the same as before if there is no target
        others: the losses with the targets in another order
    """

    losses: np.ndarray
    right: np.ndarray
    others: np.ndarray


def causes(questions: Questions[Any], batch_of: Callable[[int, int], Batch], made: Study) -> None:
    """Add causes to a study: the effect of each part of the layers, and of each window of steps.

    Args:
        questions: the report's interface to the task
        batch_of: returns a batch with several copies of a passage, from its index and the number of copies
        made: the study, with its passages
    """
    lengths, network = [len(each.steps) for each in made.passages], questions.task.network

    def answers_of(number: int, copies: int) -> BatchAnswers:
        return questions.answered(batch_of(number, copies))

    with torch.no_grad():
        first = [answers_of(number, 1) for number in range(len(lengths))]

    def answered(number: int, copies: int = 1) -> list[Answers]:
        other = first[(number + max(1, len(first) // 2)) % len(first)]
        compared_values = compared(answers_of(number, copies), first[number], other)
        return [Answers(*row) for row in zip(*(each.double().cpu().numpy() for each in compared_values), strict=True)]

    def every(_: str = "") -> list[Answers]:
        return [answered(number)[0] for number in range(len(lengths))]

    # A loop in plain torch takes less time for a short text than the translation of a kernel that can be edited.
    short = made.starts[-1] * len(made.directions) <= _SHORT
    with gg.engine("reference") if short else nullcontext():
        places, means, rows = typical(network, every)
        whole = every()
        own = {name: place for name, place in places.items() if name.startswith(f"{LAYER}.")}
        decoder = {name: place for name, place in places.items() if name.startswith("decoder.")}
        parts = partial(parts_held, means=means, groups=4 if len(made.directions) <= 2 else 1)
        held = parts(own)
        by_part = runs_without(network, every, lambda *_: parts(decoder)) if decoder else {}
        by_part = {name: each for name, each in by_part.items() if name} | {name: [] for name in held}
        by_window: list[tuple[int, Window, Answers]] = []
        for number, length in enumerate(lengths):
            windows = {each: windows_held(own, means, each) for each in _windows(length, sum(lengths))}
            # A layer that is called once for a sequence can hold something else in each row of a batch.
            size = length if len(rows[LAYER]) == len(lengths) else None
            run = partial(_held, network, partial(answered, number), own, size)
            for name, each in zip(held, run(list(held.values())), strict=True):
                by_part[name].append(each)
            for window, each in zip(windows, run(list(windows.values())), strict=True):
                by_window.append((number, window, each))
    _fill(made, first, whole, by_part, by_window)


def _held(
    network: nn.Module,
    answered: Callable[[int], list[Answers]],
    places: Editable,
    length: int | None,
    every: Sequence[Held],
) -> Iterator[Answers]:
    """The answers of a passage for each set of held values, as many sets at once as fit into memory."""
    at_once = 1 if length is None else 1 + _HELD_AT_ONCE // (length * sum(width for *_, width in places.values()))
    for start in range(0, len(every), at_once):
        some = every[start : start + at_once]
        with held_in_rows(network, places, some, length):
            yield from answered(len(some))


def _fill(
    made: Study,
    first: Sequence[BatchAnswers],
    whole: Sequence[Answers],
    by_part: Mapping[str, Sequence[Answers]],
    by_window: Sequence[tuple[int, Window, Answers]],
) -> None:
    answers = [each for passage in made.passages for each in passage.answers]
    choices = all(each.best[0][1] is not None and each.agreement is None for each in answers)
    known = any(each.target for each in answers)
    made.unit = f"{first[0].unit} per answer"
    made.points = ("points of accuracy" if known else "points of answers kept") if choices else ""
    if known:
        made.loss = float(np.concatenate([each.others for each in whole]).mean())

    def added(without: Sequence[Answers], beside: Sequence[Answers]) -> dict[str, Any]:
        now, before = (Answers(*map(np.concatenate, zip(*each, strict=True))) for each in (without, beside))
        loss = now.losses - before.losses
        low, high = bootstrap.of_mean(loss, bootstrap.groups([len(each.losses) for each in without]))
        return {
            "loss": float(loss.mean()),
            "points": 100 * float(before.right.mean() - now.right.mean()) if choices else None,
            "low": low,
            "high": high,
            "control": float(now.others.mean() - before.others.mean()),
        }

    every = [Cause(_short(name, by_part), **added(each, whole)) for name, each in by_part.items()]
    made.causes = sorted(every, key=lambda cause: -cause.loss)
    for number, window, answer in by_window:
        made.windows.append(WindowCause(number, *window, **added([answer], [whole[number]])))


def _short(name: str, every: Iterable[str]) -> str:
    """The name of a part without the layer's name; with a decoder, it begins with its half of the network.

    Example:
        >>> _short("encoder.layer0.forward", ["encoder.layer0.forward"])
        'layer0.forward'
        >>> _short("decoder.layer.layer0.forward", ["decoder.layer.layer0.forward"])
        'decoder.layer0.forward'
    """
    if any(each.startswith("decoder.") for each in every):
        return name.replace("decoder.layer.", "decoder.")
    return name.removeprefix(f"{LAYER}.")


def _windows(length: int, total: int) -> Iterator[Window]:
    """The windows of a passage; all passages together have about `_WINDOWS`."""
    many = -(-length // max(1, -(-total // _WINDOWS)))
    yield from pairwise(round(k * length / many) for k in range(many + 1))
