"""Cells with a matrix memory that read keys, values and gates from the input, without weights, for `glassgate.blocks`.

`matrix.py` contains the cells with weights.
"""

import torch
from torch import exp
from torch.nn.functional import logsigmoid

from glassgate.cell import Cell
from glassgate.cells.matrix import HEAD, KEY, MEMORY, VALUE, outer, read


class DirectCell(Cell):
    """A cell with a matrix memory S per head that reads q, k, v and its gates from the input, without weights.

    Args:
        heads: the number of heads.
        key_size, value_size: the sizes of the keys and values of a head.
    """

    inputs = {"q": KEY, "k": KEY, "v": VALUE, "f": HEAD}
    state = {"h": VALUE, "S": MEMORY}
    recurrent = False

    def __init__(self, heads: int, key_size: int, value_size: int) -> None:
        self.heads, self.key_size, self.value_size = heads, key_size, value_size


class Decay(DirectCell):
    """S = f S_prev + k v^T,  h = S^T q, for each head."""

    def step(self, a, s):
        x = a.input
        S = x.f[..., None, None] * s.S + outer(x.k, x.v)
        return read(S, x.q), S


class GatedDelta(DirectCell):
    """S = f S_prev + b k (v - f S_prev^T k)^T,  h = S^T q, for each head."""

    inputs = {**DirectCell.inputs, "b": HEAD}

    def step(self, a, s):
        x = a.input
        kept = x.f[..., None, None] * s.S
        S = kept + outer(x.k, x.b[..., None] * (x.v - read(kept, x.k)))
        return read(S, x.q), S


class ChannelDelta(DirectCell):
    """S = diag(f) S_prev - b (S_prev^T e)^T + k v^T,  h = S^T q, for each head, where f, e and b are vectors."""

    inputs = {**DirectCell.inputs, "f": KEY, "e": KEY, "b": KEY}

    def step(self, a, s):
        x = a.input
        S = x.f[..., None] * s.S - outer(x.b, read(s.S, x.e)) + outer(x.k, x.v)
        return read(S, x.q), S


class Exponential(DirectCell):
    """The mLSTM as in `gg.cells.MLSTM`, with 1e-6 added to the denominator, as in the code of its authors."""

    inputs = {**DirectCell.inputs, "i": HEAD}
    state = {"h": VALUE, "S": MEMORY, "n": KEY, "m": HEAD}

    def step(self, a, s):
        x = a.input
        kept = logsigmoid(x.f) + s.m
        m = torch.maximum(kept, x.i)
        f, i = exp(kept - m)[..., None], exp(x.i - m)[..., None]
        S = f[..., None] * s.S + outer(i * x.k, x.v)
        n = f * s.n + i * x.k
        scale = torch.maximum((n * x.q).sum(-1).abs(), exp(-m)) + 1e-6
        return read(S, x.q) / scale[..., None], S, n, m
