"""Gradients of a cell's parameters that are not products: which numbers are never written, and sums over sequences."""

from collections.abc import Collection

import torch
from torch import Tensor

from glassgate.cell import Cell, Weights
from glassgate.engines.plan import Plan
from glassgate.engines.symbolic.trace import Trace


def written_whole(cell: Cell, trace: Trace, names: Collection[str]) -> frozenset[str]:
    """The parameters of which a sum over the rows is written for every gate."""
    recurrent = {product.args[0] for product in (*trace.hh_only, *trace.shared)}
    written = {"ih": set(trace.ih), "hh": recurrent, "hr": set(cell.gates)}
    whole = {half for half, gates in written.items() if gates == set(cell.gates)}
    return frozenset(name for name in names if name.rpartition("_")[2] in whole and name not in cell.parameters)


def own_gradients(plan: Plan, H: int, names: Collection[str], d_parameter: Tensor) -> Weights:
    """The gradients of the cell's own parameters, by name.

    Args:
        plan: of the direction.
        H: the width of a column.
        names: of which parameters.
        d_parameter: (N, n * H), the columns as in `trace.parameters`.
    """
    cell, trace, d = plan.cell, plan.trace, {}
    own = cell.parameters.keys() & set(names)
    if not own or not trace.parameters:
        return {}
    sums = d_parameter.sum(0)
    for name in own:
        columns = [k for k, (of, _) in enumerate(trace.parameters) if of == name]
        if columns:
            rows = torch.cat([sums[k * H : (k + 1) * H] for k in (trace.parameter_columns[c] for c in columns)])
            chosen = tuple(trace.parameters[k][1] or "" for k in columns)
            d[name] = _placed(rows, cell.gates if cell.parameters[name].per_gate else ("",), chosen)
    return d


def _placed(rows: Tensor, gates: tuple[str, ...], chosen: tuple[str, ...]) -> Tensor:
    """Each block added where its gate is, zero where there is none."""
    if chosen == gates:
        return rows
    blocks = rows.unflatten(0, (len(chosen), -1))
    placed = blocks.new_zeros(len(gates), *blocks.shape[1:])
    return placed.index_add_(
        0, torch.tensor([gates.index(gate) for gate in chosen], device=blocks.device), blocks
    ).flatten(0, 1)
