"""Gradients k steps back, |dL/dh_{t-k}| and |dL/dc_{t-k}|, and the part that the forget gates carry."""

from typing import Any

import torch

import glassgate as gg
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import Network

ROWS = 32


def flow(network: Network, problem: str, steps: int, seed: int) -> dict[str, Any]:
    """The norm over the units, in the mean over sequences, at k = 0 ... steps, L being the loss at the last step.

    Returns:
        "h", and by the name of every other state, a list of steps + 1 numbers; "highway", where the cell has a gate f
        and a state c: the gradient of c at the last step times the product of the forget gates since.
    """
    made = PROBLEMS[problem]
    batch = made.make(steps + 1, ROWS, torch.Generator().manual_seed(seed))
    with gg.record(network.layer) as tape:
        loss = made.loss(network(batch), batch)
    loss.backward()
    network.zero_grad()
    # Step k counts back from each sequence's own end: (steps + 1, N).
    back = batch.lengths - 1 - torch.arange(steps + 1)[:, None]
    rows = torch.arange(ROWS)
    found: dict[str, Any] = {}
    for state in network.layer.cell.state:
        found[state] = _mean_norm(tape.grad[f"layer0.forward.{state}"][back, rows])
    if {"layer0.forward.f", "layer0.forward.c"} <= set(tape):
        forget = tape["layer0.forward.f"][back, rows]
        kept = torch.cat([torch.ones_like(forget[:1]), forget[:-1]]).cumprod(0)
        found["highway"] = _mean_norm(kept * tape.grad["layer0.forward.c"][batch.lengths - 1, rows])
    return found


def _mean_norm(gradient: torch.Tensor) -> list[float]:
    values: list[float] = gradient.double().norm(dim=-1).mean(-1).tolist()
    return values
