"""The encoder of networks that map a text or a series to a label or numbers."""

from typing import Any

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for
from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.networks.encoder import encoder
from glassgate.tasks.networks.maps import InputMap


class SequenceEncoder(nn.Module):
    """Recurrent layers over embeddings of tokens or over the steps of a series. Subclasses add the output `head`.

    Args:
        options: sizes, cell and dropout
        vocabulary_size: the number of tokens, including padding and unknown; None for series
        input_size: the number of features of a step
        linear: a map of the tokens or the series to the outputs, which are sums over its second axis; None for none
    """

    def __init__(
        self,
        options: LabelledOptions,
        vocabulary_size: int | None,
        input_size: int,
        linear: InputMap | None = None,
    ):
        super().__init__()
        self.embedding = (
            None if vocabulary_size is None else nn.Embedding(vocabulary_size, input_size, padding_idx=PADDING)
        )
        self.word_dropout = options.word_dropout
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size)
        self.linear = linear

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
            inputs = (self._drop_words(batch),)
            steps = self.dropout(self.embedding(*inputs))
        linear: Tensor | float = 0.0
        if "linear" in batch and self.training:
            linear = batch["linear"]
        elif self.linear is not None:
            linear = self.linear(*inputs).sum(1)
        output, state = self.encoder(steps, lengths=batch["lengths"])
        return output, state, linear

    def _drop_words(self, batch: Batch) -> Tensor:
        """Return the tokens; in training, replace some of them by the unknown token, whose embedding is trained so."""
        tokens = batch["units"]
        if not (self.training and self.word_dropout):
            return tokens
        drawn = draw_for(batch, lambda shape: torch.rand(shape, device=tokens.device))
        return tokens.masked_fill((tokens >= FIRST) & (drawn < self.word_dropout), UNKNOWN)
