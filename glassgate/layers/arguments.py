"""Checks the arguments, parameters and states of a layer's call, and converts them for engines."""

import math
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.layers import states
from glassgate.layers.base import BaseLayer, weights_of
from glassgate.layers.states import States
from glassgate.layout import Layout, arrange
from glassgate.shapes import ArgumentTypeError, check_like, check_parameters
from glassgate.system import SYSTEM


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
    _check_state_memory(layer, steps.data, layout)
    if hx is None:
        initial = default_states(layer, steps.data, layout.rows)
    else:
        initial = states.from_hx(name, parts, hx, steps.data, layout)
    states.check_restart(name, restart, resets)
    if restart is None:
        return steps, layout, initial, None
    return steps, layout, initial, states.from_hx(name, parts, restart, steps.data, layout, "restart")


def _check_state_memory(layer: BaseLayer, data: Tensor, layout: Layout) -> None:
    """Raise MemoryError if the states of a call are larger than the machine's memory. The call then allocates nothing.

    Only states with several axes are checked. Training stores them at every step.
    """
    forms = [form for part in layer.glassgate.parts for form in part.forms.values()]
    if torch.compiler.is_compiling() or data.is_meta or all(len(form.shape) == 1 for form in forms):
        return
    L, trains = layout.length, torch.is_grad_enabled()
    copies = (2 * math.isqrt(L) + 1 if layer.recompute else L + 1) if trains else 2
    needed = copies * layout.rows * data.element_size() * sum(math.prod(form.shape) for form in forms)
    available = torch.cuda.mem_get_info(data.device)[1] if data.is_cuda else SYSTEM.memory_size()
    if available is None or needed <= available:
        return
    states = layer.glassgate.parts[0].forms.items()
    shapes = ", ".join(f"{name} ({form.letters}) = {form.shape}" for name, form in states if len(form.shape) > 1)
    remedy = "fewer or shorter sequences, recompute=True," if trains else "fewer sequences"
    raise MemoryError(
        f"{layer.glassgate.class_name}: the states of {layer.cell!r} need {needed / 2**30:.1f} GiB, and this machine "
        f"has {available / 2**30:.1f} GiB; they are {shapes}, for N = {layout.rows} sequences at {copies} steps; use "
        f"{remedy} or smaller axes"
    )


def directions_of_call(layer: BaseLayer, initial: States, restart_states: States | None = None) -> list[Direction]:
    """Return the directions of all levels, without noise, as arguments of an engine."""
    cell, parts = current_cell(layer), layer.glassgate.parts
    directions = [
        Direction(cell, weights, states, part.direction == 1)
        for part, weights, states in zip(parts, checked_weights(layer), initial, strict=True)
    ]
    if restart_states is None:
        return directions
    return [d._replace(restart=states) for d, states in zip(directions, restart_states, strict=True)]
