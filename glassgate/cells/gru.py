"""Gated recurrent units (Cho et al. 2014), in PyTorch's form and the paper's."""

from torch import sigmoid, tanh

from glassgate.cell import Cell


class GRU(Cell):
    """Cho et al. 2014, arXiv:1406.1078v3 as in `torch.nn.GRU`: the reset gate acts after the product.

    r = sigmoid(...),  z = sigmoid(...),  n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h = (1 - z) n + z h
    """

    gates = ("r", "z", "n")
    state = ("h",)

    def step(self, a, s):
        r, z = sigmoid(a.r), sigmoid(a.z)
        n = tanh(a.ih.n + r * a.hh.n)
        return (1 - z) * a.update(n) + z * s.h


class GRUv1(Cell):
    """Cho et al. 2014, arXiv:1406.1078v1: the reset gate acts on the state, before the product.

    r = sigmoid(...),  z = sigmoid(...),  n = tanh(W_in x + b_in + W_hn (r h) + b_hn),  h = (1 - z) n + z h
    """

    gates = ("r", "z", "n")
    state = ("h",)

    def step(self, a, s):
        r, z = sigmoid(a.r), sigmoid(a.z)
        n = tanh(a.ih.n + a.hh(r * s.h).n)
        return (1 - z) * a.update(n) + z * s.h
