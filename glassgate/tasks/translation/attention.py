"""Attention of each step of the decoder to the states of the source."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import move
from glassgate.tasks.networks.encoder import step_mask
from glassgate.tasks.networks.linear import Linear

SCALED_KINDS = ("general", "dot")
"""The kinds whose scores are divided by the square root of the query's size."""

KINDS = (*SCALED_KINDS, "additive")


class Memory(NamedTuple):
    """Keys and values of a batch of sentences, computed once from the states of the encoder.

    Attributes:
        values: the vectors whose weighted mean is a context, `(N, S, H)`; `(N, S, M)` if `Attention` is plain
        keys: the vectors with which a query is compared, `(N, S, H)`
        lengths: the number of tokens of each sentence, `(N,)`, on the CPU
    """

    values: Tensor
    keys: Tensor
    lengths: Tensor

    def select(self, sentences: Tensor) -> "Memory":
        """Return the sentences with these indices (a CPU tensor), without unnecessary padding."""
        lengths = self.lengths[sentences]
        longest, rows = int(lengths.max()), move(sentences, self.values.device)
        return Memory(self.values[rows, :longest], self.keys[rows, :longest], lengths)


class Attention(nn.Module):
    """Weights over the source for each query, and the weighted mean of the values. The weight of padding is exactly 0.

    In the papers, a matrix is applied to the context. Here it is applied to the values, unless `plain` is set. This
    needs fewer operations. The result is the same, because a matrix times a mean is the mean of the products.

    Args:
        kind: the score of a query q and a state m: "additive", `v tanh(W q + U m + b)` (Bahdanau, Cho & Bengio
            2015, arXiv:1409.0473); "general", `q W m`; or "dot", `q m`, with the two directions of m added (Luong,
            Pham & Manning 2015, arXiv:1508.04025). The latter two are divided by the root of H (Vaswani et al. 2017,
            equation 1). Without the division, one weight is 1 and the others are 0 throughout the training
        query_size, memory_size: H, the size of a query, and M, the size of a state of the encoder
        directions: the number of directions of the encoder
        plain: whether a context is the mean of the states themselves, `(N, T, M)`

    Example:
        >>> attention = Attention("general", query_size=4, memory_size=6, directions=2)
        >>> memory = attention.memory(torch.randn(2, 5, 6), lengths=torch.tensor([5, 3]))
        >>> context, weights = attention(torch.randn(2, 7, 4), memory)
        >>> context.shape, weights.shape, weights[1, 0, 3:].tolist()
        (torch.Size([2, 7, 4]), torch.Size([2, 7, 5]), [0.0, 0.0])
    """

    def __init__(self, kind: str, query_size: int, memory_size: int, directions: int, plain: bool = False):
        super().__init__()
        self.kind, self.directions = kind, directions
        self.value = nn.Identity() if plain else Linear(memory_size, query_size, bias=False)
        if kind == "general":
            self.key = Linear(memory_size, query_size, bias=False)
        elif kind == "additive":
            self.key = Linear(memory_size, query_size)
            self.query = Linear(query_size, query_size, bias=False)
            self.score = Linear(query_size, 1, bias=False)

    def memory(self, states: Tensor, lengths: Tensor) -> Memory:
        """Return keys and values for the states of an encoder, `(N, S, M)`, with the numbers of tokens, `(N,)`."""
        keys = states.unflatten(-1, (self.directions, -1)).sum(-2) if self.kind == "dot" else self.key(states)
        if self.kind in SCALED_KINDS:
            keys = keys / keys.shape[-1] ** 0.5
        return Memory(self.value(states), keys, lengths)

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return contexts, `(N, T, H)`, and weights, `(N, T, S)`, for queries, `(N, T, H)`."""
        padding = ~step_mask(memory.lengths, memory.values)
        weights = self.scores(query, memory).masked_fill(padding[:, None], -torch.inf).softmax(-1)
        return weights @ memory.values, weights

    def scores(self, query: Tensor, memory: Memory) -> Tensor:
        """Return the score of each query and each state, `(N, T, S)`."""
        if self.kind == "additive":
            hidden = (self.query(query)[:, :, None] + memory.keys[:, None]).tanh()
            return self.score(hidden).squeeze(-1)
        return query @ memory.keys.transpose(1, 2)
