"""Per-sample gradients: the gradients of parameters for each group of sequences, from factors of the backward pass.

A weight gradient is a product of two factors: the gradients of pre-activations, and the vectors that the weight
multiplies.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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

    def rows(self, *columns: Tensor) -> Tensor:
        """Concatenate columns (S, W) and divide their rows by group: (groups, rows, columns * W)."""
        by_step = [v.view(-1, self.number, self.sequences // self.number, v.shape[1]).transpose(0, 1) for v in columns]
        return (torch.cat(by_step, 3) if len(by_step) > 1 else by_step[0]).flatten(1, 2)


def weight_gradients(
    trace: Trace,
    steps: Steps,
    direction: Direction,
    states: Tensor,
    factors: Weights,
    groups: int,
    names: Sequence[str],
) -> Weights:
    """The gradients of some parameters by name, (groups, *shape).

    Args:
        trace: the trace of the direction.
        steps, direction: the call. All sequences have the same length.
        states: (S, H), the output after each step.
        factors: (S, H) by name, as recorded by the backward pass.
        groups: the number of groups. The sequences of a group are adjacent.
        names: the names of the parameters.
    """
    split, cell, needed = Groups(groups, len(direction.initial[0])), direction.cell, set(names)
    gates, found = cell.gates, Weights()
    if {"weight_ih", "bias_ih"} & needed:
        first = len(trace.hh_only)
        d = split.rows(*[factors[f"pre{first + k}"] for k in range(len(trace.ih))])
        if "weight_ih" in needed:
            found["weight_ih"] = _in_gate_order(gates, [(trace.ih, d.mT @ split.rows(steps.data))])
        if "bias_ih" in needed:
            found["bias_ih"] = _in_gate_order(gates, [(trace.ih, d.sum(1))])
    if {"weight_hh", "bias_hh"} & needed:
        products, biases, lefts = list[Blocks](), list[Blocks](), {u: k for k, u in enumerate(trace.left)}
        for u, columns in _by_vector(trace).items():
            of_vector = tuple(columns)
            d = split.rows(*[factors[f"pre{k}"] for k in columns.values()])
            biases.append((of_vector, d.sum(1)))
            if "weight_hh" in needed:
                left = factors[f"left{lefts[u]}"] if u in lefts else _previous_output(steps, direction, states)
                products.append((of_vector, _product(d, split.rows(left), cell.heads)))
        found |= {"weight_hh": _in_gate_order(gates, products)} if "weight_hh" in needed else {}
        found |= {"bias_hh": _in_gate_order(gates, biases)} if "bias_hh" in needed else {}
    for name in cell.parameters.keys() & needed:
        sums = [
            ((gate or "",), split.rows(factors[f"own{k}"]).sum(1))
            for k, (parameter, gate) in enumerate(trace.parameters)
            if parameter == name
        ]
        sums = sums or [(("",), torch.zeros_like(direction.weights[name]).expand(groups, -1))]
        found[name] = _in_gate_order(gates if sums[0][0] != ("",) else ("",), sums)
    return found


def _by_vector(trace: Trace) -> Mapping[Node, dict[str, int]]:
    """For each vector that `weight_hh` multiplies, the column of each gate's product."""
    found: defaultdict[Node, dict[str, int]] = defaultdict(dict)
    for k, product in enumerate((*trace.hh_only, *trace.shared)):
        gate, u = product.args
        found[u][gate] = k
    return found


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
