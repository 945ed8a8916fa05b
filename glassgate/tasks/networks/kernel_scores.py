"""A map of a series to outputs by its distances from the training series."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.batches import move


class KernelScores(nn.Module):
    """A fixed regression with a Gaussian kernel, which compares the `kernel_features` of series.

    The output is the sum of the coefficients of all training series, each multiplied by exp(-rate * distance). The
    distance is the mean squared difference of the features. Large coefficients may cancel in this sum, so it is
    computed in float64, except on Apple's GPUs, which lack it.

    Args:
        support: the features of S training series, `(S, F, C)`
        coefficients: `(S, K)`
        rate: the rate
        differences: whether the features are the differences of the means of adjacent parts, or these means
    """

    support: Tensor
    coefficients: Tensor

    def __init__(self, support: Tensor, coefficients: Tensor, rate: float, differences: bool):
        super().__init__()
        self.register_buffer("support", support, persistent=False)
        self.register_buffer("coefficients", coefficients, persistent=False)
        self.rate, self.differences = rate, differences

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs, `(N, 1, K)`, for padded series, `(N, L, C)`, of lengths `(N,)`."""
        exact = torch.float32 if steps.device.type == "mps" else torch.float64
        found = kernel_features(steps.to(exact), lengths, self.support.shape[1], self.differences)
        distances = (found[:, None] - self.support.to(exact)).square().mean((2, 3))
        outputs = (-self.rate * distances).exp() @ self.coefficients.to(exact)
        return outputs[:, None].to(steps.dtype)


def kernel_features(steps: Tensor, lengths: Tensor, count: int, differences: bool) -> Tensor:
    """Return `count` means of equal parts of each series, or differences of adjacent ones, `(N, count, C)`."""
    means = part_means(steps, lengths, count + differences)
    return means[:, 1:] - means[:, :-1] if differences else means


def part_means(steps: Tensor, lengths: Tensor, parts: int) -> Tensor:
    """Divide series into equal parts and return the mean of each part, `(N, P, C)`.

    A step at the border of two parts belongs to both, in proportion. If there are as many parts as steps, their means
    are the steps.

    Args:
        steps: padded series, `(N, L, C)`
        lengths: `(N,)`
        parts: P

    Example:
        >>> part_means(torch.tensor([[[1.0], [2.0], [3.0], [0.0]]]), torch.tensor([3]), 2).flatten().tolist()
        [1.3333333730697632, 2.6666667461395264]
    """
    lengths = move(lengths, steps.device)[:, None]
    borders = torch.arange(parts + 1, device=steps.device) * lengths  # in units of 1 / P steps
    before = torch.div(borders, parts, rounding_mode="floor")
    fractions = (borders - before * parts).to(steps.dtype) / parts
    padded = F.pad(steps, (0, 0, 0, 1))
    sums = F.pad(steps.cumsum(1), (0, 0, 1, 0))
    index = before[..., None].expand(-1, -1, steps.shape[2])
    integrals = sums.gather(1, index) + fractions[..., None] * padded.gather(1, index)
    return (integrals[:, 1:] - integrals[:, :-1]) * (parts / lengths[..., None])
