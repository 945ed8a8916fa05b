"""The parts of a stack of layers. A part is one direction of one layer."""

from collections.abc import Iterator, Sequence
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

import torch

from glassgate.cell import Cell
from glassgate.cell_axes import UNITS, State
from glassgate.cell_checks import check_heads
from glassgate.cell_shapes import shapes_from_weights, state_shapes
from glassgate.shapes import check_size

HiddenSizes = int | tuple[int, int] | Sequence[int | tuple[int, int]]
"""The forms of `hidden_size`: one size, a pair (forward, reverse), or a list with one of these per layer."""


class StateForm(NamedTuple):
    """The form of one row of a state in `hx`. Engines store the row flat."""

    shape: tuple[int, ...]
    """(width,), or the declared axes of a state that is not the output."""
    letters: str
    """The names of the axes, for messages."""
    start: float
    """Every number of the initial state without `hx`."""


class Part(NamedTuple):
    """One direction of one layer."""

    layer: int
    """The index of the layer, from 0."""
    direction: int
    """0 for forward, 1 for reverse."""
    hidden_size: int
    suffix: str
    """The suffix of its parameter names, such as "_l0_reverse"."""
    label: str
    """Its name in recordings and returned states, such as "layer0.reverse"."""
    shapes: dict[str, tuple[int, ...]]
    """The shape of each parameter, by the parameter's name in the cell."""
    names: dict[str, str]
    """The name of each parameter in the layer, by its name in the cell."""
    widths: dict[str, int]
    """The width of each state, by name; the output first."""
    forms: dict[str, "StateForm"]
    """The form of each state in `hx`, by name."""


def sizes_by_layer(name: str, hidden_size: Any, layers: int, directions: int) -> list[tuple[int, ...]]:
    """Convert `hidden_size` in any of its forms to a tuple per layer, with one size per direction.

    Args:
        name: the name of the layer's class, for messages.
        hidden_size: the argument of the layer.
        layers, directions: the numbers of layers and directions.
    """
    by_layer = hidden_size if isinstance(hidden_size, list) else [hidden_size] * layers
    if len(by_layer) != layers:
        raise ValueError(f"{name}: hidden_size as a list must have num_layers = {layers} entries, got {len(by_layer)}")
    result = []
    for entry in by_layer:
        sizes = tuple(entry) if isinstance(entry, tuple | list) else (entry,) * directions
        if len(sizes) != directions:
            raise ValueError(
                f"{name}: hidden_size must be an int or a tuple of {directions} (one per direction), got {entry!r}"
            )
        result.append(tuple([check_size(name, "hidden_size", size) for size in sizes]))
    return result


def check_projection(name: str, proj_size: Any) -> int:
    """Return `proj_size` as an int. Raise unless it is an integer of at least 0, or False."""
    if not isinstance(proj_size, Integral) or proj_size is True:
        raise TypeError(f"{name}: proj_size must be an int, got {proj_size!r} of type {type(proj_size).__name__}")
    if proj_size < 0:
        raise ValueError(
            f"{name}: proj_size should be a positive integer or zero to disable projections, got {proj_size!r}"
        )
    return int(proj_size)


def check_sizes(
    name: str, cell: Cell, sizes: Sequence[tuple[int, ...]], proj_size: int, merge: str, bidirectional: bool
) -> None:
    """Raise unless the cell, the projection and the merging of directions support the sizes of each layer."""
    for layer_sizes in sizes:
        if proj_size >= min(layer_sizes):
            raise ValueError(
                f"{name}: proj_size has to be smaller than hidden_size, got {proj_size} and {min(layer_sizes)}"
            )
        check_heads(name, cell, (*layer_sizes, proj_size))
        if proj_size and cell.declaration is not None:
            output, *_ = cell.declaration.state.values()
            if output.axes != (UNITS,):
                raise ValueError(
                    f"{name}: proj_size needs an output with one number per unit, ({UNITS},), and state "
                    f"{cell.state[0]!r} of {type(cell).__name__} has the axes {output.axes}; use proj_size=0 and a "
                    "torch.nn.Linear after the layer"
                )
        if len(set(layer_sizes)) > 1 and not proj_size and bidirectional and merge in ("sum", "mean"):
            raise ValueError(f"{name}: merge={merge!r} needs two directions of equal size, got {layer_sizes}")


def parts_of(
    cell: Cell, input_size: int, sizes: Sequence[tuple[int, ...]], proj_size: int, bias: bool, merge: str
) -> Iterator[Part]:
    """Yield the parts of a stack in torch's order. `sizes` are the hidden sizes of each layer, one per direction."""
    input_sizes = [input_size] * len(sizes[0])
    for layer, layer_sizes in enumerate(sizes):
        for direction, hidden_size in enumerate(layer_sizes):
            shapes = cell.shapes(input_sizes[direction], hidden_size, proj_size, bias)
            forms = state_forms(cell, input_sizes[direction], hidden_size, proj_size)
            widths = {name: prod(form.shape) for name, form in forms.items()}
            suffix = f"_l{layer}{'_reverse' * direction}"
            label = f"layer{layer}.{('forward', 'reverse')[direction]}"
            names = {name: name + suffix for name in shapes}
            yield Part(layer, direction, hidden_size, suffix, label, shapes, names, widths, forms)
        outputs = [proj_size or size for size in layer_sizes]
        input_sizes = [sum(outputs)] * len(layer_sizes) if merge == "concat" else outputs


def sizes_of(cell: Cell, part: Part) -> tuple[int, int, int]:
    """Return the input size, the hidden size and the width of the projection of a part whose cell declares axes."""
    weights = {"weight_ih": torch.empty(part.shapes["weight_ih"], device="meta")}
    proj_size, *_ = part.shapes.get("weight_hr", (0,))
    return shapes_from_weights(cell, weights, part.hidden_size).input_size, part.hidden_size, proj_size


def state_forms(cell: Cell, input_size: int, hidden_size: int, proj_size: int = 0) -> dict[str, StateForm]:
    """Return the form of each state. The output is flat."""
    forms = {}
    for name, shape in state_shapes(cell, input_size, hidden_size, proj_size).items():
        state = State() if cell.declaration is None else cell.declaration.state[name]
        letters = "H_cell" if state.axes == (UNITS,) else ", ".join(map(str, state.axes))
        forms[name] = StateForm(shape, "H_out" if name == cell.state[0] else letters, state.start)
    return forms
