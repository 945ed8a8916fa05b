"""The walk over a stack: the input of each level, the merging of its directions, and its residual connections.

Everything that runs, exports, draws or analyses a stack reads this walk.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import torch

from glassgate.layers.parts import Part

T = TypeVar("T")


class Level(NamedTuple):
    """One of the `num_layers` levels of a stack. It consists of one or two parts, one per direction."""

    depth: int
    """The index of the level, from 0."""
    parts: tuple[Part, ...]
    start: int
    """The index of its first part among all parts of the stack."""
    merge: str
    """How the outputs of two directions are combined: "concat", "sum", "mean" or "none"."""
    widths: tuple[int, ...]
    """The width of each output: one per direction for "none", otherwise one."""
    residual: tuple[bool, ...]
    """For each output, whether the input of the level is added to it."""


def levels_of(parts: Sequence[Part], merge: str, residual: bool) -> tuple[Level, ...]:
    """Return the levels of a stack, from the first to the last.

    Args:
        parts: the parts of the stack, in torch's order.
        merge, residual: the options of `Recurrent`.
    """
    levels, below = list[Level](), tuple[int, ...]()
    for depth in range(parts[-1].layer + 1):
        own = tuple([part for part in parts if part.layer == depth])
        widths = tuple([next(iter(part.widths.values())) for part in own])
        if len(own) > 1 and merge != "none":
            widths = (sum(widths),) if merge == "concat" else widths[:1]
        adds = tuple([residual and k < len(below) and below[k] == width for k, width in enumerate(widths)])
        levels.append(Level(depth, own, len(own) * depth, merge, widths, adds))
        below = widths
    return tuple(levels)


def by_level(levels: Sequence[Level], items: Sequence[T]) -> Iterator[tuple[Level, Sequence[T]]]:
    """Yield each level with its items. `items` has one item per part of the stack, or is empty."""
    for level in levels:
        yield level, items[level.start : level.start + len(level.parts)]


class Operations(NamedTuple):
    """The operations that combine the outputs of a level, for one type of values."""

    concat: Callable[[Sequence[Any]], Any]
    """Concatenates along the last axis."""
    add: Callable[[Any, Any], Any]
    halve: Callable[[Any], Any]


TENSORS = Operations(partial(torch.cat, dim=-1), operator.add, lambda total: total / 2)
"""The operations on tensors."""


def walk(
    levels: Sequence[Level],
    data: T,
    run: Callable[[Level, list[T]], Sequence[T]],
    operations: Operations = TENSORS,
) -> list[T]:
    """Run a stack, level by level. Return the outputs of the last level.

    Args:
        levels: the levels of the stack.
        data: the input of the first level.
        run: takes a level and its inputs: one, or one per direction if directions are not merged. Returns the output of
            each direction.
        operations: the operations on the values that pass through the stack.
    """
    values = [data]
    for level in levels:
        values = combine(level, values, run(level, values), operations)
    return values


def combine(level: Level, inputs: Sequence[T], outputs: Sequence[T], operations: Operations = TENSORS) -> list[T]:
    """Merge the outputs of the directions of a level, and add its inputs in residual connections."""
    merge = merge_of(level, operations)
    merged = outputs if merge is None else [merge(outputs)]
    return [operations.add(v, inputs[k]) if level.residual[k] else v for k, v in enumerate(merged)]


def merge_of(level: Level, operations: Operations = TENSORS) -> Callable[[Sequence[Any]], Any] | None:
    """Return the function that merges the outputs of the two directions of a level; None if they are not merged."""
    if len(level.parts) == 1 or level.merge == "none":
        return None
    if level.merge == "concat":
        return operations.concat
    total = partial(reduce, operations.add)
    return total if level.merge == "sum" else lambda outputs: operations.halve(total(outputs))
