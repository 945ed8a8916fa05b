"""Norms of the gradients of earlier states, and of their parts through the gates that keep the state alone."""

from typing import Any

import torch

import glassgate as gg
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import Network
from glassgate.glass.retention import retentions

ROWS = 32
"""The number of sequences."""


def gradient_norms(network: Network, problem: str, steps: int, seed: int) -> dict[str, Any]:
    """Measure the gradient of each state at k steps before the last step, for k = 0 ... steps.

    L is the loss at the last step. Each result is the norm over the units, averaged over the sequences.

    Returns:
        a list of steps + 1 numbers for each state, by its name. If gates of the cell keep states, "own_path" is another
        list: the norms of the product of the gradients of these states at the last step and the fractions that the last
        k steps keep.
    """
    definition = PROBLEMS[problem]
    batch = definition.make(steps + 1, ROWS, torch.Generator().manual_seed(seed))
    with gg.record(network.layer) as tape:
        loss = definition.loss(network(batch), batch)
    loss.backward()
    network.zero_grad()
    # (steps + 1, N): row k has the index of the step that is k steps before the last one of each sequence.
    step_indices = batch.lengths - 1 - torch.arange(steps + 1)[:, None]
    sequences = torch.arange(ROWS)
    norms: dict[str, Any] = {}
    for state in network.layer.cell.state:
        norms[state] = _mean_norm(tape.grad[f"layer0.forward.{state}"][step_indices, sequences])
    if _has_keeping_gates(network):
        paths = []
        for state, (retention, is_direct) in retentions(*tape.call_of("layer0.forward")).items():
            if is_direct:
                kept = retention[step_indices, sequences]
                decay = torch.cat([torch.ones_like(kept[:1]), kept[:-1]]).cumprod(0)
                paths.append(decay * tape.grad[f"layer0.forward.{state}"][batch.lengths - 1, sequences])
        norms["own_path"] = _mean_norm(torch.cat(paths, -1))
    return norms


def _has_keeping_gates(network: Network) -> bool:
    try:
        return bool(gg.init.keeping_gates(network.layer.cell, network.answer.in_features))
    except ValueError:  # they cannot be derived, for example because the cell declares axes
        return False


def _mean_norm(gradient: torch.Tensor) -> list[float]:
    values: list[float] = gradient.double().flatten(2).norm(dim=-1).mean(-1).tolist()
    return values
