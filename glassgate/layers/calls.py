"""Checks the arguments, parameters and states of a layer's call, and converts them for engines."""

from typing import Any

from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.layers import states
from glassgate.layers.base import BaseLayer, weights_of
from glassgate.layers.states import States
from glassgate.layout import Layout, arrange
from glassgate.shapes import ArgumentTypeError, check_like, check_parameters


def current_cell(layer: BaseLayer) -> Cell:
    """Return the cell that the layer runs in its current mode, training or eval."""
    return layer.glassgate.training_cell if layer.training else layer.glassgate.eval_cell


def checked_weights(layer: BaseLayer) -> list[Weights]:
    """Return the parameters of each part (direction of a layer), in torch's order. Check shapes, dtypes and devices."""
    name, parts = layer.glassgate.class_name, layer.glassgate.parts
    by_part = [weights_of(layer, part) for part in parts]
    first = by_part[0]["weight_ih"]
    for part, weights in zip(parts, by_part, strict=True):
        check_parameters(name, weights, part.shapes, first.dtype, first.device, part.suffix)
    return by_part


def default_states(layer: BaseLayer, like: Tensor, rows: int) -> States:
    """Return the initial states (N, H) of each layer and direction for a call without `hx`: zeros or learned states.

    Args:
        layer: the layer.
        like: a tensor with the dtype and device of the states.
        rows: the number of sequences, N.
    """
    initial = []
    for part in layer.glassgate.parts:
        if layer.learn_initial_state:
            learned = {f"{state}_0": getattr(layer, f"{state}_0{part.suffix}") for state in part.widths}
            shapes = {f"{state}_0": form.shape for state, form in part.forms.items()}
            check_parameters(layer.glassgate.class_name, learned, shapes, like.dtype, like.device, part.suffix)
            initial.append(tuple([v.reshape(-1).expand(rows, -1) for v in learned.values()]))
        else:
            kinds = {name: (part.widths[name], form.start) for name, form in part.forms.items()}
            states = {kind: _rows_of(like, rows, *kind) for kind in dict.fromkeys(kinds.values())}
            initial.append(tuple([states[kind] for kind in kinds.values()]))
    return initial


def _rows_of(like: Tensor, rows: int, width: int, start: float) -> Tensor:
    return like.new_full((rows, width), start) if start else like.new_zeros(rows, width)


def arrange_call(
    layer: BaseLayer, input: Any, hx: Any = None, lengths: Any = None, resets: Any = None, restart: Any = None
) -> tuple[Steps, Layout, States, States | None]:
    """Check the arguments of a call and convert them for engines.

    Args:
        layer, input, hx, lengths, resets, restart: as in `Recurrent.forward`.

    Returns:
        the input as `Steps`, its layout, the initial states, and the states after a reset. The last is None without
        `restart`, because a reset then returns to the initial states.
    """
    name, parts = layer.glassgate.class_name, layer.glassgate.parts
    steps, layout = arrange(name, input, layer.input_size, layer.batch_first, lengths, resets)
    weight = layer.weight_ih_l0
    if not isinstance(weight, Tensor):
        raise ArgumentTypeError(f"{name}: weight_ih_l0 must be a tensor, got {type(weight).__name__}")
    check_like(name, "input", steps.data, weight.dtype, weight.device, "the layer")
    if hx is None:
        initial = default_states(layer, steps.data, layout.rows)
    else:
        initial = states.from_hx(name, parts, hx, steps.data, layout)
    states.check_restart(name, restart, resets)
    if restart is None:
        return steps, layout, initial, None
    return steps, layout, initial, states.from_hx(name, parts, restart, steps.data, layout, "restart")


def directions_by_layer(
    layer: BaseLayer, initial: States, restart_states: States | None = None
) -> list[list[Direction]]:
    """Return the directions of each layer, without noise, as arguments of an engine."""
    D, cell, parts = layer.num_directions, current_cell(layer), layer.glassgate.parts
    directions = [
        Direction(cell, weights, states, part.direction == 1)
        for part, weights, states in zip(parts, checked_weights(layer), initial, strict=True)
    ]
    if restart_states is not None:
        directions = [d._replace(restart=states) for d, states in zip(directions, restart_states, strict=True)]
    return [directions[k : k + D] for k in range(0, len(directions), D)]
