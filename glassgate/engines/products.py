"""What surrounds the loop over time, for any kernel: the input product before, the weights' gradients after it."""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines import steady
from glassgate.engines.call import Direction, Steps
from glassgate.engines.trace import Trace


def input_weight(direction: Direction, trace: Trace) -> Tensor:
    """What the input is multiplied by: (H_in, gates of `trace.ih` * H)."""
    return select(direction.weights["weight_ih"], direction.cell.gates, trace.ih).t()


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


def weight_gradients(
    names: Collection[str], steps: Steps, direction: Direction, trace: Trace, output: Tensor, loop: Any
) -> Weights:
    """The gradients of some parameters, by name.

    Args:
        names: which parameters.
        output: (rows, H_out), the first state after each step.
        loop: what the backward loop gave, by the columns of `Trace`: `d_pre`, `left`, `raw`, `d_hr`, `d_parameter`.
    """
    cell, weights = direction.cell, direction.weights
    H = weights["weight_ih"].shape[0] // len(cell.gates)
    recurrent, inner = len(trace.hh_only) * H, (len(trace.hh_only) + len(trace.shared)) * H
    gates = tuple(product.args[0] for product in (*trace.hh_only, *trace.shared))
    d = {}
    if "weight_ih" in names:
        d["weight_ih"] = place(steady.product(loop.d_pre[:, recurrent:].t(), steps.data), cell.gates, trace.ih)
    if "bias_ih" in names or "bias_hh" in names:
        sums = loop.d_pre.sum(0)
        d["bias_ih"] = place(sums[recurrent:].clone() if recurrent else sums, cell.gates, trace.ih)
        if gates:
            d["bias_hh"] = place(sums[:inner].clone(), cell.gates, gates)
    if "weight_hh" in names and gates:
        d["weight_hh"] = place(_recurrent_gradient(steps, direction, trace, output, loop), cell.gates, gates)
    if "weight_hr" in names:
        d["weight_hr"] = steady.product(loop.d_hr.t(), loop.raw)
    own = cell.parameters.keys() & set(names)
    sums = loop.d_parameter.sum(0) if own and loop.d_parameter is not None else None
    for name in own:
        columns = [k for k, (of, _) in enumerate(trace.parameters) if of == name]
        if sums is not None and columns:
            rows = torch.cat([sums[k * H : (k + 1) * H] for k in (trace.parameter_columns[c] for c in columns)])
            chosen = tuple(trace.parameters[k][1] or "" for k in columns)
            d[name] = place(rows, cell.gates if cell.parameters[name].per_gate else ("",), chosen)
    return {name: d[name] if name in d else torch.zeros_like(weights[name]) for name in names}


def _recurrent_gradient(steps: Steps, direction: Direction, trace: Trace, output: Tensor, loop: Any) -> Tensor:
    """The gradient of `weight_hh`, the blocks of its gates in the order of the products."""
    H, parts, at = loop.d_pre.shape[1] // (len(trace.hh_only) + len(trace.ih)), [], 0
    lefts = dict(zip(trace.left, loop.left.split(output.shape[1], 1) if loop.left is not None else (), strict=True))
    for _, group in groupby((*trace.hh_only, *trace.shared), key=lambda product: id(product.args[1])):
        same = list(group)
        u, d = same[0].args[1], loop.d_pre[:, at * H : (at + len(same)) * H]
        if u in lefts:
            parts.append(_outer(d, lefts[u], direction.cell.heads, len(same)))
        else:
            parts.append(_outer_with_previous(d, steps, direction, output, len(same)))
        at += len(same)
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _outer(d: Tensor, u: Tensor, heads: int, gates: int) -> Tensor:
    """The sum over rows of d (rows, gates * H) times u (rows, H_out): (gates * H, H_out / heads)."""
    if heads == 1:
        return steady.product(d.t(), u)
    by_head = d.unflatten(1, (gates, heads, -1))
    blocks = [steady.product(by_head[:, :, k].flatten(1).t(), u_k) for k, u_k in enumerate(u.chunk(heads, 1))]
    return torch.stack([block.unflatten(0, (gates, -1)) for block in blocks], 1).flatten(0, 2)


def _outer_with_previous(d: Tensor, steps: Steps, direction: Direction, output: Tensor, gates: int) -> Tensor:
    """`_outer` with the output before each step."""
    initial, N, heads = direction.initial[0], direction.initial[0].shape[0], direction.cell.heads
    if steps.batch_sizes is None and steps.resets is None:
        first, later, before = (slice(-N, None), slice(None, -N), slice(N, None))
        if not direction.reverse:
            first, later, before = slice(None, N), slice(N, None), slice(None, -N)
        if heads == 1:
            return steady.add_product(steady.product(d[later].t(), output[before]), d[first].t(), initial)
        return _outer(d[later], output[before], heads, gates).add_(_outer(d[first], initial, heads, gates))
    index = previous_rows(steps, N, direction.reverse, bool(direction.restart))
    previous = torch.cat([output, initial, *direction.restart[:1]]).index_select(0, index)
    return _outer(d[: len(index)], previous, heads, gates)


def previous_rows(steps: Steps, N: int, reverse: bool, restart: bool = False) -> Tensor:
    """For each row the row of the step before, S + rank where the state before is the initial one.

    With `restart`, S + N + rank where there is a reset.
    """
    S = steps.data.shape[0]
    sizes = steps.batch_sizes
    if sizes is None:
        sizes = torch.full((S // max(N, 1),), N)
    starts = sizes.cumsum(0) - sizes
    step = torch.repeat_interleave(sizes)
    rank = torch.arange(len(step)) - starts[step]
    none = torch.zeros(1, dtype=torch.int64)
    sizes, starts = torch.cat([none, sizes, none]), torch.cat([none, starts, none])
    before = step + 2 if reverse else step
    previous = torch.where(rank >= sizes[before], S + rank, starts[before] + rank)
    if steps.resets is not None:
        previous = torch.where(steps.resets[: len(step)], S + N * restart + rank, previous)
    return previous


def add_input_gradient(d_data: Tensor, d_pre: Tensor, direction: Direction, trace: Trace, keep: bool) -> None:
    """Adds what reaches the input from one direction to what `d_data` holds, or overwrites that."""
    gates, weights = direction.cell.gates, direction.weights
    H = weights["weight_ih"].shape[0] // len(gates)
    weight = select(weights["weight_ih"], gates, trace.ih)
    steady.add_product(d_data, d_pre[:, len(trace.hh_only) * H :], weight, keep)


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
