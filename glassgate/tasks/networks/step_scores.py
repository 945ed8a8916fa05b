"""A linear map of the values of a series to outputs, as the sum of a part for each step."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.networks.states import step_mask


class StepScores(nn.Module):
    """A fixed linear map of a series to K outputs, as the sum of a part for each step.

    Steps beyond those of the training series have no part.

    Args:
        weight: `(L, C, K)`
        bias: `(L, K)`
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.register_buffer("weight", F.pad(weight, (0, 0, 0, 0, 0, 1)), persistent=False)  # zeros for further steps
        self.register_buffer("bias", F.pad(bias, (0, 0, 0, 1)), persistent=False)

    def forward(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return the part of each step, `(N, L, K)`, of padded series, `(N, L, C)`, of lengths `(N,)`."""
        index = torch.arange(steps.shape[1], device=steps.device).clamp(max=len(self.weight) - 1)
        parts = (steps[..., None] * self.weight[index]).sum(2) + self.bias[index]
        return parts * step_mask(lengths, steps)[..., None]
