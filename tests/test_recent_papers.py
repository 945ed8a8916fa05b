"""Cells of papers of 2024 and 2025 that the package does not contain, in few lines, run on kernels.

Each equals the definition of its paper, computed without a recurrence or with gradients of torch.
"""

import inspect

import pytest
import torch
from torch import einsum, sigmoid
from torch.nn import functional as F

import glassgate as gg
from tests.compare import noise

KEY, VALUE = ("heads", "key"), ("heads", "value")
MEMORY = ("heads", "key", "value")


class TTTLinear(gg.Cell):
    """Test-time training (Sun et al. 2024, arXiv:2407.04620): a linear model with layer normalisation is the state."""

    gates = {"q": KEY, "k": KEY, "v": VALUE, "eta": ("heads",)}
    state = {"h": VALUE, "W": MEMORY, "b": VALUE}
    parameters = {"gain": gg.Parameter(1.0, axes=VALUE), "bias": gg.Parameter(axes=VALUE)}
    recurrent = False
    heads, key, value = 2, 4, 4

    def step(self, a, s, p):
        z = einsum("nhk,nhkv->nhv", a.k, s.W) + s.b
        std = torch.sqrt(z.var(-1, keepdim=True, unbiased=False) + 1e-5)
        normal = (z - z.mean(-1, keepdim=True)) / std
        d = (p.gain * normal + p.bias - (a.v - a.k)) * p.gain
        d = (d - d.mean(-1, keepdim=True) - normal * (d * normal).mean(-1, keepdim=True)) / std
        eta = sigmoid(a.eta)[..., None]
        W, b = s.W - (eta * a.k)[..., None] * d[..., None, :], s.b - eta * d
        z = einsum("nhk,nhkv->nhv", a.q, W) + b
        return a.q + p.gain * F.layer_norm(z, z.shape[-1:]) + p.bias, W, b


def ttt_linear(gates, p):
    """The gradient descent of the inner loss, by autograd."""
    q, k, v, eta = gates
    W, b = (v.new_zeros(*v.shape[1:3], *size) for size in ((4, 4), (4,)))

    def model(x, W, b):
        z = einsum("nhk,nhkv->nhv", x, W) + b
        return x + p["gain"] * F.layer_norm(z, (4,)) + p["bias"]

    outputs = []
    for t in range(len(q)):
        W, b = W.detach().requires_grad_(), b.detach().requires_grad_()
        loss = 0.5 * (model(k[t], W, b) - v[t]).square().sum()
        d_W, d_b = torch.autograd.grad(loss, [W, b])
        rate = sigmoid(eta[t])[..., None]
        W, b = W - rate[..., None] * d_W, b - rate * d_b
        outputs.append(model(q[t], W, b))
    return torch.stack(outputs)


class Titans(gg.Cell):
    """A neural memory with momentum and forgetting (Behrouz et al. 2025, arXiv:2501.00663), with a linear memory."""

    gates = {"q": KEY, "k": KEY, "v": VALUE, "forget": ("heads",), "momentum": ("heads",), "rate": ("heads",)}
    state = {"h": VALUE, "M": MEMORY, "surprise": MEMORY}
    recurrent = False
    heads, key, value = 2, 4, 3

    def step(self, a, s):
        forget, momentum, rate = (sigmoid(v)[..., None, None] for v in (a.forget, a.momentum, a.rate))
        k = F.normalize(a.k, dim=-1)
        error = (k.unsqueeze(-2) @ s.M).squeeze(-2) - a.v
        surprise = momentum * s.surprise - rate * k[..., None] * error[..., None, :]
        M = (1 - forget) * s.M + surprise
        return (a.q.unsqueeze(-2) @ M).squeeze(-2), M, surprise


def titans(gates, p):
    """The same with the gradient of the loss by autograd."""
    q, k, v, forget, momentum, rate = gates
    M = surprise = v.new_zeros(*v.shape[1:3], 4, 3)
    outputs = []
    for t in range(len(q)):
        leaf = M.detach().requires_grad_()
        loss = 0.5 * (einsum("nhk,nhkv->nhv", F.normalize(k[t], dim=-1), leaf) - v[t]).square().sum()
        (d,) = torch.autograd.grad(loss, leaf)
        forgotten, kept, scale = (sigmoid(x[t])[..., None, None] for x in (forget, momentum, rate))
        surprise = kept * surprise - scale * d
        M = (1 - forgotten) * M + surprise
        outputs.append(einsum("nhk,nhkv->nhv", q[t], M))
    return torch.stack(outputs)


class LogLinear(gg.Cell):
    """Log-linear attention (Guo et al. 2025, arXiv:2506.04761): a memory per level of a Fenwick tree."""

    gates = {"q": KEY, "k": KEY, "v": VALUE, "weight": ("heads", "levels")}
    state = {"h": VALUE, "S": ("levels", *MEMORY), "t": ()}
    recurrent = False
    heads, key, value, levels = 2, 4, 3, 4

    def step(self, a, s):
        t, new, memories = s.t + 1, a.k[..., None] * a.v[..., None, :], []
        for level in range(self.levels):
            rest = (t % 2 ** (level + 1))[:, None, None, None]  # the new steps of the blocks of this and lower levels
            memories.append(torch.where(rest == 2**level, new, torch.where(rest == 0, 0.0, s.S[:, level])))
            new = new + s.S[:, level]
        S = torch.stack(memories, 1)
        return einsum("nhl,nlhkv,nhk->nhv", F.softplus(a.weight), S, a.q), S, t


def log_linear(gates, p):
    """The sum over all earlier steps, each weighted by the level of its block."""
    q, k, v, weight = gates
    outputs = []
    for t in range(1, len(q) + 1):
        total, end = torch.zeros_like(v[0]), t
        while end:
            level = (end & -end).bit_length() - 1
            for s in range(end - 2**level, end):
                score = F.softplus(weight[t - 1, ..., level]) * (q[t - 1] * k[s]).sum(-1)
                total = total + score[..., None] * v[s]
            end -= 2**level
        outputs.append(total)
    return torch.stack(outputs)


@pytest.mark.parametrize(("cell", "definition"), [(TTTLinear, ttt_linear), (Titans, titans), (LogLinear, log_linear)])
def test_a_cell_of_a_recent_paper_equals_its_definition(cell, definition):
    assert len([line for line in inspect.getsource(cell.step).splitlines() if line.strip()]) <= 15
    layer = gg.Recurrent(cell(), 5, cell.heads * cell.value, dtype=torch.float64)
    with torch.no_grad():
        for number, value in enumerate(layer.parameters()):
            value.copy_(noise(number, *value.shape) / 2)
    x, N = noise(99, 13, 2, 5), 2
    rows = x @ layer.weight_ih_l0.T + layer.bias_ih_l0
    sizes = {"heads": cell.heads, "key": cell.key, "value": cell.value, "levels": getattr(cell, "levels", 0)}
    shapes = [[sizes[axis] for axis in axes] for axes in [g.axes for g in cell().declaration.gates.values()]]
    blocks = rows.split([torch.Size(shape).numel() for shape in shapes], -1)
    gates = [block.view(13, N, *shape) for block, shape in zip(blocks, shapes, strict=True)]
    expected = definition([v.detach() for v in gates], {n[:-3]: v.detach() for n, v in layer.named_parameters()})
    with gg.engine("cpu"):
        output = layer(x)[0]
    torch.testing.assert_close(output, expected.flatten(2), rtol=0, atol=1e-10)
    assert gg.check(cell())
