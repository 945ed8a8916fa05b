"""Gradients of parameters outside of the weight gradient GEMMs: their memory, and sums over sequences."""

from collections.abc import Collection

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.plan import Plan


def custom_parameter_gradients(plan: Plan, H: int, names: Collection[str], d_parameter: Tensor) -> Weights:
    """The gradients of the parameters that the cell defines itself, by name.

    Args:
        plan: the plan of the direction.
        H: the hidden size.
        names: the parameters whose gradients are needed.
        d_parameter: (N, n * H), n columns of width H; `trace.parameter_columns` has the column of each parameter.
    """
    cell, trace, d = plan.cell, plan.trace, {}
    needed = cell.parameters.keys() & set(names)
    if not needed or not trace.parameters:
        return {}
    sums = d_parameter.sum(0)
    for name in needed:
        parts = [k for k, (parameter, _) in enumerate(trace.parameters) if parameter == name]
        if parts:
            rows = torch.cat([sums[k * H : (k + 1) * H] for k in (trace.parameter_columns[part] for part in parts)])
            of_parts = tuple(trace.parameters[k][1] or "" for k in parts)
            d[name] = _in_gate_order(rows, cell.gates if cell.parameters[name].per_gate else ("",), of_parts)
    return d


def _in_gate_order(rows: Tensor, gates: tuple[str, ...], of_blocks: tuple[str, ...]) -> Tensor:
    """Add each block of rows at the position of its gate. Gates without a block are zero."""
    if of_blocks == gates:
        return rows
    blocks = rows.unflatten(0, (len(of_blocks), -1))
    positions = torch.tensor([gates.index(gate) for gate in of_blocks], device=blocks.device)
    return blocks.new_zeros(len(gates), *blocks.shape[1:]).index_add_(0, positions, blocks).flatten(0, 1)
