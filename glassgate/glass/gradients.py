"""Gradients of the answers with respect to the states and inputs of each step, for the report."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from glassgate.glass.languages import say
from glassgate.glass.measures import lags
from glassgate.glass.recorded import Recorded, Watch
from glassgate.glass.study import AnswerValues, Connections, Flow, Study

# The maximum number of steps in a batch of copies of a sequence.
_MAX_STEPS_AT_ONCE = 60_000
# The maximum number of answers of a passage that are differentiated.
MAX_ANSWERS = 240
# The maximum number of answers that are differentiated with the weights before training.
MAX_INITIAL_ANSWERS = 60
# The largest lag of a curve.
_MAX_LAG = 200
# A gradient has vanished if its norm is below this fraction of its norm at lag 0.
VANISHED = 0.01


class Curve(NamedTuple):
    """Gradient norms of one state by lag, for one answer.

    Attributes:
        norms: the norms by lag. Lag 0 is the step that the answer reads. Higher lags are earlier steps in the order of
            the direction
        later_norms: the norms at lag 0 and at later steps in the order of the direction. At later steps, they are zero
            except in lower layers of a bidirectional stack
        direct_path: the norms along the direct path, from each state to its next value without the recurrent weights;
            None for a cell without such a path
        one_step: whether the answer reads only one step
    """

    norms: np.ndarray
    later_norms: np.ndarray
    direct_path: np.ndarray | None
    one_step: bool


Curves = defaultdict[str, list[Curve]]
"""The curves of each state, by its direction and name."""


def differentiate(
    study: Study,
    network: nn.Module,
    initial: nn.Module | None,
    answer_values: AnswerValues,
    layer: str,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Compute the connections and the gradient flow of a study.

    A batch has one row per answer, so that one backward pass differentiates all of them.

    Args:
        study: receives the connections and the flow
        network: the trained network
        initial: the network with its weights before training, or None
        answer_values: runs a network on copies of a passage and returns the values of the answers
        layer: the name of the layer that the study shows
        tick: called after each backward pass
    """
    after, before = Curves(list), Curves(list)
    for passage_index, passage in enumerate(study.passages):
        chosen = evenly_spaced(len(passage.answers), max_answers(len(passage.steps), len(study.passages)))
        matrix = []
        at_once = max(1, _MAX_STEPS_AT_ONCE // len(passage.steps))
        for start in range(0, len(chosen), at_once):
            batch = chosen[start : start + at_once]
            tape, contributions = _backward(network, answer_values, passage_index, batch, layer)
            matrix.append(contributions)
            _collect(tape, study, [passage_index] * len(batch), after, layer)
            tick()
        if initial is not None:
            batch = [chosen[k] for k in evenly_spaced(len(chosen), MAX_INITIAL_ANSWERS)]
            tape, _ = _backward(initial, answer_values, passage_index, batch, layer)
            _collect(tape, study, [passage_index] * len(batch), before, layer)
            tick()
        study.connections.append(Connections(chosen, np.concatenate(matrix)))
    _fill(study, after, before)


def flow_from_backward(study: Study, tape: Recorded) -> None:
    """Compute the gradient flow from the gradients that a `backward()` call has left in a recording."""
    collected = Curves(list)
    _collect(tape, study, range(len(study.passages)), collected)
    _fill(study, collected, Curves(list))
    study.differentiated = say("quantity.loss")


def max_answers(length: int, passages: int) -> int:
    """The maximum number of answers of a passage that are differentiated."""
    return max(1, min(MAX_ANSWERS, 2 * _MAX_STEPS_AT_ONCE // length, max(8, 1600 // passages)))


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` evenly spaced indices below `count`, including the last one.

    Example:
        >>> evenly_spaced(5, 9), evenly_spaced(9, 3)
        ([0, 1, 2, 3, 4], [2, 5, 8])
    """
    if count <= most:
        return list(range(count))
    return sorted({round((k + 1) * count / most) - 1 for k in range(most)})


def vanishing_lag(curve_lags: Sequence[int], curve: np.ndarray, fraction: float = VANISHED) -> int | None:
    """The first lag at which a gradient is below a fraction of its norm at lag 0. None if it stays above."""
    start = curve[0]
    if not start or not math.isfinite(start):
        return None
    return next((k for k, value in zip(curve_lags, curve, strict=True) if value < fraction * start), None)


def _backward(
    network: nn.Module, answer_values: AnswerValues, passage_index: int, chosen: list[int], layer: str
) -> tuple[Recorded, np.ndarray]:
    """Run a backward pass in which row b differentiates answer `chosen[b]`.

    Returns:
        The recording, and gradient times input for each step, (B, L).
    """
    with torch.enable_grad(), Watch(network, Recorded(first=True)) as tape:
        rows = answer_values(network, passage_index, len(chosen))
    call = next(call for label, call, _ in tape.directions() if label.startswith(f"{layer}."))
    answers = rows[torch.arange(len(chosen)), torch.tensor(chosen, device=rows.device)]
    grad = call.input_gradient(answers.sum())
    assert grad is not None, "an answer is computed from the input"
    contributions = call.layout.by_step((grad * call.steps.data.detach()).sum(-1, keepdim=True))[..., 0]
    return tape, np.asarray(contributions.T.float().cpu())


def _collect(tape: Recorded, study: Study, passages: Sequence[int], collected: Curves, layer: str = "") -> None:
    """Add the gradient norms of a backward pass to the curves of each state.

    Args:
        passages: the index of the passage of each row of the batch
        layer: the name of the layer that the study shows
    """
    grads = tape.grad
    retained = {f"{each.label}.{name}": value for each in study.directions for name, value in each.retained.items()}
    for label, call, index in tape.directions():
        part, short = call.layer.glassgate.parts[index], label.removeprefix(f"{layer}.") if layer else label
        steps = min(len(study.passages[passage].steps) for passage in passages)
        if (layer and short == label) or call.layout.length < steps:
            continue
        origins = _origins(tape, label)
        for name in call.layer.cell.state:
            grad = grads.get(f"{label}.{name}")
            if grad is None:
                continue
            grad = grad.detach().reshape(*grad.shape[:2], -1).cpu()
            norms = grad.norm(dim=-1).numpy()
            retained_by_step, direct = retained.get(f"{short}.{name}", (None, False))
            for row, passage in enumerate(passages):
                at, one_step = origins[row]
                if at is None:
                    continue
                row_norms = norms[: len(study.passages[passage].steps), row]
                earlier, later = row_norms[: at + 1][::-1], row_norms[at:]
                if part.direction:
                    earlier, later = later, earlier
                direct_path = None
                if retained_by_step is not None and direct:
                    start = study.starts[passage]
                    path = retained_by_step[start : start + len(row_norms)]
                    path = (path[at:] if part.direction else path[: at + 1][::-1])[: _MAX_LAG + 1]
                    carried = np.cumprod(np.vstack([np.ones_like(path[:1]), path[:-1]]), 0) * grad[at, row].numpy()
                    direct_path = np.linalg.norm(carried, axis=-1)
                collected[f"{short}.{name}"].append(Curve(earlier, later, direct_path, one_step))


def _origins(tape: Recorded, label: str) -> list[tuple[int | None, bool]]:
    """For each row, the step from which lags are counted, and whether the answer reads only this step.

    An answer reads the directions of the highest layer. Lag 0 is the step that the answer reads from the same direction
    of that layer. If the answer does not read this direction, lag 0 is the step that it reads from the other
    direction. If the answer reads several steps, lag 0 is the last of them in the order of the direction.
    """
    call, index = tape.call_of(label)
    parts = call.layer.glassgate.parts
    prefix = label.removesuffix(parts[index].label)
    top = [part for part in parts if part.layer == parts[-1].layer]
    top.sort(key=lambda part: part.direction != parts[index].direction)
    reads = [tape.steps_with_gradient(f"{prefix}{part.label}").cpu().numpy() for part in top]
    origins: list[tuple[int | None, bool]] = []
    for row in range(reads[0].shape[1]):
        steps = next((np.flatnonzero(each[:, row]) for each in reads if each[:, row].any()), None)
        if steps is None:
            origins.append((None, False))
        else:
            origins.append((int(steps[0 if parts[index].direction else -1]), len(steps) == 1))
    return origins


def _fill(study: Study, after: Curves, before: Curves) -> None:
    """Set the gradient flow of each state from its curves after and before training."""
    for direction in study.directions:
        for name in direction.states:
            key = f"{direction.label}.{name}"
            if after[key]:
                direction.flow[name] = _flow(after[key], before[key])


def _flow(after: list[Curve], before: list[Curve]) -> Flow:
    is_later = max(len(each.norms) for each in after) == 1
    norms, initial = ([each.later_norms if is_later else each.norms for each in curves] for curves in (after, before))
    longest = min(max(map(len, rows)) - 1 for rows in (norms, initial) if rows)
    chosen = [k for k in lags(max(1, min(_MAX_LAG, longest))) if k <= longest]

    def at_lags(rows: list[np.ndarray]) -> np.ndarray:
        return np.array([[each[k] if len(each) > k else np.nan for k in chosen] for each in rows], np.float64)

    paths = [each.direct_path for each in after if each.direct_path is not None]
    direct_path = np.asarray(np.nanmedian(at_lags(paths), axis=0)) if paths and not is_later else None
    one_step = all(each.one_step for each in after)
    return Flow(chosen, at_lags(norms), at_lags(initial) if initial else None, direct_path, one_step)
