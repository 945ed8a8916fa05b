"""The RWKV-7 block: time mixing and channel mixing, with the parameters of the public checkpoints."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassgate.blocks.parts import Recurrence
from glassgate.cells.direct import ChannelDelta

Memory = tuple[Tensor, ...]
State = tuple[Tensor, Memory, Tensor]


def change(x: Tensor, past: Tensor | None) -> Tensor:
    """Compute the previous input minus the input, (N, L, D), where `past` is the last input before x."""
    first = torch.zeros_like(x[:, :1]) if past is None else past[:, None]
    return torch.cat([first, x[:, :-1]], 1) - x


class TimeMixing(nn.Module):
    """The time mixing of RWKV-7; see `RWKV7Block`."""

    x_r: Tensor
    x_w: Tensor
    x_k: Tensor
    x_v: Tensor
    x_a: Tensor
    x_g: Tensor
    w0: Tensor
    a0: Tensor
    v0: Tensor
    w1: Tensor
    w2: Tensor
    a1: Tensor
    a2: Tensor
    v1: Tensor
    v2: Tensor
    g1: Tensor
    g2: Tensor
    receptance: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear

    def __init__(self, hidden_size: int, head_size: int, ranks: tuple[int, int, int, int], first: bool) -> None:
        super().__init__()
        D, heads = hidden_size, hidden_size // head_size
        self.heads = heads
        for name in "rwkvag":
            setattr(self, f"x_{name}", nn.Parameter(torch.zeros(1, 1, D)))
        for name, rank in zip("wavg", ranks, strict=True):
            if name == "v" and first:
                continue
            if name != "g":
                setattr(self, f"{name}0", nn.Parameter(torch.zeros(1, 1, D)))
            setattr(self, f"{name}1", nn.Parameter(torch.zeros(D, rank)))
            setattr(self, f"{name}2", nn.Parameter(torch.empty(rank, D).uniform_(-(rank**-0.5), rank**-0.5)))
        self.k_k, self.k_a = nn.Parameter(torch.ones(1, 1, D)), nn.Parameter(torch.ones(1, 1, D))
        self.r_k = nn.Parameter(torch.zeros(heads, head_size))
        for name in ("receptance", "key", "value", "output"):
            setattr(self, name, nn.Linear(D, D, bias=False))
        self.ln_x = nn.GroupNorm(heads, D, eps=64e-5)
        self.recurrence = Recurrence(ChannelDelta(heads, head_size, head_size))
        if first:
            self.register_load_state_dict_pre_hook(_drop_unused)

    def forward(
        self, x: Tensor, v_first: Tensor | None, past: Tensor | None, memory: Memory | None
    ) -> tuple[Tensor, Tensor, Memory]:
        d = change(x, past)
        r, k, v = (
            layer(x + d * mix)
            for layer, mix in ((self.receptance, self.x_r), (self.key, self.x_k), (self.value, self.x_v))
        )
        w = self.w0 + torch.tanh((x + d * self.x_w) @ self.w1) @ self.w2
        b = torch.sigmoid(self.a0 + (x + d * self.x_a) @ self.a1 @ self.a2)
        g = torch.sigmoid((x + d * self.x_g) @ self.g1) @ self.g2
        if v_first is None:
            v_first = v
        else:
            v = v + (v_first - v) * torch.sigmoid(self.v0 + (x + d * self.x_v) @ self.v1 @ self.v2)
        r, f, kk, v, b = (
            u.unflatten(-1, (self.heads, -1)) for u in (r, -math.exp(-0.5) * torch.sigmoid(w), k * self.k_k, v, b)
        )
        e = F.normalize(kk, dim=-1)
        k = k.unflatten(-1, (self.heads, -1)) * (1 + (b - 1) * self.k_a.view(self.heads, -1))
        h, memory = self.recurrence.run(memory, q=r, k=k, v=v, f=f.exp(), e=e, b=e * b)
        h = self.ln_x(h.flatten(0, 1).flatten(1)).view_as(h)
        h = h + (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.output(h.flatten(2) * g), v_first, memory


def _drop_unused(mixing: TimeMixing, values: dict[str, Any], prefix: str, *_: Any) -> None:
    """Remove the parameters of v that checkpoints contain for the first block, which does not read them."""
    for name in ("v0", "v1", "v2"):
        values.pop(prefix + name, None)


class ChannelMixing(nn.Module):
    """The channel mixing of RWKV-7; see `RWKV7Block`."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.x_k = nn.Parameter(torch.zeros(1, 1, hidden_size))
        self.key = nn.Linear(hidden_size, inner_size, bias=False)
        self.value = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, x: Tensor, past: Tensor | None) -> Tensor:
        return self.value(F.relu(self.key(x + change(x, past) * self.x_k)).square())


class RWKV7Block(nn.Module):
    """A block of RWKV-7 (Peng et al. 2025, arXiv:2503.14456): `blocks.0` and so on of a checkpoint.

    x_n is x + x_n (x_prev - x), a mixture with the previous step, for each of r, w, k, v, a and g.

    r, k, v = linear functions of x_r, x_k, x_v,  w = exp(-exp(-1 / 2) sigmoid(w0 + tanh(x_w w1) w2)),
    b = sigmoid(a0 + x_a a1 a2),  g = sigmoid(x_g g1) g2,  v = v + (v_first - v) sigmoid(v0 + x_v v1 v2),
    e = k k_k / |k k_k|,  k = k (1 + (b - 1) k_a),  S = diag(w) S_prev - (b e) (S_prev^T e)^T + k v^T,
    h = norm(S^T r) + (r k r_k) v,  x = x + output(h g),  x = x + value(relu(key(x_k))^2)

    Args:
        hidden_size: the size of input and output.
        head_size: the size of a head.
        inner_size: the size of the channel mixing; None for four times the hidden size.
        ranks: the ranks of w1, a1, v1 and g1.
        first: whether this is the first block. It has another norm `ln0`, and its v is `v_first` of the others.

    Example:
        >>> import torch, glassgate as gg
        >>> first = gg.blocks.RWKV7Block(32, head_size=8, first=True)
        >>> second = gg.blocks.RWKV7Block(32, head_size=8)
        >>> y, v_first, _ = first(torch.randn(2, 5, 32))
        >>> y, _, state = second(y, v_first)
        >>> y.shape
        torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        head_size: int = 64,
        inner_size: int | None = None,
        ranks: tuple[int, int, int, int] = (64, 64, 32, 128),
        first: bool = False,
    ) -> None:
        super().__init__()
        if hidden_size % head_size:
            raise ValueError(
                f"RWKV7Block: hidden_size must be a multiple of head_size, got {hidden_size} and {head_size}"
            )
        self.first = first
        if first:
            self.ln0 = nn.LayerNorm(hidden_size)
        self.ln1, self.ln2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.att = TimeMixing(hidden_size, head_size, ranks, first)
        self.ffn = ChannelMixing(hidden_size, inner_size or 4 * hidden_size)

    def forward(
        self, x: Tensor, v_first: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Run the block.

        Args:
            x: the input (N, L, hidden_size).
            v_first: v of the first block, (N, L, hidden_size); None in the first block.
            state: the state that an earlier call returned; None for the beginning of the sequences.

        Returns:
            the output (N, L, hidden_size), v_first, and the state: the last input of the time mixing, the states of
            `att.recurrence`, and the last input of the channel mixing.

        Raises:
            ValueError: v_first is missing, or given to the first block.
        """
        if (v_first is None) != self.first:
            expected = "no v_first" if self.first else "v_first, which the first block returns"
            raise ValueError(f"RWKV7Block: a block with first={self.first} needs {expected}")
        past, memory, past_channels = state or (None, None, None)
        if self.first:
            x = self.ln0(x)
        mixed = self.ln1(x)
        y, v_first, memory = self.att(mixed, v_first, past, memory)
        x = x + y
        channels = self.ln2(x)
        return x + self.ffn(channels, past_channels), v_first, (mixed[:, -1], memory, channels[:, -1])
