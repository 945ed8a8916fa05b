"""`nn.Linear` for inference: without gradients, large matrix products run in oneDNN."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN

_WORTHWHILE = 2**20  # multiplications; a oneDNN call has about 10 microseconds more overhead


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`.

    In single precision torch calls MKL, which uses half of Zen 5's vector width: 80 GFLOP/s vs. 200 GFLOP/s with
    oneDNN. Only Zen 5 was measured; other processors use oneDNN as well. The oneDNN operator has no gradient in torch,
    so training uses `F.linear`.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not _fits(input, weight):
        return F.linear(input, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return product


class Linear(nn.Linear):
    """`nn.Linear` that calls `linear`.

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
    """An output layer with tied weights: the product of a state, projected to the embedding size, and each embedding.

    Args:
        embedding: the tied embedding; it is not registered here, so that a saved model contains it once
        hidden_size: the size of a state
    """

    def __init__(self, embedding: nn.Embedding, hidden_size: int):
        super().__init__()
        same = hidden_size == embedding.embedding_dim
        self.projection = nn.Identity() if same else nn.Linear(hidden_size, embedding.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings - UNKNOWN))
        nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)
        with torch.no_grad():
            embedding.weight[PADDING].zero_()

    def forward(self, states: Tensor, vectors: Tensor) -> Tensor:
        """From states, `(N, L, H)`, and all embeddings, `(units, E)`, to scores, `(N, L, units - 1)`."""
        return linear(self.projection(states), vectors[UNKNOWN:], self.bias)


def _fits(input: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is available, supports these tensors, and is faster for this size."""
    return (
        input.device.type == "cpu"
        and input.dtype == weight.dtype == torch.float32
        and input.numel() * weight.shape[0] >= _WORTHWHILE
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
