"""The Mamba-2 block, with the parameters of the checkpoints of its authors and of transformers."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassgate.blocks.parts import CausalConvolution, Recurrence
from glassgate.cells.direct import Decay

State = tuple[Tensor, tuple[Tensor, ...]]


class GatedNorm(nn.Module):
    """The root mean square norm of h silu(z), in groups of equal size."""

    def __init__(self, size: int, groups: int, eps: float) -> None:
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, h: Tensor, z: Tensor) -> Tensor:
        grouped = (h * F.silu(z)).unflatten(-1, (self.groups, -1))
        return F.rms_norm(grouped, grouped.shape[-1:], eps=self.eps).flatten(-2) * self.weight


class Mamba2Mixer(nn.Module):
    """The mixer of a Mamba-2 block; see `Mamba2Block`."""

    def __init__(
        self, hidden_size: int, heads: int, head_size: int, state_size: int, groups: int, kernel_size: int, eps: float
    ) -> None:
        super().__init__()
        inner = heads * head_size
        self.heads, self.head_size, self.state_size, self.groups = heads, head_size, state_size, groups
        channels = inner + 2 * groups * state_size
        self.in_proj = nn.Linear(hidden_size, inner + channels + heads, bias=False)
        self.conv1d = CausalConvolution(channels, kernel_size, bias=True)
        step = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus
        self.A_log = nn.Parameter(torch.arange(1.0, heads + 1).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.recurrence = Recurrence(Decay(heads, state_size, head_size))
        self.norm = GatedNorm(inner, groups, eps)
        self.out_proj = nn.Linear(inner, hidden_size, bias=False)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        past, memory = state or (None, None)
        inner, keys = self.heads * self.head_size, self.groups * self.state_size
        z, mixed, t = self.in_proj(x).split([inner, inner + 2 * keys, self.heads], -1)
        mixed, past = self.conv1d.convolve(mixed, past)
        v, k, q = F.silu(mixed).split([inner, keys, keys], -1)
        v = v.unflatten(-1, (self.heads, -1))
        k, q = (u.unflatten(-1, (self.groups, -1)).repeat_interleave(self.heads // self.groups, 2) for u in (k, q))
        t = F.softplus(t + self.dt_bias)
        f = torch.exp(-self.A_log.exp() * t)
        h, memory = self.recurrence.run(memory, q=q, k=k, v=t[..., None] * v, f=f)
        h = h + self.D[:, None] * v
        return self.out_proj(self.norm(h.flatten(2), z)), (past, memory)


class Mamba2Block(nn.Module):
    """A block of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060).

    z, v, B, C, t = in_proj(norm(x)),  v, B, C = silu(convolution of v, B, C),  t = softplus(t + dt_bias),
    S = exp(-exp(A_log) t) S_prev + t B v^T,  h = S^T C + D v,  y = x + out_proj(norm(h silu(z)))

    Args:
        hidden_size: the size of input and output.
        heads, head_size: the number of heads and the size of v of a head.
        state_size: the size of B and C.
        groups: the number of different B and C; each serves heads / groups heads.
        kernel_size: the number of steps that the convolution reads.
        eps: added to the mean squares in the norms.

    Example:
        >>> import torch, glassgate as gg
        >>> block = gg.blocks.Mamba2Block(32, heads=4, head_size=16, state_size=8)
        >>> y, state = block(torch.randn(2, 5, 32))
        >>> y.shape
        torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        heads: int,
        head_size: int = 64,
        state_size: int = 128,
        groups: int = 1,
        kernel_size: int = 4,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if heads % groups:
            raise ValueError(f"Mamba2Block: heads must be a multiple of groups, got {heads} and {groups}")
        self.norm = nn.RMSNorm(hidden_size, eps)
        self.mixer = Mamba2Mixer(hidden_size, heads, head_size, state_size, groups, kernel_size, eps)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run the block.

        Args:
            x: the input (N, L, hidden_size).
            state: the state that an earlier call returned; None for the beginning of the sequences.

        Returns:
            the output (N, L, hidden_size), and the state: the last inputs of the convolution, and the states of
            `mixer.recurrence`.
        """
        mixed, state = self.mixer(self.norm(x), state)
        return x + mixed, state
