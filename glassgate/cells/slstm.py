"""The sLSTM of xLSTM (Beck et al. 2024).

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh.
"""

from math import inf

import torch
from torch import exp, sigmoid, tanh
from torch.nn.functional import logsigmoid

from glassgate.cell import Cell


class SLSTM(Cell):
    """The sLSTM (Beck et al. 2024, arXiv:2405.04517, equations 8 to 17).

    It has an exponential input gate, a normaliser n and a stabiliser m.

    z = tanh(...),  o = sigmoid(...),  i = ...,  log f = logsigmoid(...),  m = max(log f + m_prev, i),
    w = exp(log f + m_prev - m),  c = w c_prev + exp(i - m) z,  n = w n_prev + exp(i - m),  h = o c / n

    c, n and m together represent one number. Therefore zoneout should act only on the output: `zoneout={"h": 0.1}`.

    Args:
        heads: the number of diagonal blocks of `weight_hh`. A unit reads only the units of its block.
    """

    gates = ("i", "f", "z", "o")
    state = ("h", "c", "n", "m")

    def __init__(self, heads: int = 1) -> None:
        if not isinstance(heads, int) or heads < 1:
            raise ValueError(f"SLSTM: heads must be a positive integer, got {heads!r}")
        self.heads = heads

    def step(self, a, s):
        z, o, kept = tanh(a.z), sigmoid(a.o), logsigmoid(a.f) + s.m
        # At the first step the normaliser is 0, so the input gate alone sets the scale.
        empty = s.n == 0
        m = torch.where(empty, a.i, torch.maximum(kept, a.i))
        # `where` masks the argument of `exp`. A mask on its result would give a NaN gradient if `exp` overflows.
        f, i = exp(torch.where(empty, -inf, kept - m)), exp(a.i - m)
        c = f * s.c + i * a.update(z)
        n = f * s.n + i
        return o * c / n, c, n, m
