"""Scores that several tasks share."""

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class Likelihood(Metric):
    """What a model's probabilities of the right units come to: nats and bits per unit, perplexity.

    Example:
        >>> metric = Likelihood()
        >>> metric.update(torch.tensor([0.5, 0.25]).log().neg())
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'nats': 1.04, 'bits': 1.5, 'perplexity': 2.828}
    """

    total: Tensor
    units: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("units", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, nats: Tensor) -> None:
        """Count units, `(S,)`, each by minus the natural logarithm of its probability."""
        self.total += nats.double().sum()
        self.units += nats.numel()

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all units; the perplexity is e to the power of the nats."""
        nats = self.total / self.units
        return {"nats": nats, "bits": nats / math.log(2), "perplexity": nats.exp()}
