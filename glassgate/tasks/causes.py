"""What the parts of a run's network are worth for its answers, and each window of steps: held at their means."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

import glassgate as gg
from glassgate.glass.ablate import Held, Places, held_in_rows, parts_held, runs_without, typical, windows_held
from glassgate.glass.study import Cause, Lapse, Study
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.seen import Seen, compared
from glassgate.tasks.task import Task

# So many steps of all directions are run by the reference engine.
_SHORT = 600
# About so many windows of steps are held.
_WINDOWS = 48
# Numbers that are held in a batch: its rows times steps times units of all gates and states.
_HELD_AT_ONCE = 10_000_000

Window = tuple[int, int]
"""From a step to before another."""


class Compared(NamedTuple):
    """Answers of a passage beside those of the whole network: how much each misses, and whether it is right."""

    losses: np.ndarray
    right: np.ndarray


def causes(task: Task[Any, Any, Any], batch_of: Callable[[int, int], Batch], made: Study, layer: str) -> None:
    """Fill in what each part of the layer is worth, and of a decoder, and each window of the layer's steps.

    Args:
        task: with its network
        batch_of: from a passage's number and a count of copies to a batch
        made: the study, with its passages
        layer: the layer's name in the network
    """
    lengths = [len(each.steps) for each in made.passages]

    def seen(number: int, copies: int) -> Seen:
        batch = batch_of(number, copies)
        return task.see(task.look(task.network, batch), batch)

    with torch.no_grad():
        first = [seen(number, 1) for number in range(len(lengths))]

    def answered(number: int, copies: int = 1) -> list[Compared]:
        losses, right = (each.double().cpu().numpy() for each in compared(seen(number, copies), first[number]))
        return [Compared(*row) for row in zip(losses, right, strict=True)]

    def every(_: str = "") -> list[Compared]:
        return [answered(number)[0] for number in range(len(lengths))]

    # A loop in plain torch takes less time for a short text than the translation of a kernel that can be edited.
    short = made.starts[-1] * len(made.directions) <= _SHORT
    with gg.engine("reference") if short else nullcontext():
        places, means, rows = typical(task.network, every)
        whole = every()
        own = {name: place for name, place in places.items() if name.startswith(f"{layer}.")}
        decoder = {name: place for name, place in places.items() if name.startswith("decoder.")}
        parts = partial(parts_held, means=means, groups=4 if len(made.directions) <= 2 else 1)
        held = parts(own)
        found = runs_without(task.network, every, lambda *_: parts(decoder)) if decoder else {}
        found = {name: each for name, each in found.items() if name} | {name: [] for name in held}
        lapses: list[tuple[int, Window, Compared]] = []
        for number, length in enumerate(lengths):
            windows = {each: windows_held(own, means, each) for each in _windows(length, sum(lengths))}
            # A layer that is called once for a sequence can hold something else in each row of a batch.
            size = length if len(rows[layer]) == len(lengths) else None
            run = partial(_held, task, partial(answered, number), own, size)
            for name, each in zip(held, run(list(held.values())), strict=True):
                found[name].append(each)
            for window, each in zip(windows, run(list(windows.values())), strict=True):
                lapses.append((number, window, each))
    _fill(made, first, layer, whole, found, lapses)


def _held(
    task: Task[Any, Any, Any],
    answered: Callable[[int], list[Compared]],
    places: Places,
    length: int | None,
    every: Sequence[Held],
) -> Iterator[Compared]:
    """The answers of a passage with each of these held, as many at once as memory has room for."""
    at_once = 1 if length is None else 1 + _HELD_AT_ONCE // (length * sum(width for *_, width in places.values()))
    for start in range(0, len(every), at_once):
        some = every[start : start + at_once]
        with held_in_rows(task.network, places, some, length):
            yield from answered(len(some))


def _fill(
    made: Study,
    first: Sequence[Seen],
    layer: str,
    whole: Sequence[Compared],
    found: Mapping[str, Sequence[Compared]],
    lapses: Sequence[tuple[int, Window, Compared]],
) -> None:
    answers = [each for passage in first for each in passage.answers]
    known = all(each.best[0].probability is not None for each in answers)
    points = "points of accuracy" if any(each.target for each in answers) else "points of answers kept"
    made.unit, made.points = f"{first[0].unit} an answer", points if known else ""

    def worth(without: Sequence[Compared], beside: Sequence[Compared]) -> tuple[float, float | None]:
        now, before = (Compared(*map(np.concatenate, zip(*each, strict=True))) for each in (without, beside))
        lost = 100 * float(before.right.mean() - now.right.mean())
        return float(now.losses.mean() - before.losses.mean()), lost if known else None

    every = [Cause(name.removeprefix(f"{layer}."), *worth(each, whole)) for name, each in found.items()]
    made.causes = sorted(every, key=lambda cause: -cause.loss)
    for number, (start, stop), answer in lapses:
        loss, lost = worth([answer], [whole[number]])
        made.lapses.append(Lapse(number, start, stop, loss, lost))


def _windows(length: int, total: int) -> Iterator[Window]:
    """A passage divided so that all passages have about so many windows as a page shows."""
    many = -(-length // max(1, -(-total // _WINDOWS)))
    yield from pairwise(round(k * length / many) for k in range(many + 1))
