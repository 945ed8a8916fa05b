"""Norms of the gradients dL/dh_{t-k} and dL/dc_{t-k} of earlier states, and of dL/dc through forget gates alone."""

from typing import Any

import torch

import glassgate as gg
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import Network

ROWS = 32
"""The number of sequences."""


def gradient_norms(network: Network, problem: str, steps: int, seed: int) -> dict[str, Any]:
    """Measure the gradient of each state at k steps before the last step, for k = 0 ... steps.

    L is the loss at the last step. Each result is the norm over the units, averaged over the sequences.

    Returns:
        a list of steps + 1 numbers for each state, by its name. If the cell has a gate f and a state c, "own_path" is
        another list: the norms of the product of the forget gates at the last k steps and the gradient of c at the last
        step.
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
    if {"layer0.forward.f", "layer0.forward.c"} <= set(tape):
        forget = tape["layer0.forward.f"][step_indices, sequences]
        decay = torch.cat([torch.ones_like(forget[:1]), forget[:-1]]).cumprod(0)
        norms["own_path"] = _mean_norm(decay * tape.grad["layer0.forward.c"][batch.lengths - 1, sequences])
    return norms


def _mean_norm(gradient: torch.Tensor) -> list[float]:
    values: list[float] = gradient.double().norm(dim=-1).mean(-1).tolist()
    return values
