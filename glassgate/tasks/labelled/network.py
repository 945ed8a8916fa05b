"""The network of classification and regression: recurrent layers over a text or a series, pooling, and K outputs."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING
from glassgate.tasks.networks.encoder import drop_tokens, encoder, last_outputs, step_mask
from glassgate.tasks.networks.maps import InputMap

POOLINGS = ("concat", "last", "mean", "max", "attention")
"""The ways to combine the outputs of all steps: the last one, their mean, their maximum, or a weighted mean.

"concat" concatenates the last one, the mean and the maximum (Howard & Ruder 2018, section 3.3).
"""
_PARTS = ("last", "mean", "max")  # of concat pooling


class Output(NamedTuple):
    """The output of the network.

    Attributes:
        values: the scores of K labels, or K standardised numbers, `(N, K)`
        attention: the attention weight of each step, `(N, L)`; None without attention pooling
    """

    values: Tensor
    attention: Tensor | None = None


class SequenceNetwork(nn.Module):
    """Recurrent layers over embeddings of tokens or over the steps of a series, pooling, and an output layer.

    Args:
        vocabulary_size: the number of tokens, including padding and unknown; None for series
        input_size: the number of features of a step
        linear: a map of the tokens or the series to the outputs, which are sums over its second axis; None for none
    """

    def __init__(
        self,
        options: LabelledOptions,
        vocabulary_size: int | None,
        input_size: int,
        num_outputs: int,
        pooling: str,
        linear: InputMap | None,
    ):
        super().__init__()
        self.embedding = (
            None if vocabulary_size is None else nn.Embedding(vocabulary_size, input_size, padding_idx=PADDING)
        )
        self.word_dropout = options.word_dropout
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size)
        self.linear, self.pooling = linear, pooling
        size = self.encoder.output_size * (len(_PARTS) if pooling == "concat" else 1)
        if pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(size, options.hidden_size), nn.Tanh(), nn.Linear(options.hidden_size, 1)
            )
        self.head = nn.Linear(size, num_outputs)

    def forward(self, batch: Batch) -> Output:
        """Compute the outputs. `encode` describes the fields of the batch."""
        output, state, linear = self.encode(batch)
        pooled, weights = self._pool(output, state, step_mask(batch["lengths"], output))
        return Output(self.head(self.dropout(pooled)) + linear, weights)

    def encode(self, batch: Batch) -> tuple[Tensor, Any, Tensor | float]:
        """Return the layers' output `(N, L, H)`, their final states, and the outputs of the map `linear`, `(N, K)`.

        Args:
            batch: `units` (tokens, `(N, L)`) or `series` (`(N, L, C)`), `lengths` (`(N,)`) and, in the training of some
                networks, `linear`, outputs that are used instead of those of this map (`(N, K)`)
        """
        inputs: tuple[Tensor, ...]
        if self.embedding is None:
            steps = batch["series"]
            inputs = steps, batch["lengths"]
        else:
            inputs = (drop_tokens(batch, self.word_dropout if self.training else 0.0, FIRST),)
            steps = self.dropout(self.embedding(*inputs))
        linear: Tensor | float = 0.0
        if "linear" in batch and self.training:
            linear = batch["linear"]
        elif self.linear is not None:
            linear = self.linear(*inputs).sum(1)
        output, state = self.encoder(steps, lengths=batch["lengths"])
        return output, state, linear

    def _pool(self, output: Tensor, state: Any, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The pooled outputs, `(N, H)` or, with concat pooling, `(N, 3 H)`, and the weights of attention pooling."""
        if self.pooling == "attention":
            weights = self.attention(output).squeeze(-1).masked_fill(~mask, -torch.inf).softmax(-1)
            return (weights[:, None] @ output).squeeze(1), weights
        pools = {
            "last": lambda: last_outputs(self.encoder, state),
            "mean": lambda: output.sum(1) / mask.sum(1, keepdim=True),  # the outputs of padded steps are zero
            "max": lambda: output.masked_fill(~mask[..., None], -torch.inf).amax(1),
        }
        return torch.cat(
            [pools[part]() for part in (_PARTS if self.pooling == "concat" else (self.pooling,))], -1
        ), None
