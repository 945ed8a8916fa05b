"""Gated recurrent units (Cho et al. 2014) of both versions of the paper, and their variants.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh.
"""

from torch import sigmoid, tanh

from glassgate.cell import Cell, no_projection
from glassgate.cells.activations import activation


class GRU(Cell):
    """The GRU of `torch.nn.GRU` (Cho et al. 2014, arXiv:1406.1078v1): the reset gate acts after the matrix product.

    r = sigmoid(...),  z = sigmoid(...),  n = tanh(W_in x + b_in + r (W_hn h_prev + b_hn)),  h = (1 - z) n + z h_prev
    """

    gates = ("r", "z", "n")
    state = ("h",)

    def step(self, a, s):
        r, z = sigmoid(a.r), sigmoid(a.z)
        n = tanh(a.ih.n + r * a.hh.n)
        return (1 - z) * a.update(n) + z * s.h

    def projected(self):
        return GRUP()


class GRUP(Cell):
    """A GRU with a projection, as in LSTMP. The units m are a second state, and the output is h = W_hr m.

    A GRU layer with `proj_size` runs this cell.

    r = sigmoid(...),  z = sigmoid(...),  n = tanh(W_in x + b_in + r (W_hn h_prev + b_hn)),
    m = (1 - z) n + z m_prev
    """

    gates = ("r", "z", "n")
    state = ("h", "m")

    def step(self, a, s):
        r, z = sigmoid(a.r), sigmoid(a.z)
        n = tanh(a.ih.n + r * a.hh.n)
        m = (1 - z) * a.update(n) + z * s.m
        return m, m  # the layer projects the first value to h


class GRUv3(Cell):
    """The GRU of the published paper (Cho et al. 2014, arXiv:1406.1078v3): the reset gate acts before the product.

    In Keras, this is `GRU(reset_after=False)`.

    r = sigmoid(...),  z = sigmoid(...),  n = tanh(W_in x + b_in + W_hn (r h_prev) + b_hn),
    h = (1 - z) n + z h_prev
    """

    gates = ("r", "z", "n")
    state = ("h",)

    def step(self, a, s):
        r, z = sigmoid(a.r), sigmoid(a.z)
        n = tanh(a.ih.n + a.hh(r * s.h).n)
        return (1 - z) * a.update(n) + z * s.h

    def projected(self):
        raise ValueError("GRUv3: the reset gate acts on the units of h, so h cannot be projected; use cells.GRU")


class MGU(Cell):
    """The minimal gated unit (Zhou et al. 2016, arXiv:1603.09420): one gate is both forget and reset gate.

    f = sigmoid(...),  n = tanh(W_in x + b_in + W_hn (f h_prev) + b_hn),  h = (1 - f) h_prev + f n
    """

    gates = ("f", "n")
    state = ("h",)
    projected = no_projection

    def step(self, a, s):
        f = sigmoid(a.f)
        n = tanh(a.ih.n + a.hh(f * s.h).n)
        return (1 - f) * s.h + f * a.update(n)


class ActivatedGRU(Cell):
    """A GRU with activations other than sigmoid and tanh, given by their names in `torch.nn.functional`.

    r, z = gate(...),  n = new(W_in x + b_in + r (W_hn h_prev + b_hn)),  h = (1 - z) n + z h_prev

    Args:
        gate: the activation of r and z.
        new: the activation of the candidate n.
    """

    gates = ("r", "z", "n")
    state = ("h",)
    projected = no_projection

    def __init__(self, gate: str = "hardsigmoid", new: str = "tanh") -> None:
        self.gate, self.new = gate, new
        for name in (gate, new):
            activation("ActivatedGRU", name)

    def step(self, a, s):
        gate, new = activation("ActivatedGRU", self.gate), activation("ActivatedGRU", self.new)
        r, z = gate(a.r), gate(a.z)
        n = new(a.ih.n + r * a.hh.n)
        return (1 - z) * a.update(n) + z * s.h
