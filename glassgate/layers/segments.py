"""Gradient checkpointing over time: a call in about sqrt(L) segments, which the backward pass recomputes."""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from glassgate.engines.choose import engine, requested_engine
from glassgate.engines.choose import run as run_layer
from glassgate.engines.contract import Direction, Result, Steps


def run(steps: Steps, directions: list[Direction], all_states: bool) -> list[Result]:
    """`choose.run`, but only the states between the segments are saved for the backward pass."""
    return [_run(steps, direction, all_states) for direction in directions]


def _run(steps: Steps, direction: Direction, all_states: bool) -> Result:
    segments = list(_segments(steps, len(direction.initial[0])))
    results: list[tuple[Tensor, ...]] = [()] * len(segments)
    count, state = len(direction.initial) if all_states else 1, direction.initial
    order = range(len(segments))
    for k in reversed(order) if direction.reverse else order:
        rows, sizes = segments[k]
        part = Steps(steps.data[rows], sizes, None if steps.resets is None else steps.resets[rows])
        per_step = direction.cell.noise
        noise = {name: v[rows] if per_step[name].per_step else v for name, v in direction.noise.items()}
        restart = () if steps.resets is None else direction.restart or direction.initial
        segment = direction._replace(noise=noise, restart=restart)
        flat = checkpoint(
            _run_segment,
            requested_engine(),
            part,
            segment,
            all_states,
            state,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        results[k], state = flat[:count], flat[count:]
    return Result(tuple(torch.cat(parts) for parts in zip(*results, strict=True)), state)


def _run_segment(
    name: str, steps: Steps, direction: Direction, all_states: bool, state: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Run one segment on the engine that was requested at its first run, also when it is recomputed."""
    with engine(name):
        (result,) = run_layer(steps, [direction._replace(initial=state)], all_states)
    return *(result.states if all_states else result.states[:1]), *result.final


def _segments(steps: Steps, N: int) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield the rows of each segment and its batch sizes (None if all are N); the last one includes padding."""
    S, sizes = steps.data.shape[0], steps.batch_sizes
    length = S // max(N, 1) if sizes is None else len(sizes)
    many = max(1, math.isqrt(length))
    starts = [0, *(range(many, length, many)), length]
    for first, last in pairwise(starts):
        if sizes is None:
            yield slice(first * N, last * N), None
        else:
            begin, end = int(sizes[:first].sum()), S if last == length else int(sizes[:last].sum())
            yield slice(begin, end), sizes[first:last]
