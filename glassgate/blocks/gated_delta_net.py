"""The Gated DeltaNet block, with the parameters of Qwen3-Next."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassgate.blocks.parts import CausalConvolution, Recurrence
from glassgate.cells.direct import GatedDelta

State = tuple[Tensor, tuple[Tensor, ...]]


class GatedDeltaNetBlock(nn.Module):
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next: the module `linear_attn` of a layer.

    q, k, v, z, b, a = projections of x, in one group per key head,  q, k, v = silu(convolution of q, k, v),
    q = q / |q| / sqrt(key_size),  k = k / |k|,  b = sigmoid(b),  f = exp(-exp(A_log) softplus(a + dt_bias)),
    S = f S_prev + b k (v - f S_prev^T k)^T,  h = S^T q,  y = out_proj(norm(h) silu(z))

    Each key head serves value_heads / key_heads value heads.

    Args:
        hidden_size: the size of input and output.
        key_heads, value_heads: the number of heads of keys and values.
        key_size, value_size: the sizes of a key and a value.
        kernel_size: the number of steps that the convolution reads.
        eps: added to the mean square in the norm.

    Example:
        >>> import torch, glassgate as gg
        >>> block = gg.blocks.GatedDeltaNetBlock(32, key_heads=2, value_heads=4, key_size=8, value_size=8)
        >>> y, state = block(torch.randn(2, 5, 32))
        >>> y.shape
        torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        key_heads: int,
        value_heads: int,
        key_size: int,
        value_size: int,
        kernel_size: int = 4,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if value_heads % key_heads:
            raise ValueError(
                f"GatedDeltaNetBlock: value_heads must be a multiple of key_heads, got {value_heads} and {key_heads}"
            )
        self.key_heads, self.key_size, self.value_size = key_heads, key_size, value_size
        self.sizes = key_heads * key_size, key_heads * key_size, value_heads * value_size
        self.in_proj_qkvz = nn.Linear(hidden_size, sum(self.sizes) + self.sizes[2], bias=False)
        self.in_proj_ba = nn.Linear(hidden_size, 2 * value_heads, bias=False)
        self.conv1d = CausalConvolution(sum(self.sizes), kernel_size, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(value_heads))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.recurrence = Recurrence(GatedDelta(value_heads, key_size, value_size))
        self.norm = nn.RMSNorm(value_size, eps)
        self.out_proj = nn.Linear(self.sizes[2], hidden_size, bias=False)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run the block.

        Args:
            x: the input (N, L, hidden_size).
            state: the state that an earlier call returned; None for the beginning of the sequences.

        Returns:
            the output (N, L, hidden_size), and the state: the last inputs of the convolution, and the states of
            `recurrence`.
        """
        past, memory = state or (None, None)
        per_key_head = len(self.A_log) // self.key_heads
        widths = [self.key_size, self.key_size, per_key_head * self.value_size, per_key_head * self.value_size]
        by_head = self.in_proj_qkvz(x).unflatten(-1, (self.key_heads, -1)).split(widths, -1)
        b, a = (v.flatten(2) for v in self.in_proj_ba(x).unflatten(-1, (self.key_heads, -1)).chunk(2, -1))
        mixed, past = self.conv1d.convolve(torch.cat([v.flatten(2) for v in by_head[:3]], -1), past)
        q, k, v = F.silu(mixed).split(self.sizes, -1)
        q, k = (
            (u * torch.rsqrt(u.square().sum(-1, keepdim=True) + 1e-6)).repeat_interleave(per_key_head, 2)
            for u in (q.unflatten(-1, (self.key_heads, -1)), k.unflatten(-1, (self.key_heads, -1)))
        )
        f = torch.exp(-self.A_log.exp() * F.softplus(a + self.dt_bias))
        h, memory = self.recurrence.run(memory, q=q * self.key_size**-0.5, k=k, v=v, f=f, b=torch.sigmoid(b))
        z = by_head[3].reshape(h.shape)
        return self.out_proj((self.norm(h) * F.silu(z)).flatten(2)), (past, memory)
