"""The values on the wires of a cell's diagram, for recorded steps or for given inputs and states."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Weights
from glassgate.cell_locals import trace_locals
from glassgate.engines.reference_step import advance
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.glass.diagrams.flow import Value, flow
from glassgate.glass.retention import direction_inputs, pad_rows, states_before
from glassgate.layers.base import weights_of
from glassgate.layers.regularisers import without_noise
from glassgate.layers.stack import LayerCall


def recorded_wire_values(call: LayerCall, index: int) -> dict[str, Tensor]:
    """The values on the wires of a diagram, except gates and new states, in a recorded call of one direction.

    Returns:
        The values by the `data-name` of the wire: (L, N, H), or (L, N, 1) if all units have the same value. The value
        of the input is its norm. Empty if the cell cannot be drawn.
    """
    layer, part = call.layer, call.layer.glassgate.parts[index]
    weights = {name: w.detach() for name, w in weights_of(layer, part).items()}
    x, before = direction_inputs(call, index), states_before(call, index)
    try:
        with torch.no_grad():
            values = wire_values(layer.cell, weights, x, before)
    except NotTraceable:
        return {}
    values["x"] = x.norm(dim=-1, keepdim=True)
    recorded = {*layer.cell.gates, *layer.cell.state}
    return {name: pad_rows(call, value) for name, value in values.items() if name not in recorded}


def wire_values(cell: Cell, weights: Weights, x: Tensor, before: Sequence[Tensor]) -> dict[str, Tensor]:
    """The value on each wire of `gg.draw(cell)` except the input, by the `data-name` of the wire.

    Args:
        cell: the cell.
        weights: the parameters of the cell by name, as returned by `layer.weights()`.
        x: (N, H_in), the inputs of any N steps.
        before: the states before each of these steps, one (N, H) per state.

    Returns:
        A tensor (N, H) per wire, or (N, 1) if all units have the same value.
    """
    projected = "weight_hr" in weights
    step = flow(cell, projected)
    named = {f"{name}_prev": value for name, value in zip(cell.state, before, strict=True)}
    for item in step.items:
        for port, node in enumerate(item.nodes):
            node.name = step.name_of(Value(item, port))
    states = tuple(value.item.nodes[value.port] for value in step.new.values())
    equations: Equations = replace(equations_of(cell, projected), states=states, gate_values={})
    names = {node.name for item in step.items for node in item.nodes}

    def keep(name: str, value: object) -> None:
        if name in names and isinstance(value, Tensor):
            named[name] = value.expand(len(x), value.shape[-1])  # values computed only from parameters have no rows

    ih = linear(x, weights["weight_ih"], weights.get("bias_ih"))
    with trace_locals(keep):
        advance(without_noise(GraphCell(equations)), weights, ih, tuple(before))
    return named
