"""The blocks of xLSTM: sLSTM with the parameters of TiRex, and mLSTM with those of xLSTM-7B."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from glassgate.blocks.parts import Recurrence
from glassgate.cells.direct import Exponential
from glassgate.cells.slstm import SLSTM
from glassgate.layers.stack import Recurrent

GATES = ("fgate", "igate", "zgate", "ogate")
"""The names of the weights of i, f, z and o in public checkpoints. The published code exchanges the first two."""


class FeedForward(nn.Module):
    """The feed-forward network of a block: proj_down(silu(proj_up_gate(x)) proj_up(x))."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.proj_up_gate = nn.Linear(hidden_size, inner_size, bias=False)
        self.proj_up = nn.Linear(hidden_size, inner_size, bias=False)
        self.proj_down = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj_down(F.silu(self.proj_up_gate(x)) * self.proj_up(x))


def inner_size(hidden_size: int, factor: float) -> int:
    """Compute the size of a feed-forward network, rounded up to a multiple of 64."""
    return -int(-hidden_size * factor // 64) * 64


class Headwise(nn.Module):
    """A parametrization of input weights: a gate of a head reads only the features of the head."""

    def __init__(self, gates: int, heads: int) -> None:
        super().__init__()
        self.gates, self.heads = gates, heads

    def forward(self, blocks: Tensor) -> Tensor:
        """Return the weight (gates * rows, columns) with the blocks (gates, heads, rows / heads, columns / heads)."""
        diagonal = torch.eye(self.heads, dtype=blocks.dtype, device=blocks.device)
        return (blocks[..., None, :] * diagonal[:, None, :, None]).flatten(3).flatten(0, 2)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the blocks of a weight."""
        blocks = weight.view(self.gates, self.heads, -1, self.heads, weight.shape[1] // self.heads)
        return blocks.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)


class HeadNorm(nn.Module):
    """Layer normalisation of each head of (N, L, heads * size), with a scale of 1 if the weight is `start`."""

    def __init__(self, start: Tensor, heads: int, eps: float) -> None:
        super().__init__()
        self.heads, self.eps, self.offset = heads, eps, 1 - start[0].item()
        self.weight = nn.Parameter(start)

    def forward(self, h: Tensor) -> Tensor:
        by_head = h.unflatten(-1, (self.heads, -1))
        return F.layer_norm(by_head, by_head.shape[-1:], eps=self.eps).view_as(h) * (self.offset + self.weight)


class SLSTMLayer(nn.Module):
    """An sLSTM with a norm per head; see `SLSTMBlock`. `recurrent` is the layer."""

    def __init__(self, hidden_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.recurrent = Recurrent(SLSTM(heads), hidden_size, hidden_size, batch_first=True)
        parametrize.register_parametrization(self.recurrent, "weight_ih_l0", Headwise(4, heads))
        self.group_norm = HeadNorm(torch.zeros(hidden_size), heads, 1e-5)
        self.register_load_state_dict_pre_hook(_from_public)
        self.register_state_dict_post_hook(_to_public)

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        h, state = self.recurrent(x, state)
        return self.group_norm(h), state


_OWN = {
    "weight_ih": "recurrent.parametrizations.weight_ih_l0.original",
    "weight_hh": "recurrent.weight_hh_l0",
    "bias_ih": "recurrent.bias_ih_l0",
    "bias_hh": "recurrent.bias_hh_l0",
}
_KERNEL, _BIAS = "slstm_cell._recurrent_kernel_", "slstm_cell._bias_"


def _from_public(layer: SLSTMLayer, values: dict[str, Any], prefix: str, *_: Any) -> None:
    """Replace the parameters of a public checkpoint by those of the layer."""
    public = [prefix + name for name in (*(f"{gate}.weight" for gate in GATES), _KERNEL, _BIAS)]
    if not all(name in values for name in public):
        return  # loading reports the missing names
    *gates, kernel, bias = (values.pop(name) for name in public)
    heads, size = kernel.shape[:2]
    bias = bias.view(heads, 4, size).transpose(0, 1).flatten()
    own = {
        "weight_ih": torch.stack(gates),
        "weight_hh": kernel.view(heads, size, 4, size).permute(2, 0, 3, 1).reshape(-1, size),
        "bias_ih": bias,
        "bias_hh": torch.zeros_like(bias),
    }
    values.update({prefix + _OWN[name]: value for name, value in own.items()})


def _to_public(layer: SLSTMLayer, values: dict[str, Any], prefix: str, *_: Any) -> None:
    """Replace the parameters of the layer by those of a public checkpoint."""
    own = {name: values.pop(prefix + key) for name, key in _OWN.items()}
    size = own["weight_hh"].shape[1]
    kernel = own["weight_hh"].view(4, layer.heads, size, size).permute(1, 3, 0, 2).flatten(2)
    bias = (own["bias_ih"] + own["bias_hh"]).view(4, layer.heads, size).transpose(0, 1).flatten()
    public = dict(zip((f"{gate}.weight" for gate in GATES), own["weight_ih"].unbind(), strict=True))
    public |= {_KERNEL: kernel, _BIAS: bias}
    values.update({prefix + name: value for name, value in public.items()})


class MLSTMLayer(nn.Module):
    """An mLSTM with its projections and output gate; see `MLSTMBlock`."""

    def __init__(self, hidden_size: int, heads: int, key_factor: float) -> None:
        super().__init__()
        keys = int(hidden_size * key_factor)
        self.heads = heads
        self.q, self.k = (nn.Linear(hidden_size, keys, bias=False) for _ in range(2))
        self.v, self.ogate_preact = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(2))
        self.igate_preact, self.fgate_preact = (nn.Linear(hidden_size, heads) for _ in range(2))
        self.recurrence = Recurrence(Exponential(heads, keys // heads, hidden_size // heads))
        self.multihead_norm = HeadNorm(torch.ones(hidden_size), heads, 1e-6)
        self.out_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        i, f = (15 * torch.tanh(layer(x) / 15) for layer in (self.igate_preact, self.fgate_preact))
        h, state = self.recurrence.run(state, q=q * q.shape[-1] ** -0.5, k=k, v=v, i=i, f=f)
        return self.out_proj(torch.sigmoid(self.ogate_preact(x)) * self.multihead_norm(h.flatten(2))), state


class Block(nn.Module):
    """The residual connections of both blocks: x = x + layer(norm(x)), x = x + ffn(norm(x)).

    Args:
        kind: "slstm" or "mlstm", which is part of the names of the layer and of its norm in public checkpoints.
        layer: the layer.
        hidden_size: the size of input and output.
        factor: the size of the feed-forward network is hidden_size * factor, rounded up to a multiple of 64.
    """

    def __init__(self, kind: str, layer: nn.Module, hidden_size: int, factor: float) -> None:
        super().__init__()
        self._norm, self._layer = f"norm_{kind}", f"{kind}_layer"
        self.add_module(self._norm, nn.RMSNorm(hidden_size, 1e-6))
        self.add_module(self._layer, layer)
        self.norm_ffn = nn.RMSNorm(hidden_size, 1e-6)
        self.ffn = FeedForward(hidden_size, inner_size(hidden_size, factor))

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run the block.

        Args:
            x: the input (N, L, hidden_size).
            state: the state that an earlier call returned; None for the beginning of the sequences.

        Returns:
            the output (N, L, hidden_size), and the states of the recurrent layer.
        """
        y, state = self.get_submodule(self._layer)(self.get_submodule(self._norm)(x), state)
        x = x + y
        return x + self.ffn(self.norm_ffn(x)), state


class SLSTMBlock(Block):
    """An sLSTM block of xLSTM (Beck et al. 2024, arXiv:2405.04517), as in TiRex: `block_stack.blocks.0` and so on.

    x = x + norm(sLSTM(norm(x))),  x = x + ffn(norm(x)), where the sLSTM is `gg.cells.SLSTM`, whose gates read the
    features of their head, the inner norm is one per head, and ffn is a gated feed-forward network

    TiRex limits the forget gate to sigmoid(15), a difference of 3e-7.

    Args:
        hidden_size: the size of input and output.
        heads: the number of heads.
        factor: the size of the feed-forward network is hidden_size * factor, rounded up to a multiple of 64.

    Example:
        >>> import torch, glassgate as gg
        >>> block = gg.blocks.SLSTMBlock(32, heads=4)
        >>> y, state = block(torch.randn(2, 5, 32))
        >>> y.shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, hidden_size: int, *, heads: int = 4, factor: float = 2.6667) -> None:
        super().__init__("slstm", SLSTMLayer(hidden_size, heads), hidden_size, factor)


class MLSTMBlock(Block):
    """An mLSTM block of xLSTM-7B (Beck et al. 2025, arXiv:2503.13427): `backbone.blocks.0` and so on of a checkpoint.

    x = x + out_proj(sigmoid(o) norm(mLSTM(q, k, v, i, f))),  x = x + ffn(norm(x)), where q, k, v, o, i and f are linear
    functions of norm(x), i and f limited to 15 tanh(i / 15), and the mLSTM is that of `gg.cells.MLSTM`

    Args:
        hidden_size: the size of input and output.
        heads: the number of heads.
        key_factor: the size of all keys, as a fraction of hidden_size.
        factor: the size of the feed-forward network is hidden_size * factor, rounded up to a multiple of 64.

    Example:
        >>> import torch, glassgate as gg
        >>> block = gg.blocks.MLSTMBlock(32, heads=4)
        >>> y, state = block(torch.randn(2, 5, 32))
        >>> y.shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, hidden_size: int, *, heads: int = 8, key_factor: float = 0.5, factor: float = 2.6667) -> None:
        super().__init__("mlstm", MLSTMLayer(hidden_size, heads, key_factor), hidden_size, factor)
