"""What a cell declares: gates, states, parameters and noise, their axes, and the sizes of these axes in a layer.

`cell.py` defines the cell itself.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import torch

UNITS = "units"
"""The axis with one number per unit: its size is the hidden size of the layer."""
FEATURES = "features"
"""The axis of the input that the gates multiply. Without `inputs`, its size is the input size of the layer."""

Axes = tuple[str | int, ...]
"""The axes of a value within a row: names, or sizes. () is one number per row."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Gate:
    """A gate: a block of rows of the weights.

    Attributes:
        axes: the axes of the pre-activation. The default is one number per unit.
        reads: "xh" for rows in `weight_ih` and `weight_hh`, "x" or "h" for rows in only one of them. In a cell with
            `recurrent = False`, every gate reads only x.
    """

    axes: Axes = (UNITS,)
    reads: str = "xh"

    def __post_init__(self) -> None:
        if self.reads not in ("x", "h", "xh"):
            raise ValueError(f"Gate: reads must be 'x', 'h' or 'xh', got {self.reads!r}")


@dataclass(frozen=True)
class State:
    """A state.

    Attributes:
        axes: the axes of the state. The default is one number per unit.
        start: every number of the initial state, for calls without `hx`.
    """

    axes: Axes = (UNITS,)
    start: float = 0.0


def draw_matrix(values: Any) -> None:
    """Fill a tensor with uniform numbers from [-1 / sqrt(n), 1 / sqrt(n)], where n is the size of its last axis."""
    bound = values.shape[-1] ** -0.5
    values.uniform_(-bound, bound)


_DEFAULT = object()


@dataclass(frozen=True)
class Parameter:
    """An extra parameter of a cell. The default is a vector with one number per unit.

    Attributes:
        start: the initial value of every number, or a function that fills the tensor in place, such as
            `torch.nn.init.orthogonal_`. The default is 0 for a vector and `draw_matrix` for several axes.
        per_gate: whether each gate has its own values, with the axes of the gate. A step then reads `p.gain.i` instead
            of `p.gain`.
        axes: the axes, for example `()` for one number, `("heads",)`, or `("units", "key")` for a matrix.
    """

    start: Any = _DEFAULT
    per_gate: bool = False
    axes: Axes = (UNITS,)

    def __post_init__(self) -> None:
        check_axes("Parameter", self.axes)
        if self.start is _DEFAULT:
            object.__setattr__(self, "start", 0.0 if len(self.axes) < 2 or self.per_gate else draw_matrix)
        if callable(self.start):
            return
        axes: int = getattr(self.start, "ndim", 0)
        if axes or not hasattr(self.start, "__float__"):
            raise TypeError(
                f"Parameter: the initial value must be a number, got {type(self.start).__name__}; for one value per "
                "unit, pass a function that fills the tensor, such as lambda p: p.copy_(values), or fill the parameter "
                "in a function that you pass to the layer as init="
            )

    def fill(self, values: Any) -> None:
        """Fill a tensor with the initial values."""
        if callable(self.start):
            self.start(values)
        else:
            values.fill_(self.start)


@dataclass(frozen=True)
class Noise:
    """Random numbers that a step reads as `a.noise.name`.

    Attributes:
        rate: the probability that a unit is selected.
        keeps: if true, the number is 1 for a selected unit and 0 for others, as in zoneout. If false, it is 0 for a
            selected unit and 1 / (1 - rate) for others, as in dropout.
        per_step: whether numbers are drawn again at each step. If false, they are drawn once per sequence.
        state: the state whose axes the numbers have; None for one number per unit, with the axes of the output.
        deviation: the standard deviation of normal numbers with mean 0, if given. Then `rate` and `keeps` are ignored.
    """

    rate: float = 0.0
    keeps: bool = False
    per_step: bool = True
    state: str | None = None
    deviation: float | None = None

    @property
    def mean(self) -> float:
        """The mean of the distribution, which replaces the noise in eval mode."""
        if self.deviation is not None:
            return 0.0
        return self.rate if self.keeps else 1.0


@dataclass(frozen=True, eq=False)
class Declaration:
    """The gates, states and inputs of a cell.

    Attributes:
        gates, state: the declared gates and states by name.
        inputs: the axes of the blocks of the input by name; empty if the whole input is one block.
    """

    gates: Mapping[str, Gate]
    state: Mapping[str, State]
    inputs: Mapping[str, Axes]

    @property
    def has_axes(self) -> bool:
        """Whether a gate or state differs from the default, or a step reads the input."""
        declared = *self.gates.values(), *self.state.values()
        return bool(self.inputs) or any(each not in (Gate(), Gate(reads="x"), State()) for each in declared)

    def axes_of(self, state: str) -> str:
        """The axes of a state, for messages: "(N, heads, key)"."""
        return f"({', '.join(['N', *map(str, self.state[state].axes)])})"

    def gates_that_read(self, half: str) -> tuple[str, ...]:
        """The names of the gates with rows in the weights of x or h."""
        return tuple(name for name, gate in self.gates.items() if half in gate.reads)


def declaration_of(
    cell: str,
    gates: Any,
    state: Any,
    inputs: Mapping[str, Axes],
    recurrent: bool,
    delays: Mapping[str, tuple[str, int]],
) -> Declaration:
    """Return the declaration of a class."""
    by_gate = _by_name(f"cell {cell}: gate", gates, Gate)
    if not recurrent:
        by_gate = {name: replace(gate, reads="x") for name, gate in by_gate.items()}
    by_state = _by_name(f"cell {cell}: state", state, State)
    for name, delay in delays.items():
        source, steps = delay if isinstance(delay, tuple) and len(delay) == 2 else ("", 0)
        if source not in by_state or name in by_state or type(steps) is not int or steps < 2:
            raise ValueError(
                f"cell {cell}: delays must be a dict from new names to a state and at least 2 steps, such as "
                f"{{'old': ({next(iter(by_state))!r}, 5)}}, got {name!r}: {delay!r}"
            )
        by_state[name] = State((steps, *by_state[source].axes), by_state[source].start)
    return Declaration(by_gate, by_state, {k: check_axes(f"cell {cell}: input {k!r}", v) for k, v in inputs.items()})


def _by_name(kind: str, declared: Any, type_of_value: Any) -> dict[str, Any]:
    if not isinstance(declared, Mapping):
        return {name: type_of_value() for name in declared}
    return {
        name: value if isinstance(value, type_of_value) else type_of_value(check_axes(f"{kind} {name!r}", value))
        for name, value in declared.items()
    }


def check_names(cls: Any) -> None:
    """Raise unless the names of gates and states are valid and differ."""
    subject = f"cell {cls.__name__}:"
    for kind in ("gates", "state"):
        names = getattr(cls, kind)
        if not isinstance(names, tuple) or not all(isinstance(n, str) and n.isidentifier() for n in names):
            raise TypeError(f"{subject} {kind} must be a tuple of names, got {names!r}")
        reserved = {"update", "noise"} | ({"input"} if cls.inputs else set())
        if kind == "gates" and (taken := sorted(reserved & set(names))):
            raise ValueError(
                f"{subject} a gate cannot be called {taken[0]!r}, because a.{taken[0]} has another "
                f"meaning in a step, got {names!r}"
            )
        if any(name.startswith("__") for name in names):
            raise ValueError(f"{subject} {kind} must not begin with two underscores, got {names!r}")
        if len(set(names)) != len(names) or {"ih", "hh"} & set(names):
            raise ValueError(f"{subject} {kind} must be distinct and neither 'ih' nor 'hh', got {names!r}")
    if not cls.state:
        raise ValueError(f"{subject} state must name at least the output, got ()")


def check_axes(what: str, axes: Any) -> Axes:
    """Return axes unchanged. Raise TypeError unless they are a tuple of names and sizes."""
    if not isinstance(axes, tuple) or not all(
        (isinstance(axis, str) and axis.isidentifier()) or (type(axis) is int and axis > 0) for axis in axes
    ):
        raise TypeError(f"{what}: axes must be a tuple of names or sizes, such as ('heads', 'key') or (), got {axes!r}")
    return axes


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


def shapes_of(cell: Any, input_size: int, hidden_size: int) -> Shapes:
    """Return the shapes of the values of a cell that declares axes.

    The size of an axis is the attribute of the cell with its name. One axis of the output may have no attribute: its
    size follows from the hidden size. `units` is the hidden size, and `features` the width of the first block of
    the input.

    Raises:
        ValueError: a size is missing, or does not fit the hidden size or the input size.
    """
    return _find_shapes(*_key(cell), input_size, None, hidden_size)


def shapes_from_weights(cell: Any, weights: Mapping[str, Any], hidden_size: int) -> Shapes:
    """Return the shapes of the values of a cell in a layer with these parameters."""
    return _find_shapes(*_key(cell), None, int(weights["weight_ih"].shape[1]), hidden_size)


def state_shapes(cell: Any, input_size: int, hidden_size: int, proj_size: int = 0) -> dict[str, Shape]:
    """Return the shape of each state within a row as in `hx`, where the output is flat."""
    shapes: dict[str, Shape] = dict.fromkeys(cell.state, (hidden_size,))
    if cell.declaration is not None:
        shapes = {**shapes_of(cell, input_size, hidden_size).state}
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
