"""Cells with a matrix memory in PyTorch by chunks: matrix products inside a chunk, a loop over chunks.

With this form, PyTorch is fastest. It exists for cells whose memory decays, and for the delta rule.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid, normalize, silu

from experiments.speed.peers.layer import Layer
from experiments.speed.peers.ours import layer_of
from experiments.speed.workload import Workload

CHUNK = 64
"""The steps of a chunk. 32 and 128 are not faster."""


def decayed(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """S = exp(log_decay) S_prev + k v^T,  h = S^T q; all values (N, heads, L, size)."""
    outputs = []
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    for chunk in zip(*(x.split(CHUNK, 2) for x in (q, k, v, log_decay)), strict=True):
        qc, kc, vc, log = chunk
        b = log.cumsum(2)
        grown, shrunk = qc * b.exp(), kc * (-b).exp()
        scores = (grown @ shrunk.mT).masked_fill(~causal[: qc.shape[2], : qc.shape[2]], 0.0)
        outputs.append(scores @ vc + grown @ S)
        S = b[:, :, -1, :, None].exp() * S + (kc * (b[:, :, -1:] - b).exp()).mT @ vc
    return torch.cat(outputs, 2), S


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """S = S_prev + beta k (v - S_prev^T k)^T,  h = S^T q; the triangular systems of arXiv:2406.06484, section 3."""
    outputs = []
    for qc, kc, vc, bc in zip(*(x.split(CHUNK, 2) for x in (q, k, v, beta)), strict=True):
        steps = qc.shape[2]
        system = torch.eye(steps, dtype=q.dtype, device=q.device) + ((bc * kc) @ kc.mT).tril(-1)
        both = torch.linalg.solve_triangular(system, torch.cat([bc * kc, bc * vc], -1), upper=False)
        w, u = both.split([kc.shape[-1], vc.shape[-1]], -1)
        new = u - w @ S
        outputs.append(qc @ S + (qc @ kc.mT).tril() @ new)
        S = S + kc.mT @ new
    return torch.cat(outputs, 2), S


def _retention(gates: dict[str, Tensor], parameters: dict[str, Tensor], S: Tensor) -> tuple[Tensor, Tensor]:
    log_decay = torch.log1p(-torch.exp2(-parameters["decay"]))[:, None, None].expand_as(gates["k"][..., :1])
    return decayed(gates["q"], gates["k"], gates["v"], log_decay, S)


def _gated(gates: dict[str, Tensor], parameters: dict[str, Tensor], S: Tensor) -> tuple[Tensor, Tensor]:
    return decayed(gates["q"], gates["k"], gates["v"], logsigmoid(gates["f"]) / 16, S)


def _delta(gates: dict[str, Tensor], parameters: dict[str, Tensor], S: Tensor) -> tuple[Tensor, Tensor]:
    q, k = normalize(silu(gates["q"]), dim=-1), normalize(silu(gates["k"]), dim=-1)
    return delta_rule(q, k, gates["v"], torch.sigmoid(gates["b"]), S)


RECURRENCES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "RetNet": _retention, "GLA": _gated, "DeltaNet": _delta,
}  # fmt: skip


class Chunked(nn.Module):
    """A layer with the parameters of Glassgate's layer."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        layer = layer_of(workload)
        self.name, self.heads = workload.cell, layer.cell.heads
        declaration: Any = layer.cell.declaration
        self.gates = {name: len(axes.axes) > 1 for name, axes in declaration.gates.items()}
        self.own = [*layer.cell.parameters]
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, x: Tensor, hx: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the input (L, N, H_in) and the states to the output and the final states."""
        rows = linear(x, self.get_parameter("weight_ih_l0"), self.get_parameter("bias_ih_l0"))
        size = rows.shape[-1] // (self.heads * sum(self.gates.values()))
        blocks = rows.split([self.heads * (size if wide else 1) for wide in self.gates.values()], -1)
        gates = {
            name: v.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
            for name, v in zip(self.gates, blocks, strict=True)
        }
        parameters = {name: getattr(self, f"{name}_l0") for name in self.own}
        output, S = RECURRENCES[self.name](gates, parameters, hx[1][0])
        output = output.permute(2, 0, 1, 3).flatten(2)
        return output, (output[-1:], S[None])


def prepare(workload: Workload) -> Layer:
    """Return the layer."""
    layer = Chunked(workload)
    shapes = [(workload.H,), (layer.heads, workload.H // layer.heads, workload.H // layer.heads)]
    return Layer(workload, layer, ("h", "S"), lambda x, hx, resets: layer(x, hx), shapes)
