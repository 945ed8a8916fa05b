"""Measures the increase of the loss while a part of the network, or a window of steps, is held at its mean."""

from collections.abc import Callable, Iterator, Sequence
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
from glassgate.glass.ablate import Editable, HeldPart, hold_in_rows, hold_parts, hold_window, measure_means
from glassgate.glass.edit import editable_values
from glassgate.glass.languages import say
from glassgate.glass.study import Cause, Study, WindowCause
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.report.task_view import LAYER, BatchAnswers, TaskView

# If all passages together have at most this many steps, summed over the directions, the reference engine runs them.
_MAX_REFERENCE_STEPS = 600
_WINDOWS = 48  # the approximate number of windows of all passages together
# The maximum number of held values in a batch: rows times steps times units of all gates and states.
_MAX_HELD_VALUES = 10_000_000


def compare(changed: BatchAnswers, whole: BatchAnswers, whole_elsewhere: BatchAnswers) -> np.ndarray:
    """Compare the answers of a changed network for N copies of a sequence with those of the whole network.

    Returns:
        three values for each answer, `(N, 3, A)`: the loss with respect to the target or, without a target, the
        prediction of the whole network; 1 if the changed network predicts it, otherwise 0; and the loss with targets
        that are exchanged between answers. The only answer of a sequence takes its target from `whole_elsewhere`
    """
    losses, right, control_losses = [], [], []
    for group, whole_group, other_group in zip(changed.groups, whole.groups, whole_elsewhere.groups, strict=True):
        rows = len(group.logs)
        references = whole_group.references[:1].expand(rows, -1)
        exchanged = references.roll(references.shape[1] // 2, 1)
        if references.shape[1] == 1:
            exchanged = other_group.references[:1, :1].expand(rows, -1)
        losses.append(group.loss(references))
        right.append(group.logs.argmax(-1) == references)
        control_losses.append(group.loss(exchanged) if group.control_losses is None else group.control_losses)
    return torch.stack([torch.cat(each, 1).double() for each in (losses, right, control_losses)], 1).cpu().numpy()


def add_causes(view: TaskView[Any], batch_of: Callable[[int, int], Batch], study: Study) -> None:
    """Add the effect of each part of the layers and of each window of steps to a study, or a note if that fails.

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

    with torch.no_grad():
        whole = [view.answers_for_batch(batch_of(index, 1)) for index in range(len(lengths))]

    def compare_passage(index: int, copies: int = 1) -> np.ndarray:
        elsewhere = whole[(index + max(1, len(whole) // 2)) % len(whole)]
        return compare(view.answers_for_batch(batch_of(index, copies)), whole[index], elsewhere)

    def compare_all() -> list[np.ndarray]:
        return [compare_passage(index)[0] for index in range(len(lengths))]

    # For a short text, a loop in plain torch takes less time than compiling a kernel that can be edited.
    short = study.starts[-1] * len(study.directions) <= _MAX_REFERENCE_STEPS
    with gg.engine("reference") if short else nullcontext():
        editable, means, rows = measure_means(network, compare_all)
        unchanged = compare_all()
        effect = _effect(study, whole, unchanged)
        encoder_values = {name: each for name, each in editable.items() if name.startswith(f"{LAYER}.")}
        decoder_values = {name: each for name, each in editable.items() if name.startswith("decoder.")}
        groups = 4 if len(study.directions) <= 2 else 1
        by_part: dict[str, list[np.ndarray]] = {}
        for name, held_part in hold_parts(decoder_values, means, groups).items():
            with hold_in_rows(network, decoder_values, [held_part], None):
                by_part[name] = compare_all()
        held_parts = hold_parts(encoder_values, means, groups)
        by_part |= {name: [] for name in held_parts}
        for index, length in enumerate(lengths):
            # If the layer is called only once per sequence, the rows of a batch can hold different values.
            held_length = length if len(rows[LAYER]) == len(lengths) else None
            run = partial(_run_held, network, partial(compare_passage, index), encoder_values, held_length)
            for name, comparison in zip(held_parts, run(list(held_parts.values())), strict=True):
                by_part[name].append(comparison)
            windows = list(_windows(length, sum(lengths)))
            held_windows = [hold_window(encoder_values, means, each) for each in windows]
            for window, comparison in zip(windows, run(held_windows), strict=True):
                study.windows.append(WindowCause(index, *window, **effect([comparison], [unchanged[index]])))

    def short_name(name: str) -> str:  # without a decoder, the name of the encoder is left out
        return name.replace("decoder.layer.", "decoder.") if decoder_values else name.removeprefix(f"{LAYER}.")

    causes = [Cause(short_name(name), **effect(each, unchanged)) for name, each in by_part.items()]
    study.causes = sorted(causes, key=lambda cause: -cause.loss)


def _run_held(
    network: nn.Module,
    compare_copies: Callable[[int], np.ndarray],
    editable: Editable,
    length: int | None,
    held_sets: Sequence[HeldPart],
) -> Iterator[np.ndarray]:
    """Yield the comparison of a passage for each set of held values. Each row of a batch uses one set.

    `length` is the number of steps of the passage; None if all rows of a batch must use the same set.
    """
    rows = 1 if length is None else 1 + _MAX_HELD_VALUES // (length * sum(width for *_, width in editable.values()))
    for start in range(0, len(held_sets), rows):
        batch = held_sets[start : start + rows]
        with hold_in_rows(network, editable, batch, length):
            yield from compare_copies(len(batch))


def _effect(
    study: Study, whole: Sequence[BatchAnswers], unchanged: Sequence[np.ndarray]
) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], dict[str, Any]]:
    """Set the units of a study. Return a function of the comparisons with and without a held part to its effect."""
    answers = [each for passage in study.passages for each in passage.answers]
    are_choices = all(each.best[0][1] is not None and each.agreement is None for each in answers)
    have_targets = any(each.target for each in answers)
    study.unit = say("causes.per_answer", unit=whole[0].unit)
    points = say("causes.points_of_accuracy") if have_targets else say("causes.points_kept")
    study.points = points if are_choices else ""
    if have_targets:
        study.shuffled_loss = float(np.concatenate(unchanged, 1)[2].mean())

    def effect(with_held: Sequence[np.ndarray], without: Sequence[np.ndarray]) -> dict[str, Any]:
        (losses, right, controls), before = (np.concatenate(each, 1) for each in (with_held, without))
        loss = losses - before[0]
        low, high = bootstrap.mean_interval(loss, bootstrap.resampling_groups([each.shape[1] for each in with_held]))
        return {
            "loss": float(loss.mean()),
            "points": 100 * float(before[1].mean() - right.mean()) if are_choices else None,
            "low": low,
            "high": high,
            "control": float(controls.mean() - before[2].mean()),
        }

    return effect


def _windows(length: int, total: int) -> Iterator[tuple[int, int]]:
    """The windows of a passage; passages with `total` steps have about `_WINDOWS` windows together."""
    count = -(-length // max(1, -(-total // _WINDOWS)))
    yield from pairwise(round(k * length / count) for k in range(count + 1))
