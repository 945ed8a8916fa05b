"""Cells whose states are arrays, for tests: each uses operations or shapes that the others do not."""

import torch

import glassgate as gg
from glassgate.cell_axes import Gate


class DeltaRule(gg.Cell):
    """A key replaces its value in a memory of keys and values (Schlag et al. 2021, arXiv:2102.11174)."""

    gates = {"q": ("heads", "key"), "k": ("heads", "key"), "v": ("heads", "value"), "b": ("heads",)}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value")}
    recurrent = False

    def __init__(self, heads: int, key: int, value: int) -> None:
        self.heads, self.key, self.value = heads, key, value

    def step(self, a, s):
        k = a.k / a.k.square().sum(-1, keepdim=True).add(1e-6).sqrt()
        old = (k[..., None] * s.S).sum(-2)
        S = s.S + k[..., None] * (torch.sigmoid(a.b)[..., None] * (a.v - old))[..., None, :]
        return (a.q[..., None] * S).sum(-2), S


class Surprised(DeltaRule):
    """A variable that no state reads, for recordings."""

    def step(self, a, s):
        surprise = a.v - (a.k[..., None] * s.S).sum(-2)
        assert surprise.dim() == 3
        return super().step(a, s)


class OneValue(gg.Cell):
    """A variable that all heads share."""

    gates = {"k": ("heads", "key"), "v": ("value",)}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value")}
    recurrent, heads, key, value = False, 2, 3, 4

    def step(self, a, s):
        v = torch.tanh(a.v)
        S = 0.9 * s.S + a.k[..., None] * v[:, None, None]
        return S.mean(-2), S


class Decayed(gg.Cell):
    """A decay per head and key, a normaliser as a second state, and parameters of several shapes."""

    gates = {"q": ("heads", "key"), "k": ("heads", "key"), "v": ("heads", "value"), "w": ("heads", "key")}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value"), "n": ("heads", "key")}
    parameters = {
        "bonus": gg.Parameter(0.3, axes=("heads", "key")),
        "rate": gg.Parameter(0.5, axes=("heads",)),
        "gain": gg.Parameter(0.7, axes=("value",)),
    }
    recurrent = False

    def __init__(self, heads: int, key: int, value: int) -> None:
        self.heads, self.key, self.value = heads, key, value

    def step(self, a, s, p):
        w = torch.exp(-torch.exp(p.rate)[:, None] * torch.nn.functional.softplus(a.w))
        n = w * s.n + torch.abs(a.k)
        S = w.unsqueeze(-1) * s.S + torch.einsum("nhk,nhv->nhkv", a.k, a.v)
        read = a.q.unsqueeze(-2) @ (S + (p.bonus * a.k)[..., None] * a.v[..., None, :])
        size = torch.clamp(torch.einsum("nhk,nhk->nh", torch.abs(a.q), n), min=1.0)
        return p.gain * read.squeeze(-2) / size[..., None], S, n


class Masked(gg.Cell):
    """Conditions: one per head, and one per key that a matrix reads."""

    gates = {"k": ("heads", "key"), "v": ("heads", "value"), "b": ("heads",)}
    state = {"h": ("heads", "value"), "S": ("heads", "key", "value"), "age": ("heads",)}
    recurrent = False

    def __init__(self, heads: int, key: int, value: int) -> None:
        self.heads, self.key, self.value = heads, key, value

    def step(self, a, s):
        S = torch.where((a.b > 0)[..., None, None], s.S * 0.9, s.S)
        S = torch.where((a.k > 0.1)[..., None], S + a.v[..., None, :], S)
        age = torch.where(a.b > 0, s.age + 1.0, 0.0 * s.age)
        return S.mean(-2) * torch.tanh(age)[..., None], S, age


class Projectable(gg.Cell):
    """The output has one number per unit, so layers can project it. The cell also has a matrix and delayed values."""

    gates = {"z": ("units",), "k": ("key",), "f": Gate(("units",), reads="h")}
    state = {"h": ("units",), "S": ("key", "units"), "c": ("units",), "m": ()}
    parameters = {"w": gg.Parameter(0.3)}
    delays = {"old": ("m", 3)}
    key = 3

    def step(self, a, s, p):
        S = 0.9 * s.S + a.k[..., None] * torch.tanh(a.z)[..., None, :]
        read = (a.k[..., None] * S).sum(-2)
        c = torch.sigmoid(a.f) * s.c + p.w * read + s.old[:, None]
        return torch.tanh(c), S, c, 0.5 * s.h.mean(-1) + c.mean(-1)

    def project(self, h):
        return h.clamp(-1.5, 1.5)


class Vectors(gg.Cell):
    """Without matrices: one number per index of an axis, whose indices depend on each other through the norm."""

    gates = {"x": ("width",), "f": ("width",)}
    state = {"h": ("width",), "c": ("width",)}
    recurrent = False

    def step(self, a, s):
        f = torch.sigmoid(a.f)
        c = f * s.c + (1 - f) * a.x
        return torch.nn.functional.normalize(c, dim=-1), c


class Named(gg.Cell):
    """States and variables with the names that kernels use themselves."""

    gates = {"v": ("heads", "value"), "job": ("heads",)}
    state = {"h": ("heads", "value"), "gates": ("heads", "value"), "inputs": ("heads",), "shared": ("heads", "value")}
    recurrent, heads, value = False, 2, 3

    def step(self, a, s):
        chunks = torch.tanh(a.v + s.gates)
        i0 = torch.sigmoid(a.job) + s.inputs
        row = chunks * i0[..., None] + 0.5 * s.shared
        return row, 0.5 * s.gates + s.h, 0.5 * i0, s.shared.cumsum(-1) * 0.3 + row
