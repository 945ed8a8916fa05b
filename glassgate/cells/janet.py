"""JANET: an LSTM with only a forget gate (van der Westhuizen and Lasenby 2018).

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh.
"""

from torch import sigmoid, tanh

from glassgate.cell import Cell, no_projection


class JANET(Cell):
    """An LSTM with only a forget gate (van der Westhuizen and Lasenby 2018, arXiv:1804.04849, equation 5).

    s = ... (the pre-activation of gate f),  g = tanh(...),  h = sigmoid(s) h_prev + (1 - sigmoid(s - beta)) g

    Args:
        beta: a constant in the weight of the candidate g. A larger value gives g a larger weight.
    """

    gates = ("f", "g")
    state = ("h",)
    projected = no_projection

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def step(self, a, s):
        f, g = sigmoid(a.f), tanh(a.g)
        return f * s.h + (1 - sigmoid(a.f - self.beta)) * a.update(g)
