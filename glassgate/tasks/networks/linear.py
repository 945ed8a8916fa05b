"""`nn.Linear` for inference: without gradients, large matrix products run in oneDNN."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN

_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # None in versions of torch that lack it
_MIN_MULTIPLICATIONS = 2**20  # for fewer, oneDNN is not faster: its calls have about 10 microseconds more overhead


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`.

    In single precision, `F.linear` calls MKL, which uses only half of Zen 5's vector width: 80 GFLOP/s vs. 200 GFLOP/s
    with oneDNN. Only Zen 5 was measured, but oneDNN is used on all processors. The oneDNN operator has no gradient in
    torch, so training uses `F.linear`.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _can_use_onednn(input, weight):
        return F.linear(input, weight, bias)
    product: Tensor = _ONEDNN(input, weight, bias, "none", [], "")
    return product


class Linear(nn.Linear):
    """`nn.Linear` that calls `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class Tied(nn.Module):
    """An output layer with tied weights. A token's score is the dot product of state and embedding, plus a bias.

    A state of another size is first projected to the size of the embeddings. The embeddings are initialised again.

    Args:
        embedding: the embedding whose weights are shared; it is not registered here, so that a saved model contains it
            only once
        hidden_size: the size of a state
    """

    def __init__(self, embedding: nn.Embedding, hidden_size: int):
        super().__init__()
        is_same_size = hidden_size == embedding.embedding_dim
        self.projection = nn.Identity() if is_same_size else nn.Linear(hidden_size, embedding.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings - UNKNOWN))
        nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)
        with torch.no_grad():
            embedding.weight[PADDING].zero_()

    def forward(self, states: Tensor, vectors: Tensor) -> Tensor:
        """Return scores of all tokens but padding, `(N, L, V - 1)`, from states `(N, L, H)` and embeddings `(V, E)`."""
        return linear(self.projection(states), vectors[UNKNOWN:], self.bias)


def _can_use_onednn(input: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is available, supports these tensors, and is faster for their size."""
    return (
        input.device.type == "cpu"
        and input.dtype == weight.dtype == torch.float32
        and input.numel() * weight.shape[0] >= _MIN_MULTIPLICATIONS
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and _ONEDNN is not None
    )
