"""Gradient checkpointing over time, for `recompute=True`.

The steps are divided into about sqrt(L) segments. Only the states between segments are saved. The backward pass
computes the other states again.
"""

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
    """Run the directions of a layer as `choose.run` does, but save only the states between segments for `backward`."""
    return [_run_direction(steps, direction, all_states) for direction in directions]


def _run_direction(steps: Steps, direction: Direction, all_states: bool) -> Result:
    segments = list(_segments(steps, len(direction.initial[0])))
    results: list[tuple[Tensor, ...]] = [()] * len(segments)
    output_count, states = len(direction.initial) if all_states else 1, direction.initial
    order = range(len(segments))
    for k in reversed(order) if direction.reverse else order:
        rows, sizes = segments[k]
        segment = Steps(steps.data[rows], sizes, None if steps.resets is None else steps.resets[rows])
        declared = direction.cell.noise
        noise = {name: v[rows] if declared[name].per_step else v for name, v in direction.noise.items()}
        restart = () if steps.resets is None else direction.restart or direction.initial
        segment_direction = direction._replace(noise=noise, restart=restart)
        flat = checkpoint(
            _run_segment,
            requested_engine(),
            segment,
            segment_direction,
            all_states,
            states,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        results[k], states = flat[:output_count], flat[output_count:]
    return Result(tuple(torch.cat(tensors) for tensors in zip(*results, strict=True)), states)


def _run_segment(
    engine_name: str, steps: Steps, direction: Direction, all_states: bool, states: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Run one segment from the given states, on the engine that was requested for the call.

    The backward pass runs it again on the same engine.
    """
    with engine(engine_name):
        (result,) = run_layer(steps, [direction._replace(initial=states)], all_states)
    return *(result.states if all_states else result.states[:1]), *result.final


def _segments(steps: Steps, N: int) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield the rows of each segment and its batch sizes (None if all are N).

    The last segment includes the padding after the last step.
    """
    S, sizes = steps.data.shape[0], steps.batch_sizes
    length = S // max(N, 1) if sizes is None else len(sizes)
    segment_length = max(1, math.isqrt(length))
    bounds = [0, *(range(segment_length, length, segment_length)), length]
    for start, stop in pairwise(bounds):
        if sizes is None:
            yield slice(start * N, stop * N), None
        else:
            first_row, end_row = int(sizes[:start].sum()), S if stop == length else int(sizes[:stop].sum())
            yield slice(first_row, end_row), sizes[start:stop]
