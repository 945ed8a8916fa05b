"""The network of classification: recurrent layers over a text or a series, pooling, and scores of labels."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.classification.options import ClassificationOptions
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.networks.encoder import last_outputs, step_mask
from glassgate.tasks.networks.labelled import SequenceEncoder
from glassgate.tasks.networks.maps import InputMap

_PARTS = ("last", "mean", "max")  # of concat pooling


class Scores(NamedTuple):
    """The output of the network.

    Attributes:
        labels: the score of each label, `(N, K)`
        attention: the attention weight of each step, `(N, L)`; None without attention pooling
    """

    labels: Tensor
    attention: Tensor | None


class Classifier(SequenceEncoder):
    """Embeddings or series, recurrent layers, pooling over steps, and a score for each label.

    Args:
        options: sizes, cell and pooling
        vocabulary_size: the number of tokens, including padding and unknown; None for series
        input_size: the number of features of a step
        num_labels: the number of labels, K
        linear: a map of the tokens or the series to the outputs; None for none
    """

    def __init__(
        self,
        options: ClassificationOptions,
        vocabulary_size: int | None,
        input_size: int,
        num_labels: int,
        linear: InputMap | None = None,
    ):
        super().__init__(options, vocabulary_size, input_size, linear)
        self.pooling = options.pooling
        size = self.encoder.output_size * (len(_PARTS) if options.pooling == "concat" else 1)
        if options.pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(size, options.hidden_size), nn.Tanh(), nn.Linear(options.hidden_size, 1)
            )
        self.head = nn.Linear(size, num_labels)

    def forward(self, batch: Batch) -> Scores:
        """Score each label. `encode` describes the fields of the batch."""
        output, state, linear = self.encode(batch)
        mask = step_mask(batch["lengths"], output)
        pooled, weights = self._pool(output, state, mask)
        return Scores(self.head(self.dropout(pooled)) + linear, weights)

    def _pool(self, output: Tensor, state: Tensor | tuple[Tensor, ...], mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pool the outputs of all steps.

        Returns:
            the pooled output `(N, H)`, or `(N, 3 H)` with concat pooling, and the attention weights `(N, L)`, which are
            None without attention pooling
        """
        if self.pooling == "attention":
            scores = self.attention(output).squeeze(-1).masked_fill(~mask, -torch.inf)
            weights = scores.softmax(-1)
            return (weights[:, None] @ output).squeeze(1), weights
        parts = _PARTS if self.pooling == "concat" else (self.pooling,)
        return torch.cat([self._pooled(part, output, state, mask) for part in parts], -1), None

    def _pooled(self, part: str, output: Tensor, state: Tensor | tuple[Tensor, ...], mask: Tensor) -> Tensor:
        """The last output, the mean output or the largest outputs, `(N, H)`."""
        if part == "last":
            return last_outputs(self.encoder, state)
        if part == "mean":
            return output.sum(1) / mask.sum(1, keepdim=True)  # the outputs of padded steps are zero
        return output.masked_fill(~mask[..., None], -torch.inf).amax(1)
