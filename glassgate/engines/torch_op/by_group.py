"""Per-sample gradients: the gradients of parameters for each group of sequences, from factors of the backward pass.

A weight gradient is a product of two factors: the gradients of pre-activations, and the vectors that the weight
multiplies.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Trace

Blocks = tuple[tuple[str, ...], Tensor]
"""Names of gates, and the gradient of their rows of a parameter, (groups, gates * H, ...)."""


class Groups(NamedTuple):
    """Groups of adjacent sequences, all of the same size.

    Attributes:
        number: the number of groups.
        sequences: the number of sequences in all groups.
    """

    number: int
    sequences: int

    def rows(self, v: Tensor) -> Tensor:
        """Rows of steps (S, W) as rows of each group, (groups, rows, W): a view if each group has one sequence."""
        each = self.sequences // self.number
        return v.unflatten(0, (-1, self.number, each)).transpose(0, 1).flatten(1, 2)

    def sums(self, v: Tensor) -> Tensor:
        """The sums of rows of steps (S, W) over each group, (groups, W)."""
        return v.unflatten(0, (-1, self.number, self.sequences // self.number)).sum((0, 2))


def weight_gradients(
    trace: Trace,
    steps: Steps,
    direction: Direction,
    states: Tensor,
    factors: Mapping[str, Tensor],
    groups: int,
    names: Sequence[str],
) -> Weights:
    """The gradients of some parameters by name, (groups, *shape).

    Args:
        trace: the trace of the direction.
        steps, direction: the call. All sequences have the same length.
        states: (S, H), the output after each step.
        factors: the factors that the backward pass has recorded, by name; see `Trace.rows`.
        groups: the number of groups. The sequences of a group are adjacent.
        names: the names of the parameters.
    """
    split, cell, needed = Groups(groups, len(direction.initial[0])), direction.cell, set(names)
    gates, H, by_name = cell.gates, states.shape[1], Weights()
    d_pre, sums = split.rows(factors["d_pre"]), split.sums(factors["d_pre"])
    columns = slice(len(trace.hh_only) * H, (len(trace.hh_only) + len(trace.ih)) * H)
    if "weight_ih" in needed:
        by_name["weight_ih"] = _in_gate_order(gates, [(trace.ih, d_pre[..., columns].mT @ split.rows(steps.data))])
    if "bias_ih" in needed:
        by_name["bias_ih"] = _in_gate_order(gates, [(trace.ih, sums[:, columns])])
    if {"weight_hh", "bias_hh"} & needed:
        products, biases, lefts = list[Blocks](), list[Blocks](), {u: k for k, u in enumerate(trace.left)}
        for u, of, first in _by_vector(trace):
            columns = slice(first * H, (first + len(of)) * H)
            biases.append((of, sums[:, columns]))
            if "weight_hh" in needed:
                left = factors[f"left{lefts[u]}"] if u in lefts else _previous_output(steps, direction, states)
                of, d = _sorted_columns(gates, of, d_pre[..., columns])
                products.append((of, _product(d, split.rows(left), cell.heads)))
        by_name |= {"weight_hh": _in_gate_order(gates, products)} if "weight_hh" in needed else {}
        by_name |= {"bias_hh": _in_gate_order(gates, biases)} if "bias_hh" in needed else {}
    for name in cell.parameters.keys() & needed:
        parts = [
            ((gate or "",), split.sums(factors[f"own{k}"]))
            for k, (parameter, gate) in enumerate(trace.parameters)
            if parameter == name
        ]
        parts = parts or [(("",), torch.zeros_like(direction.weights[name]).expand(groups, -1))]
        by_name[name] = _in_gate_order(gates if parts[0][0] != ("",) else ("",), parts)
    return by_name


def _by_vector(trace: Trace) -> Iterator[tuple[Node, tuple[str, ...], int]]:
    """Each vector that `weight_hh` multiplies, the gates of these products, and the first one's column."""
    products = enumerate((*trace.hh_only, *trace.shared))
    for _, group in groupby(products, key=lambda column: id(column[1].args[1])):
        same = list(group)
        yield same[0][1].args[1], tuple([product.args[0] for _, product in same]), same[0][0]


def _sorted_columns(gates: tuple[str, ...], of: tuple[str, ...], d: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Some gates and their columns in the order of the cell, which is faster than to sort the gradients by gate."""
    blocks = dict(zip(of, d.chunk(len(of), -1), strict=True))
    ordered = tuple([gate for gate in gates if gate in blocks])
    if ordered == of or len(ordered) < len(of):
        return of, d
    return ordered, torch.cat([blocks[gate] for gate in ordered], -1)


def _product(d: Tensor, left: Tensor, heads: int) -> Tensor:
    """The products of two factors, summed over the rows of each group: (groups, gates * H, P / heads)."""
    if heads == 1:
        return d.mT @ left
    H = left.shape[2]
    blocks = torch.einsum("brgho,brhi->bghoi", d.unflatten(2, (-1, heads, H // heads)), left.unflatten(2, (heads, -1)))
    return blocks.flatten(1, 3)


def _in_gate_order(gates: tuple[str, ...], parts: Sequence[Blocks]) -> Tensor:
    """The gradient of a parameter, from the gradients of the rows of some gates. Gates without a part are zero."""
    if len(parts) == 1 and parts[0][0] == gates:
        return parts[0][1]
    blocks: dict[str, Tensor] = {}
    for of, part in parts:
        for gate, block in zip(of, part.chunk(len(of), 1), strict=True):
            blocks[gate] = blocks[gate] + block if gate in blocks else block
    zero = torch.zeros_like(next(iter(blocks.values())))
    return torch.cat([blocks.get(gate, zero) for gate in gates], 1)


def _previous_output(steps: Steps, direction: Direction, states: Tensor) -> Tensor:
    """(S, H) the output before each step."""
    initial = direction.initial[0]
    N = len(initial)
    previous = torch.cat([states[N:], initial] if direction.reverse else [initial, states[:-N]])
    if steps.resets is None:
        return previous
    restart = (direction.restart or direction.initial)[0].repeat(len(states) // N, 1)
    return torch.where(steps.resets[:, None], restart, previous)
