"""Cells with a matrix as memory: each head has a state S of keys and values, (heads, key_size, value_size).

A step writes the value v at the key k and reads at the query q. `value_size` is hidden_size / heads. In the equations,
q, k, v and other gates without a formula are pre-activations, W_ih x + b_ih, as `...` is in formulas. Vectors are
columns, and the equations hold for each head. Short convolutions, rotations, norms and gates of the output belong to
the block around a cell.
"""

import math

import torch
from torch import exp, sigmoid
from torch.nn.functional import elu, logsigmoid, normalize, silu, softplus

from glassgate.cell import Cell, Parameter

KEY, VALUE, HEAD = ("heads", "key_size"), ("heads", "value_size"), ("heads",)
MEMORY = ("heads", "key_size", "value_size")


def outer(k, v):
    """Compute k v^T for each head."""
    return k[..., :, None] * v[..., None, :]


def read(S, q):
    """Compute S^T q for each head."""
    return (q[..., None, :] @ S)[..., 0, :]


class MatrixMemory(Cell):
    """The base class of the cells with a matrix memory.

    Args:
        heads: the number of heads; it divides the hidden size.
        key_size: the size of the queries and keys of a head.
    """

    gates = {"q": KEY, "k": KEY, "v": VALUE}
    state = {"h": VALUE, "S": MEMORY}
    recurrent = False

    def __init__(self, heads: int = 1, key_size: int = 16) -> None:
        self.heads, self.key_size = heads, key_size


class LinearAttention(MatrixMemory):
    """Linear attention (Katharopoulos et al. 2020, arXiv:2006.16236, equations 16 to 20), with phi(x) = elu(x) + 1.

    S = S_prev + phi(k) v^T,  z = z_prev + phi(k),  h = S^T phi(q) / (z^T phi(q))
    """

    state = {"h": VALUE, "S": MEMORY, "z": KEY}

    def step(self, a, s):
        q, k = elu(a.q) + 1, elu(a.k) + 1
        S, z = s.S + outer(k, a.update(a.v)), s.z + k
        return read(S, q) / (z * q).sum(-1, keepdim=True), S, z


class RetNet(MatrixMemory):
    """Retention (Sun et al. 2023, arXiv:2307.08621, equation 6), without the rotation of queries and keys.

    gamma = 1 - 2^(-decay),  S = gamma S_prev + k v^T,  h = S^T q

    `decay` is a parameter per head. It starts at 5, 6, 7, ..., the constants of the paper.
    """

    parameters = {"decay": Parameter(lambda p: p.copy_(torch.arange(len(p)) + 5), axes=HEAD)}

    def step(self, a, s, p):
        S = (1 - torch.exp2(-p.decay))[:, None, None] * s.S + outer(a.k, a.update(a.v))
        return read(S, a.q), S


class GLA(MatrixMemory):
    """Gated linear attention (Yang et al. 2023, arXiv:2312.06635, equations 3 and 4), with a full-rank gate.

    f = sigmoid(...)^(1 / 16),  S = diag(f) S_prev + k v^T,  h = S^T q
    """

    gates = {"q": KEY, "k": KEY, "v": VALUE, "f": KEY}

    def step(self, a, s):
        f = exp(logsigmoid(a.f) / 16)
        S = f[..., None] * s.S + outer(a.k, a.update(a.v))
        return read(S, a.q), S


class HGRN2(MatrixMemory):
    """HGRN2 (Qin et al. 2024, arXiv:2404.07904, section 3): the forget gate also determines the key.

    f = bound + (1 - bound) sigmoid(...),  S = diag(f) S_prev + (1 - f) v^T,  h = S^T silu(q)

    Args:
        heads, key_size: as in `MatrixMemory`.
        bound: the lower bound of the forget gate. In the paper it rises from layer to layer.
    """

    gates = {"q": KEY, "f": KEY, "v": VALUE}

    def __init__(self, heads: int = 1, key_size: int = 16, bound: float = 0.0) -> None:
        super().__init__(heads, key_size)
        self.bound = bound

    def step(self, a, s):
        f = self.bound + (1 - self.bound) * sigmoid(a.f)
        S = f[..., None] * s.S + outer(1 - f, a.update(a.v))
        return read(S, silu(a.q)), S


class Mamba2(MatrixMemory):
    """The state space of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060, section 7). Keys B and queries C serve all heads.

    t = softplus(t),  S = exp(-exp(A) t) S_prev + t B v^T,  h = S^T C + D v

    A and D are parameters per head. A starts at log 1, log 2, ..., and D at 1.
    """

    gates = {"v": VALUE, "B": ("key_size",), "C": ("key_size",), "t": HEAD}
    parameters = {
        "A": Parameter(lambda p: p.copy_((torch.arange(len(p)) + 1).log()), axes=HEAD),
        "D": Parameter(1.0, axes=HEAD),
    }

    def step(self, a, s, p):
        t = softplus(a.t)
        decay = exp(-exp(p.A) * t)
        S = decay[..., None, None] * s.S + outer(a.B[:, None], t[..., None] * a.update(a.v))
        return read(S, a.C[:, None]) + p.D[:, None] * a.v, S


class MLSTM(MatrixMemory):
    """The mLSTM of xLSTM (Beck et al. 2024, arXiv:2405.04517, equations 19 to 27), with the stabiliser m.

    o = sigmoid(...),  log f = logsigmoid(...),  m = max(log f + m_prev, i),  w = exp(log f + m_prev - m),
    u = exp(i - m) k / sqrt(key_size),  S = w S_prev + u v^T,  n = w n_prev + u,
    h = o S^T q / max(|n^T q|, exp(-m))

    S, n and m together represent one memory. Therefore zoneout should act only on the output: `zoneout={"h": 0.1}`.
    """

    gates = {"q": KEY, "k": KEY, "v": VALUE, "i": HEAD, "f": HEAD, "o": VALUE}
    state = {"h": VALUE, "S": MEMORY, "n": KEY, "m": HEAD}

    def step(self, a, s):
        kept = logsigmoid(a.f) + s.m
        m = torch.maximum(kept, a.i)
        f, i = exp(kept - m), exp(a.i - m)
        k = a.k * self.key_size**-0.5
        S = f[..., None, None] * s.S + outer(i[..., None] * k, a.update(a.v))
        n = f[..., None] * s.n + i[..., None] * k
        scale = torch.maximum((n * a.q).sum(-1).abs(), exp(-m))
        return sigmoid(a.o) * read(S, a.q) / scale[..., None], S, n, m


class DeltaNet(MatrixMemory):
    """The delta rule (Schlag et al. 2021, arXiv:2102.11174; in this form Yang et al. 2024, arXiv:2406.06484).

    A step replaces the value at the key by a mixture of old and new value, with the fraction b.

    q, k = silu(...) / |silu(...)|,  b = sigmoid(...),  S = S_prev + b k (v - S_prev^T k)^T,  h = S^T q
    """

    gates = {"q": KEY, "k": KEY, "v": VALUE, "b": HEAD}

    def step(self, a, s):
        q, k = normalize(silu(a.q), dim=-1), normalize(silu(a.k), dim=-1)
        b = sigmoid(a.b)
        S = s.S + outer(b[..., None] * k, a.update(a.v) - read(s.S, k))
        return read(S, q), S


class GatedDeltaNet(MatrixMemory):
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464, equation 10): the delta rule with a decay f per head.

    q, k = silu(...) / |silu(...)|,  b = sigmoid(...),  f = exp(-exp(A) softplus(...)),
    S = f S_prev + b k (silu(v) - f S_prev^T k)^T,  h = S^T q

    A is a parameter per head. It starts at log 1, log 2, ..., as in Mamba-2.
    """

    gates = {"q": KEY, "k": KEY, "v": VALUE, "b": HEAD, "f": HEAD}
    parameters = {"A": Parameter(lambda p: p.copy_((torch.arange(len(p)) + 1).log()), axes=HEAD)}

    def step(self, a, s, p):
        q, k = normalize(silu(a.q), dim=-1), normalize(silu(a.k), dim=-1)
        b, f = sigmoid(a.b), exp(-exp(p.A) * softplus(a.f))
        kept = f[..., None, None] * s.S
        S = kept + outer(b[..., None] * k, a.update(silu(a.v)) - read(kept, k))
        return read(S, q), S


class RWKV7(MatrixMemory):
    """The time mixing of RWKV-7 (Peng et al. 2025, arXiv:2503.14456, equations 9 to 17): a delta rule per key channel.

    w = exp(-exp(-1 / 2) sigmoid(...)),  b = sigmoid(...),  e = k r_k / |k r_k|,  u = k (1 + (b - 1) r_a),
    S = diag(w) S_prev - (b e) (S_prev^T e)^T + u v^T,  h = S^T q

    r_k and r_a are parameters, per head and key channel. The paper has other letters: q is r, and b is a.
    """

    gates = {"q": KEY, "w": KEY, "k": KEY, "v": VALUE, "b": KEY}
    parameters = {"r_k": Parameter(1.0, axes=KEY), "r_a": Parameter(1.0, axes=KEY)}

    def step(self, a, s, p):
        w, b = exp(-math.exp(-0.5) * sigmoid(a.w)), sigmoid(a.b)
        e = normalize(a.k * p.r_k, dim=-1)
        u = a.k * (1 + (b - 1) * p.r_a)
        S = w[..., None] * s.S - outer(b * e, read(s.S, e)) + outer(u, a.update(a.v))
        return read(S, a.q), S
