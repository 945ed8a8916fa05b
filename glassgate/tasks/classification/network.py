"""The network of classification: recurrent layers over a text or a series, pooling, and scores of labels."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.classification.options import ClassificationOptions
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.networks.encoder import last_outputs
from glassgate.tasks.networks.labelled import SequenceEncoder
from glassgate.tasks.networks.states import step_mask


class Scores(NamedTuple):
    """The output: a score for each label, `(N, labels)`, and with attention a weight for each step, `(N, L)`."""

    labels: Tensor
    attention: Tensor | None


class Classifier(SequenceEncoder):
    """Embeddings or series, recurrent layers, pooling over steps, and a score for each label.

    Args:
        options: sizes, cell and pooling
        tokens: the size of the vocabulary, including padding and unknown; None for series
        input_size: the number of features of a step
        labels: the number of labels
    """

    def __init__(self, options: ClassificationOptions, tokens: int | None, input_size: int, labels: int):
        super().__init__(options, tokens, input_size)
        self.pooling = options.pooling
        size = self.encoder.output_size
        if options.pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(size, options.hidden_size), nn.Tanh(), nn.Linear(options.hidden_size, 1)
            )
        self.head = nn.Linear(size, labels)

    def forward(self, batch: Batch) -> Scores:
        """From a batch as in `encode`."""
        output, state = self.encode(batch)
        inside = step_mask(batch["lengths"], output)
        pooled, weights = self._pooled(output, state, inside)
        return Scores(self.head(self.dropout(pooled)), weights)

    def _pooled(
        self, output: Tensor, state: Tensor | tuple[Tensor, ...], inside: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Pool the states of all steps to `(N, H)`; return them and, with attention, the weights of the steps."""
        if self.pooling == "last":
            return last_outputs(self.encoder, state), None
        if self.pooling == "mean":
            return output.sum(1) / inside.sum(1, keepdim=True), None  # padded states are zero
        if self.pooling == "max":
            return output.masked_fill(~inside[..., None], -torch.inf).amax(1), None
        scores = self.attention(output).squeeze(-1).masked_fill(~inside, -torch.inf)
        weights = scores.softmax(-1)
        return (weights[:, None] @ output).squeeze(1), weights
