"""Long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

from torch import sigmoid, tanh

from glassgate.cell import Cell


class LSTM(Cell):
    """Gers, Schmidhuber and Cummins 2000; `torch.nn.LSTM`.

    i, f, o = sigmoid(...),  g = tanh(...),  c = f c + i g,  h = o tanh(c)
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), tanh(a.g), sigmoid(a.o)
        c = f * s.c + i * a.update(g)
        return o * tanh(c), c
