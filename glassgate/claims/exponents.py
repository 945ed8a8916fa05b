"""The largest Lyapunov exponent of a network on a problem: the rate at which small differences of its states grow."""

from typing import Any

import torch

import glassgate as gg
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import Network

SEQUENCES = 8
"""The number of sequences."""
WARM_UP = 0.2
"""The fraction of steps to leave out at the start of a sequence, where states still approach their attractor."""


def lyapunov_exponent(network: Network, problem: str, steps: int, seed: int) -> dict[str, float]:
    """Measure the exponent in nats per step on sequences of the problem, cut to the length of the shortest one.

    Returns:
        "exponent", the mean over the sequences, and "low" and "high", its 95 % confidence interval.
    """
    batch = PROBLEMS[problem].make(steps, SEQUENCES, torch.Generator().manual_seed(seed))
    inputs = batch.inputs[: int(batch.lengths.min())]
    spectrum = gg.dynamics.lyapunov(network.layer, inputs, warm_up=int(WARM_UP * len(inputs)))
    low, high = spectrum.interval[0].tolist()
    return {"exponent": float(spectrum.exponents[0]), "low": low, "high": high}


def exponent_texts(row: dict[str, Any]) -> list[str]:
    """The exponents before training and after each part of it, with their confidence intervals, as text."""
    return [f"{e['exponent']:+.3f} ({e['low']:+.3f} to {e['high']:+.3f})" for e in row["lyapunov"]]
