"""The shapes of a cell's values in a layer, from the axes that the cell declares (`cell_axes.py`)."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import torch

from glassgate.cell_axes import FEATURES, PROJECTED, UNITS, Axes, Declaration, Shape


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of a cell's values within a row, for one input size and one hidden size.

    Attributes:
        sizes: the size of each axis by name.
        gates, state, inputs: the shape of each gate, state and block of the input, by name.
    """

    sizes: Mapping[str, int]
    gates: Mapping[str, Shape]
    state: Mapping[str, Shape]
    inputs: Mapping[str, Shape]
    declaration: Declaration

    @property
    def features(self) -> int:
        """The width of the first block of the input, which the gates multiply."""
        first = next(iter(self.inputs.values()), None)
        return self.sizes[FEATURES] if first is None else prod(first)

    @property
    def input_size(self) -> int:
        """The width of the input, with all of its blocks."""
        return sum(map(prod, self.inputs.values())) or self.features

    def of(self, axes: Axes) -> Shape:
        """The shape of a value with these axes."""
        return tuple(axis if isinstance(axis, int) else self.sizes[axis] for axis in axes)

    def rows(self, half: str) -> list[int]:
        """The number of rows of each gate in the weights of x or h, in order."""
        return [prod(self.gates[name]) for name in self.declaration.gates_that_read(half)]


def shapes_of(cell: Any, input_size: int, hidden_size: int, proj_size: int = 0) -> Shapes:
    """Return the shapes of the values of a cell that declares axes.

    The size of an axis is the attribute of the cell with its name. One axis of the output may have no attribute: its
    size follows from the hidden size. `units` is the hidden size, and `features` the width of the first block of
    the input. With a projection, the output has the axis `projected`.

    Raises:
        ValueError: a size is missing, or does not fit the hidden size or the input size.
    """
    return _projected(_find_shapes(*_key(cell), input_size, None, hidden_size), proj_size)


def shapes_from_weights(cell: Any, weights: Mapping[str, Any], hidden_size: int) -> Shapes:
    """Return the shapes of the values of a cell in a layer with these parameters."""
    shapes = _find_shapes(*_key(cell), None, int(weights["weight_ih"].shape[1]), hidden_size)
    return _projected(shapes, proj_size_of(weights))


def proj_size_of(weights: Mapping[str, Any]) -> int:
    """Return the width of the projection of a layer, from its parameters; 0 without a projection."""
    return int(weights["weight_hr"].shape[0]) if "weight_hr" in weights else 0


def _projected(shapes: Shapes, proj_size: int) -> Shapes:
    """The shapes with a projected output."""
    if not proj_size:
        return shapes
    output, declared = next(iter(shapes.state)), shapes.declaration.state
    return replace(
        shapes,
        sizes={**shapes.sizes, PROJECTED: proj_size},
        state={**shapes.state, output: (proj_size,)},
        declaration=replace(
            shapes.declaration, state={**declared, output: replace(declared[output], axes=(PROJECTED,))}
        ),
    )


def state_shapes(cell: Any, input_size: int, hidden_size: int, proj_size: int = 0) -> dict[str, Shape]:
    """Return the shape of each state within a row as in `hx`, where the output is flat."""
    shapes: dict[str, Shape] = dict.fromkeys(cell.state, (hidden_size,))
    if cell.declaration is not None:
        shapes = {**shapes_of(cell, input_size, hidden_size, proj_size).state}
    return shapes | {cell.state[0]: (proj_size or hidden_size,)}


def example_sizes(cell: Any, features: int = 4, units: int = 6) -> tuple[int, int]:
    """Return the input size and hidden size of a small layer of the cell.

    Args:
        cell: the cell.
        features: the input size, or the size of the axis of the input that follows from it.
        units: the number of units per head, or the size of the axis of the output that follows from the hidden size.
    """
    if cell.declaration is None:
        return features, units * cell.heads
    output = next(iter(cell.declaration.state.values())).axes
    sizes = {axis: cell.axis_size(axis) for axis in output if isinstance(axis, str)}
    hidden_size = prod(axis if isinstance(axis, int) else sizes[axis] or units for axis in output)
    hidden_size = hidden_size if output != (UNITS,) or sizes[UNITS] else units * cell.heads
    blocks = cell.declaration.inputs.values() or ((FEATURES,),)
    known = {UNITS: hidden_size, **{axis: size for axis, size in sizes.items() if size}}

    def size_of(axis: str | int) -> int:
        return axis if isinstance(axis, int) else cell.axis_size(axis) or known.get(axis, features)

    return sum(prod(map(size_of, axes)) for axes in blocks), hidden_size


def hidden_size_of(cell: Any, weights: Mapping[str, Any]) -> int:
    """Return the hidden size of a layer, from the shapes of its parameters."""
    if cell.declaration is None:
        return int(weights["weight_ih"].shape[0]) // len(cell.gates)
    if "weight_hr" in weights:
        return int(weights["weight_hr"].shape[1])
    own = {name for name in ("weight_ih", "weight_hh", *cell.parameters) if name in weights}
    count = sum(weights[name].numel() for name in own)
    output = next(iter(cell.declaration.state.values())).axes
    unit = prod(axis if isinstance(axis, int) else cell.axis_size(axis) or 1 for axis in output)

    def count_at(multiple: int) -> int:
        shapes = cell.shapes_in(shapes_from_weights(cell, weights, multiple * unit), bias=False)
        return sum(prod(shapes[name]) for name in own)

    if all(isinstance(axis, int) or cell.axis_size(axis) for axis in output):
        return unit
    return unit * (1 + bisect_left(range(1, max(count, 1)), count, key=count_at))


def blocks_by_gate(cell: Any, weights: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the rows of each gate in one of the parameters: a weight, a bias, or a parameter with `per_gate`."""
    if cell.declaration is None:
        return dict(zip(cell.gates, weights[name].chunk(len(cell.gates)), strict=True))
    shapes = shapes_from_weights(cell, weights, hidden_size_of(cell, weights))
    half = {"weight_ih": "x", "bias_ih": "x", "weight_hh": "h", "bias_hh": "h"}.get(name)
    gates = cell.gates if half is None else cell.declaration.gates_that_read(half)
    counts = [prod(shapes.gates[gate]) for gate in gates]
    return dict(zip(gates, weights[name].split(counts), strict=True))


_Key = tuple[str, Declaration, tuple[tuple[str, Axes], ...], tuple[tuple[str, int], ...]]


def _key(cell: Any) -> _Key:
    """The data of a cell that determine its shapes."""
    declaration = cell.declaration
    parameters = tuple((name, p.axes) for name, p in cell.parameters.items() if not p.per_gate)
    blocks = *declaration.gates.values(), *declaration.state.values()
    axes = *(each.axes for each in blocks), *declaration.inputs.values(), *(axes for _, axes in parameters)
    names = dict.fromkeys(axis for group in axes for axis in group if isinstance(axis, str))
    known = tuple((name, size) for name in names if (size := cell.axis_size(name)) is not None)
    return cell._class_name, cell.declaration, parameters, known


def _shapes(
    cell: str,
    declaration: Declaration,
    parameters: tuple[tuple[str, Axes], ...],
    known: tuple[tuple[str, int], ...],
    input_size: int | None,
    features: int | None,
    hidden_size: int,
) -> Shapes:
    """The shapes for an input size, or for the width of the first block of the input."""
    gates, state, inputs = declaration.gates, declaration.state, declaration.inputs
    sizes = dict(known)
    output, first = next(iter(state.items()))
    sizes.setdefault(UNITS, hidden_size)
    _solve(f"cell {cell}: hidden_size", f"state {output!r}", (first.axes,), hidden_size, sizes)
    block = next(iter(inputs.values()), (FEATURES,))
    if input_size is not None:
        _solve(f"cell {cell}: input_size", "the input", tuple(inputs.values()) or (block,), input_size, sizes)
    elif features is not None:
        _solve(f"cell {cell}: the columns of weight_ih", "the input", (block,), features, sizes)
    readers = {f"gate {name!r}": gate.axes for name, gate in gates.items()}
    readers |= {f"state {name!r}": each.axes for name, each in state.items()}
    readers |= {f"input {name!r}": axes for name, axes in inputs.items()}
    readers |= {f"parameter {name!r}": axes for name, axes in parameters}
    for reader, axes in readers.items():
        for axis in axes:
            if isinstance(axis, str) and axis not in sizes:
                raise ValueError(
                    f"cell {cell}: axis {axis!r} of {reader} has no size; set it as an attribute, self.{axis} = ..., "
                    f"or use {UNITS!r}, whose size is hidden_size"
                )
    shapes = Shapes(sizes, {}, {}, {}, declaration)
    return replace(
        shapes,
        gates={name: shapes.of(gate.axes) for name, gate in gates.items()},
        state={name: shapes.of(each.axes) for name, each in state.items()},
        inputs={name: shapes.of(axes) for name, axes in inputs.items()},
    )


_cached_shapes = lru_cache(1024)(_shapes)


def _find_shapes(*key: Any) -> Shapes:
    """The shapes from the cache, which torch.compile does not support."""
    return _shapes(*key) if torch.compiler.is_compiling() else _cached_shapes(*key)


def _solve(size: str, owner: str, blocks: tuple[Axes, ...], total: int, sizes: dict[str, int]) -> None:
    """Find the size of the one unknown axis so that the blocks together have `total` numbers. Add it to `sizes`."""
    unknown = {axis for axes in blocks for axis in axes if isinstance(axis, str) and axis not in sizes}
    formula = " + ".join(" * ".join(map(str, axes)) or "1" for axes in blocks)
    if len(unknown) > 1 or any([sum([axis in unknown for axis in axes]) > 1 for axes in blocks]):
        raise ValueError(
            f"{size} determines the size of only one axis of {owner}, {formula}; set the other sizes as attributes of "
            f"the cell, such as self.{min(unknown)} = ..."
        )
    known = [prod([a if isinstance(a, int) else sizes.get(a, 1) for a in axes]) for axes in blocks]
    constant = sum([n for n, axes in zip(known, blocks, strict=True) if not unknown & set(axes)])
    if not unknown:
        if constant != total:
            raise ValueError(f"{size} must be {formula} = {constant}, the size of {owner}, got {total}")
        return
    (axis,), factor = unknown, sum(known) - constant
    sizes[axis], rest = divmod(total - constant, factor)
    if rest or sizes[axis] < 1:
        multiple = f"{constant} + a multiple of {factor}" if constant else f"a multiple of {factor}"
        raise ValueError(f"{size} must be {multiple}, because {owner} has {formula} numbers, got {total}")
