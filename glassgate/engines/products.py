"""What a kernel is given beside weights and states, biases and a cell's own parameters, and where gradients go."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.call import Direction
from glassgate.engines.trace import Trace


def input_bias(direction: Direction, trace: Trace) -> Tensor | None:
    """What the kernel adds to that: `b_ih`, and `b_hh` where both halves are one; (gates of `trace.ih` * H,)."""
    gates, weights = direction.cell.gates, direction.weights
    if "bias_ih" not in weights:
        return None
    bias = select(weights["bias_ih"], gates, trace.ih)
    if not trace.shared:
        return bias
    of_product = select(weights["bias_hh"], gates, trace.ih[: len(trace.shared)])
    if len(of_product) == len(bias):
        return bias + of_product
    return torch.cat([bias[: len(of_product)] + of_product, bias[len(of_product) :]])


def select(rows: Tensor, gates: tuple[str, ...], chosen: tuple[str, ...]) -> Tensor:
    """The row blocks of the chosen gates."""
    if chosen == gates:
        return rows
    blocks = rows.unflatten(0, (len(gates), -1))
    return blocks[[gates.index(gate) for gate in chosen]].flatten(0, 1)


def place(rows: Tensor, gates: tuple[str, ...], chosen: tuple[str, ...]) -> Tensor:
    """The transpose of `select`: each block added where its gate is, zero where there is none."""
    if chosen == gates:
        return rows
    blocks = rows.unflatten(0, (len(chosen), -1)) if chosen else rows.new_zeros(0, *rows.shape)
    placed = blocks.new_zeros(len(gates), *blocks.shape[1:])
    return placed.index_add_(0, torch.tensor([gates.index(gate) for gate in chosen]), blocks).flatten(0, 1)


def gradient_of(name: str, direction: Direction, trace: Trace, rows: int) -> Tensor:
    """Memory for a parameter's gradient: zero where no sum over the rows will be written."""
    weight, gates = direction.weights[name], direction.cell.gates
    recurrent = {product.args[0] for product in (*trace.hh_only, *trace.shared)}
    written = {"ih": set(trace.ih), "hh": recurrent, "hr": set(gates)}.get(name.rpartition("_")[2], set())
    whole = rows > 0 and written == set(gates) and name not in direction.cell.parameters
    return torch.empty_like(weight) if whole else torch.zeros_like(weight)


def own_gradients(names: Collection[str], direction: Direction, trace: Trace, d_parameter: Tensor | None) -> Weights:
    """The gradients of the cell's own parameters, by name.

    Args:
        names: of which parameters.
        d_parameter: (N, n * H), the columns as in `trace.parameters`.
    """
    cell, d = direction.cell, {}
    own = cell.parameters.keys() & set(names)
    if not own or d_parameter is None:
        return {}
    H, sums = direction.weights["weight_ih"].shape[0] // len(cell.gates), d_parameter.sum(0)
    for name in own:
        columns = [k for k, (of, _) in enumerate(trace.parameters) if of == name]
        if columns:
            rows = torch.cat([sums[k * H : (k + 1) * H] for k in (trace.parameter_columns[c] for c in columns)])
            chosen = tuple(trace.parameters[k][1] or "" for k in columns)
            d[name] = place(rows, cell.gates if cell.parameters[name].per_gate else ("",), chosen)
    return d


def hidden_bias(direction: Direction, trace: Trace) -> Tensor | None:
    """The part of `b_hh` that the kernel adds: of the products whose two halves stay apart."""
    if not trace.hh_only or "bias_hh" not in direction.weights:
        return None
    gates = tuple(product.args[0] for product in trace.hh_only)
    return select(direction.weights["bias_hh"], direction.cell.gates, gates)


def own_parameters(direction: Direction, trace: Trace) -> Sequence[Tensor]:
    """The cell's own parameters, (H,) each, in the trace's order."""
    gates, weights = direction.cell.gates, direction.weights
    return [weights[name] if gate is None else select(weights[name], gates, (gate,)) for name, gate in trace.parameters]
