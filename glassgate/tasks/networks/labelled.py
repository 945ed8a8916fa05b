"""The encoder of networks that map a text or a series to a label or numbers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for
from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.networks.encoder import encoder
from glassgate.tasks.networks.kernel_scores import KernelScores
from glassgate.tasks.networks.step_scores import StepScores

MAX_WEIGHTS = 2**21
"""The maximum number of weights of the linear map of tokens; a network that would need more has none."""
_SCALE = 10.0  # weights begin at zero and move by about the learning rate per step, which is slow without a factor


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
        linear: "InputMap | None" = None,
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
        """Return the tokens; in training, replace some of them by the unknown token.

        The embedding of the unknown token is trained in this way, even if each token of the training data is known.
        """
        tokens = batch["units"]
        if not (self.training and self.word_dropout):
            return tokens
        drawn = draw_for(batch, lambda shape: torch.rand(shape, device=tokens.device))
        return tokens.masked_fill((tokens >= FIRST) & (drawn < self.word_dropout), UNKNOWN)


class TokenScores(nn.Module):
    """A linear map of the tf-idf of a text to K outputs, as the sum of a part for each token. Initially zero.

    Args:
        rarity: the inverse document frequency of each token, `(V,)`; 0 for padding
        num_outputs: K
    """

    rarity: Tensor

    def __init__(self, rarity: Tensor, num_outputs: int):
        super().__init__()
        self.register_buffer("rarity", rarity, persistent=False)
        self.weight = nn.Parameter(torch.zeros(len(rarity), num_outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the part of each token, `(N, L, K)`, from tokens, `(N, L)`."""
        return F.embedding(tokens, self.weight) * self._factors(tokens)[..., None]

    def features(self, tokens: Tensor) -> Tensor:
        """Return the values by which the output depends on each row of the weights, `(N, V)`."""
        zeros = self.rarity.new_zeros(len(tokens), len(self.rarity))
        return zeros.scatter_add(1, tokens, self._factors(tokens))

    def table(self) -> Tensor:
        """Return the part of each token before the division by the norm of the rarities of a text, `(V, K)`."""
        return self.weight.detach() * (_SCALE * self.rarity[:, None])

    def _factors(self, tokens: Tensor) -> Tensor:
        rarity = self.rarity[tokens]
        norm = rarity.square().sum(1, keepdim=True).sqrt().clamp(min=1.0)  # each token is at least 1; no tokens give 0
        return _SCALE * rarity / norm


InputMap = TokenScores | StepScores | KernelScores
"""A map of a text or a series to outputs, which the network corrects."""
