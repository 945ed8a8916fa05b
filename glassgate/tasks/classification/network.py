"""The network of classification: vectors of the steps, recurrent layers, pooling, a score for each label."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.classification.options import ClassificationOptions
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.networks.encoder import encoder, last_outputs


class Scores(NamedTuple):
    """A network's output: a score for each label, `(N, labels)`, and with attention each step's weight, `(N, L)`."""

    labels: Tensor
    attention: Tensor | None


class Classifier(nn.Module):
    """Steps as vectors, recurrent layers over them, one vector of all states, and a score for each label.

    Args:
        options: sizes, cell and pooling
        units: how many tokens are known, padding and unknown included; None for series
        input_size: features of a step
        labels: how many labels there are
    """

    def __init__(self, options: ClassificationOptions, units: int | None, input_size: int, labels: int):
        super().__init__()
        size = options.hidden_size * (1 + options.bidirectional)
        self.pooling = options.pooling
        self.embedding = None if units is None else nn.Embedding(units, input_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size)
        if options.pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(size, options.hidden_size), nn.Tanh(), nn.Linear(options.hidden_size, 1)
            )
        self.head = nn.Linear(size, labels)

    def forward(self, batch: Batch) -> Scores:
        """From `units`, `(N, L)`, or `series`, `(N, L, C)`, and `lengths`, `(N,)`."""
        lengths = batch["lengths"]
        steps = batch["series"] if self.embedding is None else self.dropout(self.embedding(batch["units"]))
        output, state = self.encoder(steps, lengths=lengths)
        inside = torch.arange(output.shape[1], device=output.device) < lengths.to(output.device)[:, None]
        pooled, weights = self._pooled(output, state, inside)
        return Scores(self.head(self.dropout(pooled)), weights)

    def _pooled(
        self, output: Tensor, state: Tensor | tuple[Tensor, ...], inside: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """One vector a row, `(N, H)`, of the states at all steps, and the steps' weights with attention."""
        if self.pooling == "last":
            return last_outputs(self.encoder, state), None
        if self.pooling == "mean":
            return output.sum(1) / inside.sum(1, keepdim=True), None  # padded states are zero
        if self.pooling == "max":
            return output.masked_fill(~inside[..., None], -torch.inf).amax(1), None
        scores = self.attention(output).squeeze(-1).masked_fill(~inside, -torch.inf)
        weights = scores.softmax(-1)
        return (weights[:, None] @ output).squeeze(1), weights
