"""`nn.Linear` for decoding: where no gradient is asked for, a large product is oneDNN's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN

_WORTHWHILE = 2**20  # multiplications; oneDNN takes some 10 microseconds more for a call


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`.

    In single precision torch asks MKL, which leaves half of Zen 5's vector width unused: 80 GFLOP/s where oneDNN
    reaches 200. That is the one processor it was measured on; others take oneDNN's as well. torch gives it no
    gradient, so training is left as it is.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _fits(input, weight):
        return F.linear(input, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return product


class Linear(nn.Linear):
    """`nn.Linear` whose product is `linear`.

    Example:
        >>> layer = Linear(3, 2)
        >>> with torch.no_grad():
        ...     layer(torch.ones(4, 3)).shape
        torch.Size([4, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """From `(..., I)` to `(..., O)`."""
        return linear(input, self.weight, self.bias)


class Tied(nn.Module):
    """Scores by the likeness of a state, brought to the embedding's size, to each token's vector.

    Args:
        embedding: where the vectors are; it stays the network's alone, so that a saved model holds them once
        hidden_size: of a state
    """

    def __init__(self, embedding: nn.Embedding, hidden_size: int):
        super().__init__()
        same = hidden_size == embedding.embedding_dim
        self.narrow = nn.Identity() if same else nn.Linear(hidden_size, embedding.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings - UNKNOWN))
        nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)
        with torch.no_grad():
            embedding.weight[PADDING].zero_()

    def forward(self, states: Tensor, vectors: Tensor) -> Tensor:
        """From states, `(N, L, H)`, and all vectors, `(units, E)`, to `(N, L, units - 1)`."""
        return linear(self.narrow(states), vectors[UNKNOWN:], self.bias)


def _fits(input: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is there, and the numbers are such that it takes them as MKL does."""
    return (
        input.device.type == "cpu"
        and input.dtype == weight.dtype == torch.float32
        and input.numel() * weight.shape[0] >= _WORTHWHILE
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
