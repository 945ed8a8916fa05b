"""Measures the increase of the loss while a part of the network, or a window of steps, is held at its mean."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

import glassgate as gg
from glassgate.dynamics.explanations import NotTraceable
from glassgate.glass import bootstrap
from glassgate.glass.ablate import (
    Editable,
    HeldPart,
    hold_in_rows,
    hold_parts,
    hold_window,
    measure_means,
)
from glassgate.glass.edit import editable_values
from glassgate.glass.languages import say
from glassgate.glass.study import Cause, Study, WindowCause
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.report.answers import BatchAnswers, Comparison, compare
from glassgate.tasks.report.task_view import LAYER, TaskView

# If all passages together have at most this many steps, summed over the directions, the reference engine runs them.
_MAX_REFERENCE_STEPS = 600
_WINDOWS = 48  # the approximate number of windows of all passages together
# The maximum number of held values in a batch: rows times steps times units of all gates and states.
_MAX_HELD_VALUES = 10_000_000

Window = tuple[int, int]
"""The first step of a window, and the step after its last."""


def add_causes(view: TaskView[Any], batch_of: Callable[[int, int], Batch], study: Study) -> None:
    """Add causes to a study: the effect of each part of the layers, and of each window of steps.

    If values of a cell cannot be held, a note of the study has the reason.

    Args:
        view: the report's view of the task
        batch_of: returns a batch with several copies of a passage, from its index and the number of copies
        study: the study, with its passages
    """
    lengths, network = [len(each.steps) for each in study.passages], view.task.network
    try:
        editable_values(network)
    except NotTraceable as error:
        study.notes.append(say("causes.not_editable", reason=error))
        return

    def answers_of(index: int, copies: int) -> BatchAnswers:
        return view.answers_for_batch(batch_of(index, copies))

    with torch.no_grad():
        whole = [answers_of(index, 1) for index in range(len(lengths))]

    def compare_passage(index: int, copies: int = 1) -> list[Comparison]:
        elsewhere = whole[(index + max(1, len(whole) // 2)) % len(whole)]
        return compare(answers_of(index, copies), whole[index], elsewhere)

    def compare_all() -> list[Comparison]:
        return [compare_passage(index)[0] for index in range(len(lengths))]

    # For a short text, a loop in plain torch takes less time than compiling a kernel that can be edited.
    short = study.starts[-1] * len(study.directions) <= _MAX_REFERENCE_STEPS
    with gg.engine("reference") if short else nullcontext():
        editable, means, rows = measure_means(network, compare_all)
        unchanged = compare_all()
        encoder_values = {name: each for name, each in editable.items() if name.startswith(f"{LAYER}.")}
        decoder_values = {name: each for name, each in editable.items() if name.startswith("decoder.")}
        hold = partial(hold_parts, means=means, groups=4 if len(study.directions) <= 2 else 1)
        held_parts = hold(encoder_values)
        by_part: dict[str, list[Comparison]] = {}
        for name, held_part in hold(decoder_values).items():
            with hold_in_rows(network, decoder_values, [held_part], None):
                by_part[name] = compare_all()
        by_part |= {name: [] for name in held_parts}
        by_window: list[tuple[int, Window, Comparison]] = []
        for index, length in enumerate(lengths):
            held_windows = {each: hold_window(encoder_values, means, each) for each in _windows(length, sum(lengths))}
            # If the layer is called only once per sequence, the rows of a batch can hold different values.
            held_length = length if len(rows[LAYER]) == len(lengths) else None
            run = partial(_run_held, network, partial(compare_passage, index), encoder_values, held_length)
            for name, comparison in zip(held_parts, run(list(held_parts.values())), strict=True):
                by_part[name].append(comparison)
            for window, comparison in zip(held_windows, run(list(held_windows.values())), strict=True):
                by_window.append((index, window, comparison))
    _fill(study, whole, unchanged, by_part, by_window)


def _run_held(
    network: nn.Module,
    compare_copies: Callable[[int], list[Comparison]],
    editable: Editable,
    length: int | None,
    held_sets: Sequence[HeldPart],
) -> Iterator[Comparison]:
    """Yield the comparison of a passage for each set of held values. Each row of a batch uses one set.

    Args:
        length: the number of steps of the passage; None if all rows of a batch must use the same set
    """
    rows = 1 if length is None else 1 + _MAX_HELD_VALUES // (length * sum(width for *_, width in editable.values()))
    for start in range(0, len(held_sets), rows):
        batch = held_sets[start : start + rows]
        with hold_in_rows(network, editable, batch, length):
            yield from compare_copies(len(batch))


def _fill(
    study: Study,
    whole: Sequence[BatchAnswers],
    unchanged: Sequence[Comparison],
    by_part: Mapping[str, Sequence[Comparison]],
    by_window: Sequence[tuple[int, Window, Comparison]],
) -> None:
    answers = [each for passage in study.passages for each in passage.answers]
    are_choices = all(each.best[0][1] is not None and each.agreement is None for each in answers)
    have_targets = any(each.target for each in answers)
    study.unit = say("causes.per_answer", unit=whole[0].unit)
    points = say("causes.points_of_accuracy") if have_targets else say("causes.points_kept")
    study.points = points if are_choices else ""
    if have_targets:
        study.shuffled_loss = float(np.concatenate([each.control_losses for each in unchanged]).mean())

    def effect(with_held: Sequence[Comparison], without: Sequence[Comparison]) -> dict[str, Any]:
        held, base = (Comparison(*map(np.concatenate, zip(*each, strict=True))) for each in (with_held, without))
        loss = held.losses - base.losses
        low, high = bootstrap.mean_interval(loss, bootstrap.resampling_groups([len(each.losses) for each in with_held]))
        return {
            "loss": float(loss.mean()),
            "points": 100 * float(base.right.mean() - held.right.mean()) if are_choices else None,
            "low": low,
            "high": high,
            "control": float(held.control_losses.mean() - base.control_losses.mean()),
        }

    causes = [Cause(_short_name(name, by_part), **effect(each, unchanged)) for name, each in by_part.items()]
    study.causes = sorted(causes, key=lambda cause: -cause.loss)
    for index, window, comparison in by_window:
        study.windows.append(WindowCause(index, *window, **effect([comparison], [unchanged[index]])))


def _short_name(name: str, all_names: Iterable[str]) -> str:
    """The name of a part, without the name of the encoder unless the network has a decoder.

    Example:
        >>> _short_name("encoder.layer0.forward", ["encoder.layer0.forward"])
        'layer0.forward'
        >>> _short_name("decoder.layer.layer0.forward", ["decoder.layer.layer0.forward"])
        'decoder.layer0.forward'
    """
    if any(each.startswith("decoder.") for each in all_names):
        return name.replace("decoder.layer.", "decoder.")
    return name.removeprefix(f"{LAYER}.")


def _windows(length: int, total: int) -> Iterator[Window]:
    """The windows of a passage; passages with `total` steps have about `_WINDOWS` windows together."""
    count = -(-length // max(1, -(-total // _WINDOWS)))
    yield from pairwise(round(k * length / count) for k in range(count + 1))
