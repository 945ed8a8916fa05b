"""An LSTM with only a forget gate (van der Westhuizen and Lasenby 2018)."""

from torch import sigmoid, tanh

from glassgate.cell import Cell, no_projection


class JANET(Cell):
    """Van der Westhuizen and Lasenby 2018, arXiv:1804.04849, equation 5.

    f = ... (a pre-activation),  g = tanh(...),  h = sigmoid(f) h_prev + (1 - sigmoid(f - beta)) g

    Args:
        beta: subtracted from the pre-activation of the gate that writes; a larger value keeps more of the state.
    """

    gates = ("f", "g")
    state = ("h",)
    projected = no_projection

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def step(self, a, s):
        f, g = sigmoid(a.f), tanh(a.g)
        return f * s.h + (1 - sigmoid(a.f - self.beta)) * a.update(g)
